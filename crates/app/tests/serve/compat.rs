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
