//! The compilation of rule files.

mod support;

use std::time::Duration;

use support::{compiled, find, found, try_compile};
use tidegate_algorithms::{Algorithm, CalendarUnit, Timestamp, Window};
use tidegate_rules::{
    Charge, Consistency, Entry, Mode, OnStoreError, Options, PROBLEMS_MAX, Percent, RefusalStatus,
    RuleLimit, SOURCE_BYTES_MAX, Severity, Snapshot, Source, Unit, WhenOver, compile,
};

/// The limits of a file with one rule.
fn limits(limits: &str) -> Vec<RuleLimit> {
    let rules = format!("domain: d\ndescriptors: [{{key: k, limits: [{limits}]}}]\n");
    compiled(&rules).limits().to_vec()
}

fn several(files: &[(&str, &str)], merge_domains: bool) -> Result<Snapshot, Vec<String>> {
    let sources: Vec<Source> = files.iter().map(|(name, text)| Source::new(*name, *text)).collect();
    compile(&sources, &Options { merge_domains, ..Options::default() }).map_err(|report| {
        let problems = report.problems().iter();
        problems.map(|problem| problem.code.to_owned()).collect()
    })
}

const LIMIT: &str = "rate_limit: {unit: second, requests_per_unit: 1}";

#[test]
fn nothing_compiles_to_the_empty_snapshot() {
    let snapshot = compile(&[], &Options::default()).unwrap();
    assert_eq!(snapshot.domains().count(), 0);
    assert_eq!(snapshot.version(), Snapshot::default().version());
    assert!(snapshot.domain("d").is_none());
}

#[test]
fn a_snapshot_can_be_shared_between_threads() {
    fn is_shared<T: Send + Sync + 'static>(_: &T) -> bool {
        true
    }
    assert!(is_shared(&Snapshot::default()));
}

#[test]
fn a_limit_has_the_defaults_that_are_documented() {
    let limits = limits("{unit: minute, requests_per_unit: 5}");
    let limit = &limits[0];
    assert_eq!(limit.mode, Mode::ENFORCE);
    assert_eq!(limit.mode.enforce_percent(), 100);
    assert_eq!(limit.on_store_error, OnStoreError::Local);
    assert_eq!(limit.consistency, Consistency::Exact);
    assert_eq!(limit.when_over, WhenOver::Refuse);
    assert_eq!(limit.refusal_status, None);
    assert_eq!(limit.unit, Some(Unit::Minute));
    assert_eq!((limit.cost, limit.quota), (1, false));
    let Algorithm::FixedWindow(window) = limit.limit.algorithm() else {
        panic!("{limit:?}");
    };
    assert_eq!(window.limit(), 5);
    assert_eq!(window.window(), &Window::Every(Unit::Minute.period()));
}

#[test]
fn the_status_of_a_refusal_is_read_as_a_number_or_a_text() {
    let limits = limits(
        "{unit: second, requests_per_unit: 1, refusal_status: 503},
         {unit: second, requests_per_unit: 1, refusal_status: '429'}",
    );
    assert_eq!(limits[0].refusal_status, Some(RefusalStatus::ServiceUnavailable));
    assert_eq!(limits[1].refusal_status, Some(RefusalStatus::TooManyRequests));
}

#[test]
fn buckets_have_the_limit_as_burst_and_queue_unless_told() {
    let limits = limits(
        "{algorithm: token_bucket, unit: second, requests_per_unit: 7},
         {algorithm: token_bucket, unit: second, requests_per_unit: 7, burst: 9},
         {algorithm: leaky_bucket, unit: second, requests_per_unit: 7},
         {algorithm: leaky_bucket, unit: second, requests_per_unit: 7, queue: 0}",
    );
    let size = |at: usize| match limits[at].limit.algorithm() {
        Algorithm::TokenBucket(bucket) => bucket.burst(),
        Algorithm::LeakyBucket(bucket) => bucket.queue(),
        other => panic!("{other:?}"),
    };
    assert_eq!([size(0), size(1), size(2), size(3)], [7, 9, 7, 0]);
}

#[test]
fn slots_come_back_after_a_minute_unless_told() {
    let limits = limits(
        "{algorithm: concurrency, requests_per_unit: 3},
         {algorithm: concurrency, requests_per_unit: 3, time_to_live: 5s}",
    );
    let lasting = |at: usize| Duration::from(limits[at].limit.algorithm().period());
    assert_eq!(lasting(0), Duration::from_secs(60));
    assert_eq!(lasting(1), Duration::from_secs(5));
}

#[test]
fn calendar_windows_follow_their_time_zone() {
    let limits = limits(
        "{unit: month, requests_per_unit: 1},
         {unit: month, requests_per_unit: 1, calendar: true},
         {unit: day, requests_per_unit: 1, calendar: true, time_zone: Europe/Berlin}",
    );
    let window = |at: usize| match limits[at].limit.algorithm() {
        Algorithm::FixedWindow(window) => window.window().clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(window(0), Window::Every(Unit::Month.period()));
    assert_eq!(Duration::from(Unit::Month.period()).as_secs(), 30 * 86_400);
    assert_eq!(window(1), Window::Calendar(CalendarUnit::Month, jiff::tz::TimeZone::UTC));
    let Window::Calendar(CalendarUnit::Day, zone) = window(2) else {
        panic!("{:?}", window(2));
    };
    assert_eq!(zone.iana_name(), Some("Europe/Berlin"));
}

#[test]
fn a_soft_limit_says_how_far_and_how_long() {
    let limits = limits("{unit: day, requests_per_unit: 1, soft: {over: 20%, for: 30s}}");
    let soft = limits[0].limit.soft().unwrap();
    assert_eq!(soft.over_percent, 20);
    assert_eq!(Duration::from(soft.lasting), Duration::from_secs(30));
}

#[test]
fn a_limit_overrides_the_mode_of_its_rule() {
    let snapshot = compiled(
        "
domain: d
descriptors:
  - key: k
    shadow_mode: true
    quota_mode: true
    enforce_percent: 10
    limits:
      - {unit: second, requests_per_unit: 1}
      - {unit: minute, requests_per_unit: 1, mode: enforce, enforce_percent: 50}
",
    );
    let modes: Vec<_> = snapshot.limits().iter().map(|limit| (limit.mode, limit.quota)).collect();
    assert_eq!(modes, [(Mode::Shadow, true), (Mode::Enforce(Percent::new(50)), true)]);
}

#[test]
fn yes_and_off_are_read_as_the_upstream_library_reads_them() {
    let snapshot = compiled(&format!(
        "domain: d\ndescriptors: [{{key: k, shadow_mode: yes, {LIMIT}}}, {{key: l, mode: off, {LIMIT}}}]\n"
    ));
    let modes: Vec<Mode> = snapshot.limits().iter().map(|limit| limit.mode).collect();
    assert_eq!(modes, [Mode::Shadow, Mode::Off]);
}

#[test]
fn names_are_compared_as_numbers() {
    let snapshot = compiled(
        "
domain: d
descriptors:
  - {key: a, rate_limit: {name: small, unit: second, requests_per_unit: 1}}
  - {key: b, rate_limit: {name: big, unit: second, requests_per_unit: 9, replaces: [{name: small}]}}
  - {key: c, rate_limit: {name: free, unlimited: true, replaces: [{name: small}, {name: big}]}}
",
    );
    let [small, big] = snapshot.limits() else {
        panic!("{:?}", snapshot.limits());
    };
    assert_eq!(big.replaces.as_ref(), [small.name.unwrap()]);
    assert_eq!(snapshot.name(big.name.unwrap()), "big");
    let free = &snapshot.rules()[2];
    assert!(free.unlimited() && free.limits().is_empty());
    let exemption = free.exemption().unwrap();
    assert_eq!(snapshot.name(exemption.name.unwrap()), "free");
    assert_eq!(exemption.replaces.as_ref(), [small.name.unwrap(), big.name.unwrap()]);
}

#[test]
fn ids_are_places_in_the_snapshots_lists() {
    let snapshot = compiled(
        "
domain: d
descriptors:
  - {key: a, limits: [{unit: second, requests_per_unit: 1}, {unit: day, requests_per_unit: 1}]}
  - {key: b, rate_limit: {unit: second, requests_per_unit: 9}}
",
    );
    for (at, rule) in snapshot.rules().iter().enumerate() {
        assert_eq!(rule.id().index(), at);
        assert_eq!(snapshot.rule(rule.id()).unwrap().path(), rule.path());
        let ids: Vec<_> = snapshot.limits_of(rule).iter().map(|limit| limit.id).collect();
        assert_eq!(ids, rule.limits());
        for id in rule.limits() {
            assert_eq!(snapshot.limit(*id).unwrap().rule, rule.id());
        }
    }
    assert_eq!(snapshot.limits().len(), 3);
}

#[test]
fn metadata_is_kept_as_json() {
    let snapshot = compiled(&format!(
        "domain: d\ndescriptors: [{{key: k, metadata: {{a: {{b: [1, 1.5, x, null, on]}}}}, {LIMIT}}}]\n"
    ));
    let expected = serde_json::json!({"a": {"b": [1, 1.5, "x", null, true]}});
    assert_eq!(snapshot.rules()[0].metadata(), Some(&expected));
}

#[test]
fn files_of_one_domain_are_merged() {
    let one = "domain: d\nplans: {p: {limits: [{unit: day, requests_per_unit: 3}]}}\n";
    let two = format!(
        "domain: d\ncharge: always\ndescriptors: [{{key: a, {LIMIT}}}, {{key: b, plan: p}}]\n"
    );
    let snapshot = several(&[("one", one), ("two", &two)], true).unwrap();
    let domain = snapshot.domain("d").unwrap();
    assert_eq!(snapshot.domains().count(), 1);
    assert_eq!(domain.charge(), Charge::Always);
    let entry = [Entry { key: "b", value: "1" }];
    assert_eq!(domain.find(&entry, Timestamp::EPOCH).unwrap().rule.plan(), Some("p"));
}

#[test]
fn two_files_cannot_both_declare_a_descriptor_or_a_plan() {
    let file = format!(
        "domain: d\nplans: {{p: {{limits: [{{unlimited: true}}]}}}}\ndescriptors: [{{key: a, {LIMIT}}}]\n"
    );
    let sources = [Source::new("one", file.clone()), Source::new("two", file)];
    let report = compile(&sources, &Options::default()).unwrap_err();
    let codes: Vec<&str> = report.problems().iter().map(|problem| problem.code).collect();
    assert_eq!(codes, ["duplicate_plan", "duplicate_descriptor"]);
    let problem = &report.problems()[1];
    assert_eq!((problem.file.as_str(), problem.line), ("two", 3));
    assert_eq!(problem.related.as_ref().unwrap().file, "one");
}

#[test]
fn a_second_file_for_a_domain_is_refused_when_files_are_not_merged() {
    let files = [("one", "domain: d\n"), ("two", "domain: e\n"), ("three", "domain: d\n")];
    assert_eq!(several(&files, false).unwrap_err(), ["duplicate_domain"]);
    assert_eq!(several(&files, true).unwrap().domains().count(), 2);
}

#[test]
fn files_that_contradict_each_other_on_the_whole_domain_are_refused() {
    for [one, other] in [
        ["charge: always", "charge: all_or_nothing"],
        ["store_deadline: 5ms", "store_deadline: 1s"],
    ] {
        let [one, other] = [one, other].map(|line| format!("domain: d\n{line}\n"));
        let files = [("one", one.as_str()), ("two", other.as_str())];
        assert_eq!(several(&files, true).unwrap_err(), ["contradicting_files"]);
        let files = [("one", one.as_str()), ("two", one.as_str()), ("three", "domain: d\n")];
        assert!(several(&files, true).is_ok());
    }
}

#[test]
fn a_domain_says_how_long_the_store_may_take() {
    let deadline = |text| {
        let rules = several(&[("one", text)], true).unwrap();
        rules.domain("d").unwrap().store_deadline().map(|deadline| deadline.as_nanos())
    };
    assert_eq!(deadline("domain: d\nstore_deadline: 20ms\n"), Some(20_000_000));
    assert_eq!(deadline("domain: d\n"), None);
}

#[test]
fn problems_of_all_files_are_told_at_once() {
    let files = [("one", "domian: d\n"), ("two", "["), ("three", "domain: d\nx: 1\n")];
    let codes = several(&files, true).unwrap_err();
    assert_eq!(codes, ["unknown_key", "no_domain", "yaml_syntax", "unknown_key"]);
}

#[test]
fn a_report_lists_so_many_problems_and_counts_the_rest() {
    let wrong = "  - {key: k, wrong: 1}\n".repeat(PROBLEMS_MAX);
    let report = try_compile(&format!("domain: d\ndescriptors:\n{wrong}")).unwrap_err();
    assert_eq!(report.problems().len(), PROBLEMS_MAX);
    // Each but the first is also a duplicate of the first.
    assert_eq!(report.omitted(), PROBLEMS_MAX - 1);
    assert!(report.to_string().ends_with("and 99 more\n"));
}

#[test]
fn a_report_serializes_for_tools() {
    let report =
        try_compile("domain: d\ndescriptors: [{key: k, rate_limit: {unit: dya}}]\n").unwrap_err();
    let json = serde_json::to_value(&report).unwrap();
    let unit = &json["problems"][1];
    assert_eq!(unit["code"], "unknown_unit");
    assert_eq!(unit["severity"], "error");
    assert_eq!((&unit["line"], &unit["column"]), (&2.into(), &43.into()));
    assert_eq!(unit["hint"], "did you mean `day`?");
    assert_eq!(unit["compat_message"], "invalid rate limit unit 'dya'");
    assert_eq!(json["problems"][0]["severity"], "warning");
}

#[test]
fn warnings_come_with_the_snapshot() {
    let snapshot = compiled("domain: d\nkey: x\n");
    let [warning] = snapshot.warnings() else {
        panic!("{:?}", snapshot.warnings());
    };
    assert_eq!((warning.severity, warning.code), (Severity::Warning, "misplaced_key"));
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_fine() {
    let rules = format!("\u{feff}domain: d\r\ndescriptors:\r\n  - key: k\r\n    {LIMIT}\r\n");
    assert_eq!(found(&rules, &[("k", "v")]), "k [v]");
    let report = try_compile("\u{feff}domian: d\r\n").unwrap_err();
    let problem = &report.problems()[1];
    assert_eq!((problem.line, problem.column), (1, 1));
    assert_eq!(problem.snippet.text, "domian: d");
}

#[test]
fn columns_are_counted_in_characters() {
    let report = try_compile("domain: d\ndescriptors: [{key: \"äöü\", wrong: 1}]\n").unwrap_err();
    assert_eq!(report.problems()[0].column, 28);
}

#[test]
fn long_lines_are_shown_in_part() {
    let padding = "x".repeat(5_000);
    let report = try_compile(&format!("{{domain: {padding}, wrong: {padding}}}\n")).unwrap_err();
    let snippet = &report.problems()[0].snippet;
    assert!(snippet.text.chars().count() <= 120);
    let meant: String = snippet.text.chars().skip(snippet.indent).take(snippet.width).collect();
    assert_eq!(meant, "wrong");
}

#[test]
fn the_version_changes_with_the_text_and_with_nothing_else() {
    let version = |files: &[(&str, &str)]| several(files, true).unwrap().version();
    let (a, b) = ("domain: a\n", "domain: b\n");
    assert_eq!(version(&[("x", a)]), version(&[("y", a)]));
    assert_ne!(version(&[("x", a)]), version(&[("x", b)]));
    assert_ne!(version(&[("x", a), ("y", b)]), version(&[("x", b), ("y", a)]));
}

#[test]
fn a_file_beyond_the_maximum_is_refused_unread() {
    let report = try_compile(&"#".repeat(SOURCE_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(report.problems()[0].code, "too_large");
}

#[test]
fn a_metric_path_shows_values_as_upstream_does() {
    let path = |flags: &str, values: [&str; 3]| {
        let snapshot = compiled(&format!(
            "
domain: d
descriptors:
  - key: a
    value_to_metric: true
    descriptors:
      - key: b
        value: x*
        share_threshold: true
        descriptors:
          - key: c
            value: y*
            {flags}
            {LIMIT}
"
        ));
        let request = [("a", values[0]), ("b", values[1]), ("c", values[2])];
        let rule = find(&snapshot, &request).unwrap().rule;
        let mut path = String::new();
        rule.write_metric_path(&support::entries(&request), &mut path).unwrap();
        path
    };
    assert_eq!(path("", ["1", "x2", "y3"]), "a_1.b_x*.c_y*");
    assert_eq!(path("value_to_metric: true", ["1", "x2", "y3"]), "a_1.b_x*.c_y3");
    assert_eq!(path("detailed_metric: true", ["1", "x2", "y3"]), "a_1.b_x*.c_y3");
    assert_eq!(path("", ["", "x2", "y3"]), "a.b_x*.c_y*");
    assert_eq!(path("detailed_metric: true", ["", "x2", "y3"]), "a.b_x*.c_y3");
}

#[test]
fn a_detailed_metric_shows_an_empty_value_as_upstream_does() {
    let snapshot = compiled(&format!(
        "domain: d\ndescriptors:\n- key: a\n  descriptors:\n  - key: b\n    detailed_metric: true\n    {LIMIT}"
    ));
    let request = [("a", ""), ("b", "1")];
    let mut path = String::new();
    let rule = find(&snapshot, &request).unwrap().rule;
    rule.write_metric_path(&support::entries(&request), &mut path).unwrap();
    assert_eq!(path, "a_.b_1");
}

#[test]
fn examples_compile_without_warnings() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/rules");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let snapshot = compiled(&std::fs::read_to_string(&path).unwrap());
        assert!(snapshot.warnings().is_empty(), "{}", path.display());
        assert!(!snapshot.rules().is_empty(), "{}", path.display());
        names.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    names.sort();
    let expected =
        ["addresses.yaml", "calendar.yaml", "envoy-upstream.yaml", "plans.yaml", "quickstart.yaml"];
    assert_eq!(names, expected);
}

#[test]
fn a_tree_of_a_hundred_levels_loads() {
    let mut text = String::from("domain: d\n");
    for level in 0..100 {
        let indent = "  ".repeat(level);
        text += &format!("{indent}descriptors:\n{indent}- key: k\n");
    }
    text += &format!("{}rate_limit: {{unit: day, requests_per_unit: 1}}\n", "  ".repeat(100));
    assert_eq!(compiled(&text).limits().len(), 1);
}

#[test]
fn metadata_may_have_keys_that_are_numbers_and_binary_is_text() {
    let snapshot = compiled(
        "domain: d
descriptors:
- key: a
  value: !!binary aGVsbG8=
  metadata: {12: x, true: w, 1.5: z}
  rate_limit: {unit: day, requests_per_unit: 1}",
    );
    let rule = find(&snapshot, &[("a", "hello")]).unwrap().rule;
    let expected = serde_json::json!({"12": "x", "true": "w", "1.5": "z"});
    assert_eq!(rule.metadata(), Some(&expected));
    let bad = "domain: d\ndescriptors:\n- {key: a, value: !!binary '***'}";
    let report = compile(&[Source::new("bad.yaml", bad)], &Options::default()).unwrap_err();
    let message = report.problems()[0].compat_message.as_deref();
    let expected = "error loading config file: yaml: !!binary value contains invalid base64 data";
    assert_eq!(message, Some(expected));
}
