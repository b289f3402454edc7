//! The decision log of a real service, and its replay.

use std::process::Command;

use serde_json::Value;

use crate::process::{Folder, RULES, Start, binary};

fn lines(folder: &Folder) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.path("decisions.jsonl")).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect()
}

/// Serves some checks, with these settings, until it has stopped.
fn serve(folder: &Folder, settings: &[&str]) {
    let mut words = vec!["--set", "decisions.to=decisions.jsonl"];
    words.extend(settings.iter().flat_map(|setting| ["--set", *setting]));
    let mut serving = Start::new(folder).args(words).serving();
    for user in ["ada", "bob", "ada", "ada", "bob", "bob", "eve"] {
        serving.check(user);
    }
    serving.signal("TERM");
    assert_eq!(serving.ended().0.code(), Some(0));
}

#[test]
fn every_decision_has_its_line_and_replays_with_the_same_verdict() {
    let folder = Folder::with_rules(RULES);
    serve(&folder, &[]);
    let lines = lines(&folder);
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[3]["verdict"], "refused");
    assert_eq!(lines[3]["refused_by"][0]["limit"], "calls");
    assert_eq!(lines[3]["descriptors"][0]["entries"][0][1], "ada");
    let log = folder.path("decisions.jsonl");
    let rules = folder.path("rules.yaml");
    let ran = Command::new(binary())
        .args(["simulate", "traffic", "--fail-if", "different_verdicts > 0", "--print", "json"])
        .arg("--log")
        .arg(log)
        .arg("--rules")
        .arg(rules)
        .output()
        .expect("it runs");
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    let report: Value = serde_json::from_slice(&ran.stdout).expect("a report");
    assert_eq!(report["verdicts"]["compared"], 7);
    assert_eq!(
        (&report["verdicts"]["different"], &report["new"]["refused"]),
        (&0.into(), &2.into())
    );
}

#[test]
fn values_of_callers_can_be_hashed() {
    let folder = Folder::with_rules(RULES);
    serve(&folder, &["decisions.values=hashed"]);
    let lines = lines(&folder);
    assert_eq!(lines[0]["hashed"], true);
    let value = lines[0]["descriptors"][0]["entries"][0][1].as_str().expect("a value");
    assert_eq!((value.len(), value.contains("ada")), (16, false));
    assert_eq!(lines[0]["descriptors"], lines[2]["descriptors"]);
}
