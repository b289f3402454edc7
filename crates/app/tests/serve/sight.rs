//! Commands that look at a running server, and history over a restart.

use std::process::{Command, Output};

use crate::process::{Folder, RULES, Start, binary};

fn tidegate(args: &[&str]) -> Output {
    Command::new(binary()).env_clear().args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn top_prints_rates_limits_and_callers_of_every_server_that_answers() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    for _ in 0..5 {
        serving.check("ada");
    }
    let address = serving.address("debug");
    serving.until(|_| {
        let printed = text(&tidegate(&["top", "--once", &address]).stdout);
        printed.contains("shop user #calls").then_some(())
    });
    let output = tidegate(&["top", "--once", &address, "127.0.0.1:1"]);
    let printed = text(&output.stdout);
    for part in ["admitted/s", "user=\"ada\"", "0 of 2", "127.0.0.1:1"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert_eq!(output.status.code(), Some(1), "one server does not answer");
    assert_eq!(tidegate(&["top", "--once", "https://x"]).status.code(), Some(2));
}

const GATEWAY: &str = "
domain: shop
routes:
- name: all
  upstreams: api
  descriptors:
  - entries: [{key: user, from: header, name: X-User}]
upstreams:
- name: api
  hosts: [http://127.0.0.1:9]
";

#[test]
fn a_request_is_explained_by_files_and_by_a_server() {
    let folder = Folder::with_rules(RULES);
    folder.write("gateway.yaml", GATEWAY);
    let (rules, gateway) = (folder.path("rules.yaml"), folder.path("gateway.yaml"));
    let (rules, gateway) = (rules.to_str().unwrap_or(""), gateway.to_str().unwrap_or(""));
    let request = ["--request", "GET /orders", "-H", "X-User: ada"];
    let files = [&["explain", "--gateway", gateway, "--rules", rules][..], &request].concat();
    let printed = text(&tidegate(&files).stdout);
    for part in ["would pass", "route      all", "user=ada", "2 of 2", "passes"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let start = Start::new(&folder).args(["--gateway", gateway]);
    let mut serving = start.args(["--gateway-listen", "127.0.0.1:0"]).serving();
    for _ in 0..3 {
        serving.check("ada");
    }
    let address = serving.address("debug");
    let server = [&["explain", "--server", &address][..], &request].concat();
    let printed = text(&tidegate(&server).stdout);
    for part in ["would be refused by user (calls)", "0 of 2", "refuses"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let output = tidegate(&["explain", "--server", "127.0.0.1:1", "--request", "/"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("127.0.0.1:1"), "{output:?}");
}

#[test]
fn days_survive_a_restart_and_a_damaged_file_is_moved_aside() {
    let folder = Folder::with_rules(RULES);
    let file = folder.path("history");
    let setting = format!("debug.history.file={}", file.display());
    let start = || Start::new(&folder).args(["--set", &setting, "--set", "shutdown.delay=0s"]);
    let refused_today = |page: serde_json::Value| page["limits"][0]["today"]["refused"].as_u64();
    let mut serving = start().serving();
    for _ in 0..5 {
        serving.check("ada");
    }
    serving.signal("TERM");
    serving.ended();
    let mut serving = start().serving();
    serving.until(|serving| {
        let page = serving.get("debug", "/api/limits").json();
        (refused_today(page) == Some(3)).then_some(())
    });
    serving.signal("TERM");
    serving.ended();
    std::fs::write(&file, "something else").expect("written");
    let mut serving = start().serving();
    serving.wait_for(|line| line["message"] == "the history cannot be used; it begins again");
    assert!(folder.path("history.unusable").exists());
    assert_eq!(serving.get("debug", "/api/limits").status, 200);
}
