//! `tidegate rules explain`.

mod support;

use serde_json::Value;
use support::{printed, run, run_with};

fn explain(words: &[&str]) -> String {
    printed(&[["rules", "explain", "--domain", "shop"].as_slice(), words].concat())
}

fn explain_json(words: &[&str]) -> Value {
    let said = explain(&[["--format", "json"].as_slice(), words].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// That the text has these parts, in this order.
#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => panic!("not said, or not in this order: {part}\n{text}"),
        }
    }
}

#[test]
fn an_exact_value_is_said_to_be_one() {
    let parts = [
        "user=ada path=/login in domain shop\n",
        "1. user=ada\n     exact value     no match\n     bare key        matches user\n",
        "2. path=/login\n     exact value     matches path_/login\n",
        "rule user.path_/login applies: 1 limit\n",
        "counter   one for user=ada\n",
        "3 in any minute (sliding_log)\n",
        "mode    enforce: requests over the limit are refused\n",
    ];
    assert_says(&explain(&["user=ada", "path=/login"]), &parts);
}

#[test]
fn a_pattern_is_said_to_be_one_and_counted_by_the_whole_value() {
    let parts = [
        "patterns        matches path_/reports/*\n",
        "counter   one for user=ada path=/reports/7\n",
        "2 at once (concurrency)\n",
        "expires after 30s\n",
    ];
    assert_says(&explain(&["user=ada", "path=/reports/7"]), &parts);
}

#[test]
fn every_limit_of_a_rule_is_put_in_words_with_its_mode() {
    let parts = [
        "bare key        matches user\n",
        "rule user applies: 2 limits\n",
        "5 per second, up to 10 at once (token_bucket, named rate)\n",
        "may be exceeded by 20% for 30s\n",
        "mode    enforce: requests over the limit are refused\n",
        "store   exact; while it is not available: local\n",
        "1000 per day (fixed_window, named daily)\n",
        "mode    shadow: counted and reported, never refused\n",
    ];
    assert_says(&explain(&["user=ada"]), &parts);
}

#[test]
fn an_address_range_is_said_to_be_one_and_its_addresses_share_a_counter() {
    let parts = [
        "address ranges  matches ip_10.0.0.0/8,192.168.0.0/16\n",
        "counter   one for all requests that meet this rule\n",
        "600 per minute (fixed_window)\n",
    ];
    assert_says(&explain(&["ip=192.168.7.7"]), &parts);
    let other = explain(&["ip=2001:db8::7"]);
    let parts = [
        "address ranges  no match\n",
        "bare key        matches ip\n",
        "one for ip=2001:db8::/64\n",
    ];
    assert_says(&other, &parts);
}

#[test]
fn the_plan_is_named_with_its_limits() {
    let parts = [
        "rule user.plan applies with plan pro: 2 limits\n",
        "100 per minute (fixed_window, named calls)\n",
        "50000 per calendar month in Europe/Berlin (fixed_window)\n",
    ];
    assert_says(&explain(&["user=ada", "plan=pro"]), &parts);
}

#[test]
fn a_value_that_names_no_plan_is_told_the_plans() {
    let near = ["no limit: the last value names no plan", "hint: did you mean the plan `pro`?\n"];
    assert_says(&explain(&["user=ada", "plan=proo"]), &near);
    assert_says(&explain(&["user=ada", "plan=enterprise"]), &["hint: the plans are: free, pro\n"]);
}

#[test]
fn without_a_match_the_level_is_named_where_matching_stopped_and_what_was_there() {
    let parts = [
        "2. path=/logon\n     exact value     no match\n     patterns        no match\n",
        "no limit: ",
        "hint: did you mean `path=/login`?\n",
    ];
    assert_says(&explain(&["user=ada", "path=/logon"]), &parts);
    let parts = ["hint: the values of `path` here: /login, /reports/*\n"];
    assert_says(&explain(&["user=ada", "path=/x"]), &parts);
    let parts =
        ["no such key here; there are: ip, tenant, user\n", "hint: did you mean `user=ada`?\n"];
    assert_says(&explain(&["usr=ada"]), &parts);
    let parts = [
        "nothing is below the entry before\n",
        "hint: leave out `path`: nothing is below user_admin\n",
    ];
    assert_says(&explain(&["user=admin", "path=/login"]), &parts);
}

#[test]
fn a_descriptor_without_a_limit_leads_to_the_rules_further_down() {
    let parts = [
        "no limit: the last entry leads to tenant, which has none\n",
        "hint: add the entries of a rule further down: tenant.method_POST\n",
    ];
    assert_says(&explain(&["tenant=acme"]), &parts);
}

#[test]
fn several_descriptors_are_explained_together_with_what_replaces_what() {
    let apart = explain(&["user=admin", "--", "ip=192.0.2.1"]);
    let parts = [
        "rule user_admin applies: unlimited\n",
        "named address)\n",
        "does not apply: another rule of this request replaces it\n",
        "All limits above apply to the request together; a refusal charges none of them.\n",
    ];
    assert_says(&apart, &parts);
    let whole = explain(&["--descriptor", "user=admin", "--descriptor", "ip=192.0.2.1"]);
    assert_eq!(apart, whole);
    let deeper = explain(&["--descriptor", "user=ada,path=/login"]);
    assert_eq!(deeper, explain(&["user=ada", "path=/login"]));
}

#[test]
fn json_says_the_same_as_the_text() {
    let document = explain_json(&["user=ada", "path=/login"]);
    assert_eq!(document["domain"], "shop");
    assert_eq!(document["charge"], "all_or_nothing");
    let descriptor = &document["descriptors"][0];
    assert_eq!(descriptor["entries"][1]["value"], "/login");
    assert_eq!(descriptor["levels"][0]["tried"][1]["way"], "bare_key");
    assert_eq!(descriptor["levels"][0]["counted_by"], "ada");
    assert_eq!(descriptor["ending"]["rule"]["path"], "user.path_/login");
    let limit = &descriptor["rule"]["limits"][0];
    assert_eq!(limit["terms"], "3 in any minute");
    assert_eq!(limit["algorithm"], "sliding_log");
    assert_eq!((limit["amount"].as_u64(), limit["period_ms"].as_u64()), (Some(3), Some(60_000)));
    assert_eq!(limit["mode"], "enforce");
    let nothing = explain_json(&["usr=ada"]);
    assert_eq!(nothing["descriptors"][0]["ending"], "no_match");
    assert_eq!(nothing["descriptors"][0]["rule"], Value::Null);
    assert_eq!(nothing["descriptors"][0]["hint"], "did you mean `user=ada`?");
}

#[test]
fn the_domain_need_not_be_said_when_there_is_only_one() {
    let said = printed(&["rules", "explain", "--rules", "rules/api.yaml", "client=x"]);
    assert_says(&said, &["client=x in domain api\n", "metadata  {\"team\":\"edge\"}\n"]);
    let ran = run(&["rules", "explain", "client=x"]);
    assert_eq!(ran.code, 2);
    let expected = "error: the rules have several domains\n\
                    help: choose one with `--domain`; the rules have: api, shop\n";
    assert_eq!(ran.stderr, expected);
}

#[test]
fn rules_can_come_from_several_paths_and_from_standard_input() {
    let rules = ["--rules", "rules/api.yaml", "--rules", "-"];
    let words = [["rules", "explain"].as_slice(), &rules, &["--domain", "d", "k=1"]].concat();
    let ran =
        run_with(&words, "{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true}}]}");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_says(
        &ran.stdout,
        &["rule k applies: unlimited\n", "none: unlimited, and not counted\n"],
    );
}

#[test]
fn a_question_that_makes_no_sense_is_told_what_would() {
    for (words, message, help) in [
        (vec!["user"], "`user` is not an entry", "write entries as KEY=VALUE, such as `user=ada`"),
        (vec![], "a descriptor has no entries", "give at least one, such as `user=ada`"),
        (vec!["a=1", "--", "--"], "a descriptor has no entries", "give at least one"),
        (vec!["--domain", "shp", "a=1"], "no domain is called `shp`", "did you mean `shop`?"),
    ] {
        let words = [["rules", "explain"].as_slice(), &words].concat();
        let ran = run(&words);
        assert_eq!(ran.code, 2, "{ran:?}");
        let expected = format!("error: {message}\nhelp: {help}");
        assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
    }
}

#[test]
fn rules_with_problems_explain_nothing_but_themselves() {
    let ran = run(&["rules", "explain", "--rules", "broken.yaml", "user=ada"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert_says(&ran.stderr, &["error[unknown_unit]", "error: the rules have 3 problems\nhelp: "]);
}
