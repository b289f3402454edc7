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

#[test]
fn findings_of_a_running_server_are_reported_and_can_be_denied() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    serving.check("ada");
    let address = serving.address("debug");
    let report = |more: &[&str]| {
        tidegate(&[&["rules", "report", "--from", &address, "--format", "json"][..], more].concat())
    };
    let output = report(&[]);
    let page: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &page["ok"]), (Some(0), &true.into()), "{page}");
    // A day is needed for findings; a denied kind that is not found does not fail the command.
    assert_eq!(page["findings"], serde_json::json!([]));
    assert_eq!(report(&["--deny", "all"]).status.code(), Some(0));
    let evidence = serving.get("debug", "/api/evidence").json();
    assert_eq!(evidence["limits"][0]["limit"]["limit"], "calls");
    let away = tidegate(&["rules", "report", "--from", "127.0.0.1:1"]);
    assert_eq!(away.status.code(), Some(2));
    assert!(text(&away.stderr).contains("127.0.0.1:1"), "{away:?}");
    let both = tidegate(&["rules", "report", "--from", &address, "--history", "-"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn changes_survive_a_restart_and_their_switches_do_not() {
    let folder = Folder::with_rules(RULES);
    let file = folder.path("changes.jsonl");
    let setting = format!("debug.changes_file={}", file.display());
    let start = || Start::new(&folder).args(["--set", &setting, "--set", "shutdown.delay=0s"]);
    let mut serving = start().serving();
    let body = r#"{"limiter": "rate", "mode": "off", "reason": "before the restart"}"#;
    assert_eq!(serving.ask("debug", "PUT", "/switches/limiter", &[], body).status, 200);
    serving.signal("TERM");
    serving.ended();
    let cut_off = std::fs::read_to_string(&file).expect("written") + "{\"id\": 2, \"at";
    std::fs::write(&file, cut_off).expect("written");
    let mut serving = start().serving();
    serving.wait_for(|line| {
        line["message"].as_str().is_some_and(|text| text.contains("are no changes"))
    });
    assert_eq!(serving.get("debug", "/switches").json()["limiters"]["rate"], "enforce");
    assert_eq!(serving.ask("debug", "DELETE", "/switches/kill", &[], "").status, 200);
    let page = serving.get("debug", "/api/changes").json();
    let shown: Vec<_> = page["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| (change["id"].as_u64(), change["before_start"] == true, &change["reason"]))
        .collect();
    let null = serde_json::Value::Null;
    let reason = serde_json::json!("before the restart");
    assert_eq!(shown, [(Some(2), false, &null), (Some(1), true, &reason)]);
    let lines = std::fs::read_to_string(&file).expect("written");
    assert_eq!(lines.lines().count(), 3, "{lines}");
    serving.signal("TERM");
    serving.ended();
    let folder_setting = format!("debug.changes_file={}", folder.path(".").display());
    let refused = tidegate(&["serve", "--set", &folder_setting, "--set", "rules.required=false"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("debug.changes_file"), "{refused:?}");
}
