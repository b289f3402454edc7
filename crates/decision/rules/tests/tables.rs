//! Rows of tables: clients with terms of their own.

use tidegate_rules::{
    Entry, Minute, Options, Report, Rows, Snapshot, Source, TableName, TermsText, Timestamp,
    compile, compile_with_rows,
};

const RULES: &str = "
domain: api
tables:
  clients: {key: client, file: clients.csv}
plans:
  gold: {limits: [{name: rate, unit: second, requests_per_unit: 1000}]}
descriptors:
- key: client
  overrides: clients
  limits: [{name: rate, algorithm: token_bucket, unit: second, requests_per_unit: 100, burst: 200}]
  descriptors:
  - key: path
    overrides: clients
    limits: [{name: rate, unit: minute, requests_per_unit: 10}]
";

fn try_compile(rules: &str, rows: &str) -> Result<Snapshot, Report> {
    let sources = [Source::new("rules/api.yaml", rules), Source::new("rules/clients.csv", rows)];
    compile(&sources, &Options::default())
}

fn compiled(rules: &str, rows: &str) -> Snapshot {
    try_compile(rules, rows).unwrap_or_else(|report| panic!("{report}"))
}

fn at(minute: u64) -> Timestamp {
    Timestamp::from_secs(minute * 60)
}

/// What a request meets: terms, plan, and the quota of each limit.
fn met(snapshot: &Snapshot, request: &[(&str, &str)], now: Timestamp) -> String {
    let entries: Vec<Entry<'_>> = request.iter().map(|(key, value)| Entry { key, value }).collect();
    let domain = snapshot.domain("api").expect("it is there");
    let Some(found) = domain.find(&entries, now) else { return "none".to_owned() };
    let limits = snapshot.limits_of(found.rule).iter();
    let quotas: Vec<String> = limits
        .map(|limit| {
            let algorithm = limit.limit.algorithm();
            format!("{}/{}", algorithm.quota(), algorithm.capacity())
        })
        .collect();
    let terms = found.rule.terms().unwrap_or("own");
    format!("{terms} {:?} {}", found.rule.plan(), quotas.join(" "))
}

fn of_client(rows: &str, client: &str) -> String {
    met(&compiled(RULES, rows), &[("client", client)], at(0))
}

#[test]
fn a_row_changes_the_limits_of_one_client() {
    let rows = "value,terms
acme,rate=500
globex,gold
initech,blocked
umbrella,unlimited
hooli,rate=50/m burst=60
";
    for (client, expected) in [
        ("acme", "rate=500 None 500/1000"),
        ("globex", "gold Some(\"gold\") 1000/1000"),
        ("initech", "blocked None 0/0"),
        ("umbrella", "unlimited None "),
        ("hooli", "rate=50/1m burst=60 None 50/60"),
        ("stranger", "own None 100/200"),
    ] {
        assert_eq!(of_client(rows, client), expected, "{client}");
    }
}

#[test]
fn a_row_is_found_by_an_entry_further_up() {
    let snapshot = compiled(RULES, "value,terms\nacme,rate=500\n");
    let request = [("client", "acme"), ("path", "/a")];
    assert_eq!(met(&snapshot, &request, at(0)), "rate=500 None 500/500");
    let request = [("client", "/a"), ("path", "acme")];
    assert_eq!(met(&snapshot, &request, at(0)), "own None 10/10");
}

#[test]
fn a_temporary_row_ends_by_itself() {
    let rows = "value,terms,until,why\nacme,unlimited,1970-01-02T00:30:00Z,\"a launch, until noon\"\nb,gold,1970-01-02,\n";
    let snapshot = compiled(RULES, rows);
    for (minute, terms) in [(0, "unlimited"), (1469, "unlimited"), (1470, "own")] {
        assert!(met(&snapshot, &[("client", "acme")], at(minute)).starts_with(terms), "{minute}");
    }
    for (minute, terms) in [(1439, "gold"), (1440, "own")] {
        assert!(met(&snapshot, &[("client", "b")], at(minute)).starts_with(terms), "{minute}");
    }
}

/// Identities of the limits that a client meets, and of its rule.
fn identities(snapshot: &Snapshot, client: &str) -> (u64, Vec<u64>) {
    let entries = [Entry { key: "client", value: client }];
    let found = snapshot.domain("api").and_then(|domain| domain.find(&entries, at(0)));
    let rule = found.expect("a rule applies").rule;
    (rule.identity(), snapshot.limits_of(rule).iter().map(|limit| limit.identity).collect())
}

#[test]
fn a_client_keeps_its_counters_when_a_row_comes_changes_or_goes() {
    let without = identities(&compiled(RULES, "value,terms\n"), "acme");
    for terms in ["rate=500", "rate=5/h burst=1", "blocked"] {
        let with = identities(&compiled(RULES, &format!("value,terms\nacme,{terms}\n")), "acme");
        assert_eq!(with, without, "{terms}");
    }
}

#[test]
fn a_rule_that_only_has_overrides_limits_only_clients_with_rows() {
    let rules = "
domain: api
tables: {clients: {key: client, file: clients.csv}}
plans: {gold: {limits: [{unit: second, requests_per_unit: 7}]}}
descriptors: [{key: client, overrides: clients}]
";
    let snapshot = compiled(rules, "value,terms\na,gold\nb,blocked\n");
    let met = |client| met(&snapshot, &[("client", client)], at(0));
    assert_eq!(met("a"), "gold Some(\"gold\") 7/7");
    assert_eq!(met("b"), "blocked None 0/0");
    assert_eq!(met("c"), "none");
}

#[test]
fn a_row_wins_over_the_plan_that_the_value_names() {
    let rules = "
domain: api
tables: {tenants: {key: tenant, file: clients.csv}}
plans:
  free: {limits: [{name: rate, unit: second, requests_per_unit: 1}]}
  paid: {limits: [{name: rate, unit: second, requests_per_unit: 9}]}
descriptors:
- key: tenant
  descriptors: [{key: plan, overrides: tenants, plan: {from: value, default: free}}]
";
    let snapshot = compiled(rules, "value,terms\nacme,rate=500\n");
    let met = |tenant, plan| met(&snapshot, &[("tenant", tenant), ("plan", plan)], at(0));
    assert_eq!(met("acme", "paid"), "rate=500 None 500/500");
    assert_eq!(met("b", "paid"), "own Some(\"paid\") 9/9");
    assert_eq!(met("b", "nothing"), "own Some(\"free\") 1/1");
}

#[test]
fn problems_of_rows_have_their_line() {
    for (rows, code, place) in [
        ("value,terms\na,gold\na,blocked\n", "duplicate_row", "clients.csv:3:1"),
        ("value,terms\na,rate=x\n", "invalid_terms", "clients.csv:2:1"),
        ("value,terms\n\nb,speed=5\n", "unknown_limit", "clients.csv:3:1"),
        ("value,terms\nc,glod\n", "unknown_plan", "clients.csv:2:1"),
        ("value,terms\nc,rate=5 queue=3\n", "invalid_terms", "clients.csv:2:1"),
        ("value,terms,until\nc,gold,tomorrow\n", "invalid_until", "clients.csv:2:1"),
        ("value,terms\nc,gold,2027-01-01\n", "too_many_fields", "clients.csv:2:1"),
        ("value,terms\n,gold\n", "empty_value", "clients.csv:2:1"),
        ("value,term\n", "unknown_column", "clients.csv:1:1"),
        ("a,gold\n", "no_columns", "clients.csv:1:1"),
        ("", "no_columns", "clients.csv:1:1"),
        (
            "value,terms,until\na,gold,1970-01-02\nb,gold,2027-01-01\n",
            "rows_do_not_fit",
            "clients.csv:2:1",
        ),
    ] {
        let report = try_compile(RULES, rows).expect_err(rows);
        let problem = report.problems().iter().find(|problem| problem.code == code);
        let problem = problem.unwrap_or_else(|| panic!("{code} is not in {report}"));
        let found = format!("{}:{}:{}", problem.file, problem.line, problem.column);
        assert_eq!(found, format!("rules/{place}"), "{rows:?}");
    }
}

#[test]
fn problems_of_tables_are_reported() {
    let with = |from: &str, to: &str| try_compile(&RULES.replace(from, to), "value,terms\n");
    for (from, to, code) in [
        ("overrides: clients", "overrides: client", "unknown_table"),
        ("clients.csv", "nothing.csv", "no_row_file"),
        ("clients: {key: client", "clients: {key: tenant", "overrides_without_key"),
        ("{key: client, file", "{file", "no_table_key"),
    ] {
        let report = with(from, to).expect_err(to);
        assert!(report.problems().iter().any(|problem| problem.code == code), "{code}: {report}");
    }
    let unused = with("overrides: clients", "mode: enforce").unwrap_or_else(|r| panic!("{r}"));
    assert!(unused.warnings().iter().any(|warning| warning.code == "unused_table"));
    let rows = RULES.replace(", file: clients.csv", "");
    let without = compile(&[Source::new("api.yaml", rows)], &Options::default());
    let without = without.unwrap_or_else(|report| panic!("{report}"));
    assert!(without.warnings().iter().any(|warning| warning.code == "no_rows"));
}

#[test]
fn too_many_rules_from_terms_are_refused() {
    let mut rules =
        "domain: api\ntables: {clients: {key: client, file: clients.csv}}\ndescriptors:\n"
            .to_owned();
    rules.push_str("- key: client\n  descriptors:\n");
    for number in 0..20 {
        rules.push_str(&format!(
            "  - {{key: k{number}, overrides: clients, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n"
        ));
    }
    let rows: String = (0..4000).map(|number| format!("c{number},{number}\n")).collect();
    let report = try_compile(&rules, &format!("value,terms\n{rows}")).expect_err("too many");
    assert!(
        report.problems().iter().any(|problem| problem.code == "too_many_row_rules"),
        "{report}"
    );
}

fn given(terms: &str) -> Rows {
    let table = TableName { domain: "api".into(), table: "clients".into() };
    let row = tidegate_row_table::NewRow {
        table: &table,
        value: "acme",
        terms,
        until: Some(Minute(100)),
    };
    Rows::build(8, 3, &[row]).expect("it fits")
}

#[test]
fn rows_from_a_control_plane_need_no_file() {
    let sources = [Source::new("api.yaml", RULES.replace(", file: clients.csv", ""))];
    let compiled = |rows: &Rows| compile_with_rows(&sources, rows, &Options::default());
    let snapshot = compiled(&given("rate=500")).unwrap();
    assert!(snapshot.warnings().is_empty(), "{:?}", snapshot.warnings());
    assert_eq!(met(&snapshot, &[("client", "acme")], at(99)), "rate=500 None 500/1000");
    assert_eq!(met(&snapshot, &[("client", "acme")], at(100)), "own None 100/200");
    let other = compiled(&given("rate=501")).unwrap();
    assert_ne!(snapshot.version(), other.version());
    assert_eq!(snapshot.version(), compiled(&given("rate=500")).unwrap().version());
    assert!(compiled(&given("speed=5")).is_err());
}

#[test]
fn terms_that_are_not_listed_together_are_refused() {
    let sources = [Source::new("api.yaml", RULES)];
    let mut rows = given("rate=500");
    let foreign = TableName { domain: "other".into(), table: "clients".into() };
    rows.terms.push(TermsText { table: foreign, text: "1".into() });
    rows.terms.push(rows.terms[0].clone());
    assert!(compile_with_rows(&sources, &rows, &Options::default()).is_err());
}

#[test]
fn the_example_compiles_without_warnings() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/tables");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let sources = ["api.yaml", "clients.csv"].map(|name| Source::new(name, read(name)));
    let snapshot =
        compile(&sources, &Options::default()).unwrap_or_else(|report| panic!("{report}"));
    assert!(snapshot.warnings().is_empty(), "{:?}", snapshot.warnings());
    assert_eq!(snapshot.row_table().rows(), 5);
}
