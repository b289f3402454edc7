//! `tidegate simulate traffic` and `tidegate rules report`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;

use serde_json::Value;
use support::{run, run_with};

const RULES: &str = "domain: web
descriptors:
- key: address
  limits:
  - {unit: minute, requests_per_unit: 2}
";

/// A folder with rules, and its path with a name in it.
fn folder() -> (tempfile::TempDir, impl Fn(&str) -> String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rules.yaml"), RULES).unwrap();
    let path = folder.path().to_owned();
    (folder, move |name: &str| path.join(name).to_string_lossy().into_owned())
}

fn log() -> String {
    let line = |second: u32| {
        format!(
            "192.0.2.1 - - [16/Jul/2026:12:00:{second:02} +0000] \"GET /orders HTTP/1.1\" 200 9 \"-\" \"-\"\n"
        )
    };
    (0..5).map(line).collect()
}

#[test]
fn a_condition_that_holds_fails_the_command() {
    let (_folder, path) = folder();
    let rules = path("rules.yaml");
    let words = [
        "simulate",
        "traffic",
        "--log",
        "-",
        "--rules",
        &rules,
        "--describe",
        "address=$remote_addr",
    ];
    let ran = run_with(&words, &log());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("3 (60.00 %)"), "{}", ran.stdout);
    let denied: Vec<&str> = words.iter().copied().chain(["--fail-if", "refused > 50%"]).collect();
    let ran = run_with(&denied, &log());
    assert_eq!((ran.code, ran.stderr.as_str()), (1, "failed: refused > 50%: it is 60.000 %\n"));
}

#[test]
fn a_report_is_written_in_all_formats() {
    let (_folder, path) = folder();
    let (rules, out) = (path("rules.yaml"), path("report"));
    let words = [
        "simulate",
        "traffic",
        "--log",
        "-",
        "--rules",
        &rules,
        "--against",
        &rules,
        "--describe",
        "address=$remote_addr",
        "--out",
        &out,
    ];
    assert_eq!(run_with(&words, &log()).code, 0);
    for file in ["report.html", "report.md", "report.json", "evidence.json", "refused.svg"] {
        assert!(
            fs::read_to_string(path("report").clone() + "/" + file).unwrap().len() > 20,
            "{file}"
        );
    }
    let evidence = path("report") + "/evidence.json";
    let ran = run(&["rules", "report", "--history", &evidence, "--format", "json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &report["ok"]), (0, &true.into()));
}

#[test]
fn requests_are_described_as_the_gateway_would() {
    let (_folder, path) = folder();
    let document = "routes:
- {name: all, upstreams: api, descriptors: [{entries: [{key: address, from: address}]}]}
upstreams:
- {name: api, hosts: ['http://127.0.0.1:9']}
domain: web
";
    fs::write(path("gateway.yaml"), document).unwrap();
    let (rules, gateway) = (path("rules.yaml"), path("gateway.yaml"));
    let words = [
        "simulate",
        "traffic",
        "--log",
        "-",
        "--rules",
        &rules,
        "--gateway",
        &gateway,
        "--print",
        "json",
    ];
    let ran = run_with(&words, &log());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["new"]["refused"], 3, "{}", ran.stdout);
}

#[test]
fn unusable_input_is_explained() {
    let (_folder, path) = folder();
    let rules = path("rules.yaml");
    let cases: [(&[&str], &str); 5] = [
        (&[], "there is no log to play"),
        (&["--log", "nowhere.log"], "`nowhere.log` cannot be read"),
        (&["--log", "-"], "is an access log"),
        (&["--log", "-", "--format", "apache"], "there is no log format `apache`"),
        (&["--log", "-", "--fail-if", "refusd > 1"], "`refusd` is not known"),
    ];
    for (words, message) in cases {
        let words: Vec<&str> = ["simulate", "traffic", "--rules", &rules]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        let ran = run_with(&words, &log());
        assert_eq!(ran.code, 2, "{words:?}");
        assert!(ran.stderr.contains(message), "{words:?}: {}", ran.stderr);
    }
    let ran = run(&["rules", "report", "--history", "broken.yaml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("is no evidence"), "{}", ran.stderr);
}
