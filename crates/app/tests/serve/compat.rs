//! As a drop-in for envoyproxy/ratelimit: its variables, its layout, its ways.

use std::os::unix::fs::symlink;

use crate::process::{Folder, RULES, Start, write_below};

/// A runtime directory with rules, as upstream is deployed.
fn runtime(folder: &Folder, version: &str, rules: &str) {
    let path = folder.path(version).join("ratelimit/config/shop.yaml");
    write_below(&path, rules);
}

fn start(folder: &Folder) -> Start<'_> {
    Start::bare(folder)
        .args(["--compat"])
        .env("RUNTIME_ROOT", folder.path("current"))
        .env("RUNTIME_SUBDIRECTORY", "ratelimit")
        .env("LOG_LEVEL", "info")
}

#[test]
fn a_swapped_runtime_root_brings_new_rules() {
    let folder = Folder::with_rules(RULES);
    runtime(&folder, "v1", RULES);
    runtime(&folder, "v2", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 4"));
    symlink(folder.path("v1"), folder.path("current")).expect("a link");
    let mut serving = start(&folder).serving();
    assert_eq!(serving.check("ada").json()["decisions"][0]["quota"], 2);
    symlink(folder.path("v2"), folder.path("next")).expect("a link");
    std::fs::rename(folder.path("next"), folder.path("current")).expect("swapped");
    serving
        .until(|serving| (serving.check("bob").json()["decisions"][0]["quota"] == 4).then_some(()));
}

#[test]
fn refused_hits_count_as_upstream_counts_them() {
    let folder = Folder::with_rules(RULES);
    runtime(&folder, "v1", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 5"));
    symlink(folder.path("v1"), folder.path("current")).expect("a link");
    let mut serving = start(&folder).serving();
    let mut hits = |addend: u32| {
        let entries = r#"{"entries":[{"key":"user","value":"ada"}]}"#;
        let body =
            format!(r#"{{"domain":"shop","descriptors":[{entries}],"hitsAddend":{addend}}}"#);
        serving.ask("http", "POST", "/json", &[], &body).status
    };
    assert_eq!(hits(4), 200);
    assert_eq!(hits(3), 429);
    // Seven hits were counted: not even one more fits.
    assert_eq!(hits(1), 429);
}

#[test]
fn statistics_have_the_names_of_upstream() {
    let folder = Folder::with_rules(RULES);
    runtime(&folder, "v1", RULES);
    symlink(folder.path("v1"), folder.path("current")).expect("a link");
    let mut serving = start(&folder).serving();
    serving.check("ada");
    let stats = serving.get("debug", "/stats").body;
    let hits = "ratelimit.service.rate_limit.shop.user.total_hits: 1";
    assert!(stats.lines().any(|line| line == hits), "{stats}");
}

#[test]
fn variables_without_an_effect_are_named_at_the_start() {
    let folder = Folder::with_rules(RULES);
    runtime(&folder, "v1", RULES);
    symlink(folder.path("v1"), folder.path("current")).expect("a link");
    let mut serving = start(&folder).env("REDIS_POOL_SIZE", "3").serving();
    serving.wait_for(|line| {
        line["message"].as_str().is_some_and(|text| text.contains("REDIS_POOL_SIZE"))
    });
}

#[test]
fn a_store_that_is_not_supported_stops_the_start_and_says_what_to_do() {
    let folder = Folder::with_rules(RULES);
    let (status, told) =
        Start::new(&folder).args(["--compat"]).env("BACKEND_TYPE", "memcache").failing();
    assert_eq!(status.code(), Some(1));
    assert!(told.contains("counters in Memcached are not supported"), "{told}");
    assert!(told.contains("set BACKEND_TYPE=redis and REDIS_URL"), "{told}");
}

#[test]
fn a_bad_variable_stops_the_start_and_is_named() {
    let folder = Folder::with_rules(RULES);
    let (status, output) =
        Start::new(&folder).args(["--compat"]).env("GRPC_PORT", "many").failing();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains("GRPC_PORT"), "{output}");
}

fn has_message(text: &'static str) -> impl Fn(&serde_json::Value) -> bool {
    move |line| line["message"].as_str().is_some_and(|message| message.contains(text))
}

#[test]
fn a_broken_rule_file_is_logged_in_the_words_of_upstream() {
    let folder = Folder::with_rules(RULES);
    runtime(&folder, "current", &RULES.replace("rate_limit:", "ratelimit:"));
    let mut serving = start(&folder).serving();
    let line = serving.wait_for(has_message("Error loading new configuration: "));
    assert_eq!(line["level"], "ERROR");
    let expected = "Error loading new configuration: config.shop.yaml: \
                    config error, unknown key 'ratelimit'";
    assert_eq!(line["message"], expected);
}

#[test]
fn doors_and_loads_are_logged_in_the_words_of_upstream() {
    let folder = Folder::with_rules(RULES);
    runtime(&folder, "current", RULES);
    let mut serving = start(&folder).serving();
    serving.address("debug");
    serving.signal("TERM");
    for text in [
        "Successfully loaded new configuration",
        "Successfully loaded the initial ratelimit configs",
        "Listening for gRPC on '127.0.0.1:",
        "Listening for HTTP on '127.0.0.1:",
        "Listening for debug on '127.0.0.1:",
        "Ratelimit server received terminated, shutting down gracefully",
    ] {
        serving.wait_for(has_message(text));
    }
}

#[test]
fn a_missing_runtime_root_holds_no_rules_and_a_directory_that_cannot_be_watched_stops_the_start() {
    let folder = Folder::with_rules(RULES);
    let mut serving = start(&folder).serving();
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#;
    assert_eq!(serving.ask("http", "POST", "/json", &[], body).status, 200);
    let missing = folder.path("nowhere/current");
    let (status, told) = start(&folder).env("RUNTIME_ROOT", &missing).failing();
    assert_eq!(status.code(), Some(2));
    let parent = folder.path("nowhere");
    let expected = format!("unable to watch file ({}): no such", parent.display());
    assert!(told.contains(&expected), "{told}");
    let (_, told) = start(&folder).env("RUNTIME_WATCH_ROOT", "false").failing();
    let directory = folder.path("current/ratelimit/config");
    let expected = format!("unable to watch file ({}): no such", directory.display());
    assert!(told.contains(&expected), "{told}");
}

#[test]
fn a_json_body_of_two_mebibytes_with_two_thousand_descriptors_is_answered() {
    let folder = Folder::with_rules(RULES);
    runtime(&folder, "current", RULES);
    let mut serving = start(&folder).serving();
    let value = "x".repeat(1_000);
    let descriptor = format!(r#"{{"entries":[{{"key":"user","value":"{value}"}}]}}"#);
    let descriptors = vec![descriptor; 2_000].join(",");
    let body = format!(r#"{{"domain":"shop","descriptors":[{descriptors}]}}"#);
    assert!(body.len() > 2_000_000);
    let answer = serving.ask("http", "POST", "/json", &[], &body);
    assert_eq!(answer.status, 429, "two are allowed");
    assert_eq!(answer.json()["statuses"].as_array().map(Vec::len), Some(2_000));
}

#[test]
fn limits_are_listed_as_upstream_lists_them() {
    let folder = Folder::with_rules(RULES);
    let rules = "domain: shop
descriptors:
- {key: user, rate_limit: {unit: day, requests_per_unit: 2, name: daily}}
- {key: plan, value: gold, shadow_mode: true, rate_limit: {unlimited: true, requests_per_unit: 7}}
";
    runtime(&folder, "current", rules);
    let mut serving = start(&folder).serving();
    let expected =
        "shop.plan_gold: unit=UNKNOWN requests_per_unit=7, shadow_mode: true, quota_mode: false
shop.user: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false
";
    assert_eq!(serving.get("debug", "/rlconfig").body, expected);
}

#[test]
fn overrides_are_counted_under_the_names_of_upstream() {
    let folder = Folder::with_rules(RULES);
    runtime(&folder, "current", RULES);
    let mut serving = start(&folder).serving();
    let entries = r#"[{"key":"user","value":"ada"},{"key":"path","value":""}]"#;
    let limit = r#"{"requests_per_unit":1,"unit":"DAY"}"#;
    let body =
        format!(r#"{{"domain":"shop","descriptors":[{{"entries":{entries},"limit":{limit}}}]}}"#);
    for status in [200, 429] {
        assert_eq!(serving.ask("http", "POST", "/json", &[], &body).status, status);
    }
    let stats = serving.get("debug", "/stats").body;
    for (name, count) in [("total_hits", 2), ("over_limit", 1), ("within_limit", 1)] {
        let line = format!("ratelimit.service.rate_limit.shop.user_ada.path.{name}: {count}");
        assert!(stats.lines().any(|other| other == line), "{line}: {stats}");
    }
}
