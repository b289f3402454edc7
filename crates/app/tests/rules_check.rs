//! `tidegate rules check`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;

use serde_json::Value;
use support::{Ran, printed, run, run_with, tidegate};

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn rules_that_are_right_are_counted() {
    let said = printed(&["rules", "check", "rules/shop.yaml"]);
    assert_eq!(said, "1 file ok: 1 domain, 9 rules, 10 limits\n");
}

#[test]
fn a_directory_is_checked_with_all_its_files() {
    let said = printed(&["rules", "check", "rules"]);
    assert_eq!(said, "2 files ok: 2 domains, 10 rules, 11 limits\n");
}

#[test]
fn rules_are_looked_for_where_the_environment_says_or_else_in_the_directory_rules() {
    assert!(printed(&["rules", "check"]).starts_with("2 files ok"));
    let mut command = tidegate(&["rules", "check"]);
    let ran: Ran = command.env("TIDEGATE_RULES", "rules/api.yaml").output().unwrap().into();
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 file ok: 1 domain, 1 rule, 1 limit\n"));
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = tidegate(&["rules", "check"]);
    let ran: Ran = command.current_dir(elsewhere.path()).output().unwrap().into();
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error: there are no rules at `rules`\nhelp: give a path"));
}

#[test]
fn every_problem_is_shown_with_its_place_its_line_and_what_would_be_right() {
    let ran = run(&["rules", "check", "rules", "broken.yaml"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    for part in [
        "error[unknown_unit]: `minuet` is not a unit of time\n --> broken.yaml:5:13\n",
        "5 |       unit: minuet\n  |             ^^^^^^\n  = hint: did you mean `minute`?\n",
        "\n  --> broken.yaml:11:11\n",
        "first declared here: rules/shop.yaml:",
    ] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    assert!(ran.stdout.ends_with("\n5 problems in 3 files\n"), "{}", ran.stdout);
}

#[test]
fn warnings_alone_are_no_failure_unless_they_are_denied() {
    let said = printed(&["rules", "check", "warned.yaml"]);
    assert!(said.starts_with("warning[no_effect]: "), "{said}");
    assert!(said.ends_with("\n1 file ok: 1 domain, 1 rule, 0 limits, 1 warning\n"), "{said}");
    let ran = run(&["rules", "check", "--deny-warnings", "warned.yaml"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.ends_with("\n1 warning in 1 file, and warnings are denied\n"), "{ran:?}");
    let ran = run(&["rules", "check", "--deny-warnings", "rules"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn warnings_beside_errors_are_counted_apart() {
    let ran = run(&["rules", "check", "broken.yaml", "warned.yaml", "--no-merge-domains"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.ends_with("\n4 problems and 1 warning in 2 files\n"), "{}", ran.stdout);
}

#[test]
fn a_second_file_for_a_domain_can_be_refused() {
    let root = tempfile::tempdir().unwrap();
    for name in ["a.yaml", "b.yaml"] {
        fs::write(root.path().join(name), "domain: d\ndescriptors: []\n").unwrap();
    }
    let path = root.path().to_str().unwrap();
    assert_eq!(run(&["rules", "check", path]).code, 0);
    let ran = run(&["rules", "check", path, "--no-merge-domains"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.starts_with("error[duplicate_domain]"), "{}", ran.stdout);
}

#[test]
fn standard_input_is_checked_too() {
    let ran = run_with(&["rules", "check", "-"], "domain: d\ndescriptors:\n  - key: \n");
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains(" --> <stdin>:3:"), "{}", ran.stdout);
    let ran = run_with(&["rules", "check", "rules/api.yaml", "-"], "domain: d\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "2 files ok: 2 domains, 1 rule, 1 limit\n"));
}

#[test]
fn what_cannot_be_read_is_no_problem_of_the_rules() {
    let ran = run(&["rules", "check", "gone.yaml", "rules", "also-gone"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    let help = "help: check the spelling, and the directory that you are in\n";
    let expected = format!(
        "error: `gone.yaml` does not exist\n{help}error: `also-gone` does not exist\n{help}"
    );
    assert_eq!(ran.stderr, expected);
}

#[test]
fn a_directory_without_rules_is_not_taken_for_rules_that_are_right() {
    let root = tempfile::tempdir().unwrap();
    let ran = run(&["rules", "check", root.path().to_str().unwrap()]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("holds no rule files\nhelp: rule files end in"), "{ran:?}");
}

#[test]
fn json_says_the_same_as_the_text() {
    let ran = run(&["rules", "check", "--format", "json", "broken.yaml"]);
    assert_eq!(ran.code, 1);
    let document = json(&ran);
    assert_eq!(document["ok"], false);
    assert_eq!(document["summary"]["errors"], 3);
    assert_eq!(document["summary"]["files"], 1);
    assert_eq!(document["summary"]["rules"], Value::Null);
    let first = &document["problems"][0];
    assert_eq!(first["file"], "broken.yaml");
    assert_eq!((first["line"].as_u64(), first["column"].as_u64()), (Some(5), Some(13)));
    assert_eq!(first["severity"], "error");
    assert_eq!(first["code"], "unknown_unit");
    assert_eq!(first["hint"], "did you mean `minute`?");
    assert_eq!(first["snippet"]["text"], "      unit: minuet");
    assert_eq!(first["compat_message"], "invalid rate limit unit 'minuet'");
}

#[test]
fn json_of_rules_that_are_right_counts_them() {
    let ran = run(&["rules", "check", "--format", "json", "rules"]);
    assert_eq!(ran.code, 0);
    let document = json(&ran);
    assert_eq!(document["ok"], true);
    assert_eq!(document["problems"], Value::Array(Vec::new()));
    assert_eq!(document["summary"]["rules"]["domains"], 2);
    assert_eq!(document["summary"]["rules"]["rules"], 10);
    assert_eq!(document["summary"]["rules"]["limits"], 11);
}

#[test]
fn a_file_full_of_faults_is_told_up_to_a_maximum() {
    let many = "  - {key: k, colour: red}\n".repeat(500);
    let ran = run_with(&["rules", "check", "-"], &format!("domain: d\ndescriptors:\n{many}"));
    assert_eq!(ran.code, 1);
    let listed = ran.stdout.matches("error[").count();
    assert_eq!(listed, 100);
    assert!(ran.stdout.contains("\nand "), "{}", ran.stdout);
}

#[test]
fn a_rule_file_cannot_send_commands_to_the_terminal() {
    let hostile = "domain: d\n\"\\e]0;owned\\a\": 1\n";
    let ran = run_with(&["rules", "check", "--color", "always", "-"], hostile);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("unknown key"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("\u{1b}]"), "{}", ran.stdout);
}
