//! `tidegate config check` on documents that are well formed and limit no request together.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;

use support::{Ran, tidegate};

const RULES: &str = "\
domain: api
plans:
  free: {limits: [{unit: hour, requests_per_unit: 5}]}
  pro: {limits: [{unit: hour, requests_per_unit: 50}]}
descriptors:
- key: customer
  rate_limit: {unit: hour, requests_per_unit: 5}
- key: plan
  plan: {from: value}
";

/// The SHA-256 of `letmein`.
const HASH: &str = "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032";

const CUSTOMER: &str = "{key: customer, from: header, name: X-Customer, default: nobody}";

/// A gateway with one route for everything, whose only descriptor has these entries.
fn gateway(entries: &str, rest: &str) -> String {
    format!(
        "domain: api\nupstreams:\n- {{name: app, hosts: ['http://127.0.0.1:9000']}}\nroutes:\n\
         - {{name: all, path: /, upstreams: app, descriptors: [{{entries: [{entries}]}}]}}\n{rest}"
    )
}

/// Checks a configuration beside these files.
fn check(gateway: &str, config: &str, words: &[&str]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::create_dir(path.join("rules")).unwrap();
    fs::write(path.join("rules/api.yaml"), RULES).unwrap();
    fs::write(path.join("gateway.yaml"), gateway).unwrap();
    fs::write(path.join("keys.txt"), format!("{HASH} acme fre\n")).unwrap();
    fs::write(path.join("tidegate.yaml"), format!("gateway: {{file: gateway.yaml}}\n{config}"))
        .unwrap();
    let mut command = tidegate(&[&["config", "check"], words].concat());
    command.env_clear().current_dir(path);
    command.output().unwrap().into()
}

/// The output of a check that finds one warning of this kind and passes.
fn warned(ran: &Ran, code: &str) -> String {
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert_eq!(ran.stdout.matches("warning[").count(), 1, "{}", ran.stdout);
    assert!(ran.stdout.contains(&format!("warning[{code}]")), "{}", ran.stdout);
    ran.stdout.clone()
}

#[test]
fn an_entry_that_leaves_requests_without_a_value_unlimited_is_found() {
    let entry = |rest: &str| format!("{{key: customer, from: header, name: X-Customer{rest}}}");
    let text = warned(&check(&gateway(&entry(""), ""), "", &[]), "unlimited_when_missing");
    assert!(text.contains("gateway.yaml:5:") && text.contains("`customer`"), "{text}");
    for rest in [", default: nobody", ", when_missing: skip", ", when_missing: reject"] {
        let ran = check(&gateway(&entry(rest), ""), "", &[]);
        assert!(!ran.stdout.contains("warning["), "{}", ran.stdout);
    }
    // Another descriptor of the route limits such requests.
    let document = gateway(&entry(""), "")
        .replace("descriptors: [", "descriptors: [{entries: [{key: customer, from: address}]}, ");
    let ran = check(&document, "", &[]);
    assert!(!ran.stdout.contains("warning["), "{}", ran.stdout);
}

#[test]
fn documents_that_fit_are_right_and_summed_up() {
    let ran = check(&gateway(CUSTOMER, ""), "", &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let expected =
        "the configuration is right\nrules: 3 in 1 domain; gateway: 1 route, 1 limited\n";
    assert_eq!(ran.stdout, expected);
}

#[test]
fn a_descriptor_key_that_no_rule_has_is_a_warning() {
    let entries = "{key: custmer, from: header, name: X-Customer}";
    let text = warned(&check(&gateway(entries, ""), "", &[]), "unmatched_descriptor");
    assert!(text.contains("did you mean `customer`?"), "{text}");
    assert!(text.contains("gateway.yaml:5:"), "{text}");
    assert!(text.ends_with("gateway: 1 route, 0 limited\n"), "{text}");
}

#[test]
fn a_fixed_value_that_no_rule_has_is_a_warning() {
    let rules = "domain: api\ndescriptors:\n- {key: kind, value: web, rate_limit: {unit: hour, requests_per_unit: 5}}\n";
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    let gateway = gateway("{key: kind, from: fixed, value: wab}", "");
    fs::write(directory.path().join("gateway.yaml"), gateway).unwrap();
    let mut command =
        tidegate(&["config", "check", "--rules", "rules.yaml", "--gateway", "gateway.yaml"]);
    let ran: Ran = command.env_clear().current_dir(directory.path()).output().unwrap().into();
    warned(&ran, "unmatched_descriptor");
}

#[test]
fn a_domain_that_no_rule_has_is_a_warning() {
    let document = gateway(CUSTOMER, "").replace("domain: api", "domain: apii");
    let text = warned(&check(&document, "", &[]), "unknown_domain");
    assert!(text.contains("did you mean `api`?"), "{text}");
}

#[test]
fn a_claim_without_tokens_is_a_warning() {
    let entries = "{key: customer, from: claim, name: sub}";
    warned(&check(&gateway(entries, ""), "", &[]), "claim_without_jwt");
}

#[test]
fn a_plan_without_api_keys_is_a_warning() {
    warned(&check(&gateway("{key: plan, from: plan}", ""), "", &[]), "plan_without_api_keys");
}

#[test]
fn a_plan_of_a_key_that_no_rule_has_is_a_warning() {
    let keys = "api_keys: {file: keys.txt}\n";
    let entries = "{key: plan, from: plan, when_missing: skip}";
    let text = warned(&check(&gateway(entries, keys), "", &[]), "unknown_plan");
    assert!(text.contains("did you mean `free`?"), "{text}");
}

#[test]
fn a_route_behind_a_catch_all_is_a_warning() {
    let later = format!(
        "- {{name: me, path: /me, upstreams: app, descriptors: [{{entries: [{CUSTOMER}]}}]}}\n"
    );
    let text = warned(&check(&gateway(CUSTOMER, &later), "", &[]), "unreachable_route");
    assert!(text.contains("put `me` before `all`"), "{text}");
}

#[test]
fn categories_without_a_capacity_are_a_warning() {
    let categories = "categories: {rules: [{category: test, routes: [all]}]}\n";
    let document = gateway(CUSTOMER, categories);
    warned(&check(&document, "", &[]), "categories_without_capacity");
    let ran = check(&document, "overload: {capacity: 8}\n", &[]);
    assert!(!ran.stdout.contains("warning"), "{}", ran.stdout);
}

#[test]
fn switches_without_a_capacity_are_a_warning() {
    let ran = check(&gateway(CUSTOMER, ""), "switches: {gate: off}\n", &[]);
    let warning = "warning: `switches.gate` has no effect: `overload.capacity` is not set";
    assert!(ran.stdout.contains(warning), "{}", ran.stdout);
}

#[test]
fn rules_with_errors_and_rules_that_are_missing_fail_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let run = |rules: &str| -> Ran {
        let mut command = tidegate(&["config", "check", "--rules", rules]);
        command.env_clear().current_dir(directory.path()).output().unwrap().into()
    };
    assert_eq!(run("nonexist.yaml").code, 2);
    fs::write(directory.path().join("broken.yaml"), "domain: api\ndescriptors: [{kye: user}]\n")
        .unwrap();
    let ran = run("broken.yaml");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("did you mean `key`?"), "{}", ran.stdout);
}

#[test]
fn warnings_fail_the_check_when_they_are_denied() {
    let entries = "{key: custmer, from: header, name: X-Customer}";
    assert_eq!(check(&gateway(entries, ""), "", &["--deny-warnings"]).code, 1);
    assert_eq!(check(&gateway(CUSTOMER, ""), "", &["--deny-warnings"]).code, 0);
    let switches = "switches: {gate: off}\n";
    assert_eq!(check(&gateway(CUSTOMER, ""), switches, &["--deny-warnings"]).code, 1);
}

#[test]
fn the_machine_is_judged_on_request_only() {
    let words = ["--set", "connections.backlog=10000000"];
    let quiet = check(&gateway(CUSTOMER, ""), "", &words);
    assert!(!quiet.stdout.contains("somaxconn"), "{}", quiet.stdout);
    let judged = check(&gateway(CUSTOMER, ""), "", &[&words[..], &["--host"]].concat());
    let warning = "and `connections.backlog` needs 10000000: raise it";
    assert!(judged.stdout.contains(warning), "{}", judged.stdout);
    assert_eq!(judged.code, 0, "warnings do not fail");
    let denied =
        check(&gateway(CUSTOMER, ""), "", &[&words[..], &["--host", "--deny-warnings"]].concat());
    assert_eq!(denied.code, 1);
}

#[test]
fn the_example_for_floods_is_right_and_can_be_exported() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ran =
        |words: &[&str]| -> Ran { tidegate(words).current_dir(&root).output().unwrap().into() };
    let checked = ran(&["config", "check", "examples/floods/tidegate.yaml"]);
    assert_eq!(checked.code, 0, "{}", checked.stdout + &checked.stderr);
    let words =
        ["rules", "export", "nftables", "--port", "8080", "--rules", "examples/floods/rules.yaml"];
    let exported = ran(&words);
    for part in ["limit rate over 20/second burst 100 packets", "ct count over 64", "jump overflow"]
    {
        assert!(exported.stdout.contains(part), "{part}: {}", exported.stdout);
    }
    assert!(!exported.stdout.contains("Not exported"), "{}", exported.stdout);
}
