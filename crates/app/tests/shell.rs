//! How the binary behaves in a shell: help, colours, pipes, completions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Write;
use std::process::Stdio;

use support::{Ran, printed, run, tidegate};

const ESCAPE: char = '\u{1b}';

#[test]
fn the_help_of_every_command_has_an_example() {
    for command in [
        "",
        "rules",
        "rules check",
        "rules explain",
        "rules schema",
        "config",
        "config check",
        "config show",
        "config schema",
        "config env",
        "config reference",
        "demo",
        "completions",
        "version",
    ] {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = printed(&words);
        assert!(help.contains(&format!("Examples:\n  tidegate {command}").trim_end().to_owned()));
        assert!(help.contains("Usage: tidegate"), "{help}");
    }
}

#[test]
fn the_schema_is_a_json_document() {
    let schema: serde_json::Value = serde_json::from_str(&printed(&["rules", "schema"])).unwrap();
    assert_eq!(schema["title"], "Tidegate rules");
    assert!(schema["$defs"]["limit"]["properties"]["algorithm"].is_object());
}

#[test]
fn every_shell_has_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("tidegate") && script.contains("explain"), "{shell}");
    }
    assert_eq!(run(&["completions", "cmd"]).code, 2);
}

#[test]
fn the_version_is_said_in_two_ways() {
    let version = printed(&["version"]);
    assert!(version.starts_with(concat!("tidegate ", env!("CARGO_PKG_VERSION"))), "{version}");
    assert_eq!(version, printed(&["--version"]));
}

#[test]
fn a_mistyped_command_is_told_and_ends_with_two() {
    let ran = run(&["rulse"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("a similar subcommand exists: 'rules'"), "{}", ran.stderr);
    assert_eq!(run(&[]).code, 2);
    assert_eq!(run(&["rules", "check", "--format", "yaml"]).code, 2);
}

#[test]
fn colours_come_when_asked_for_and_not_by_themselves_in_a_pipe() {
    let check = ["rules", "check", "broken.yaml"];
    assert!(!run(&check).stdout.contains(ESCAPE));
    let coloured = run(&[check.as_slice(), &["--color", "always"]].concat());
    assert!(coloured.stdout.contains(ESCAPE));
    let plain = run(&[check.as_slice(), &["--color", "never"]].concat());
    assert!(!plain.stdout.contains(ESCAPE));
    let errors = run(&["--color", "always", "rules", "check", "gone"]);
    assert!(errors.stderr.contains(ESCAPE));
}

#[test]
fn no_color_wins_over_what_would_force_colours() {
    let forced = |no_color: Option<&str>| -> Ran {
        let mut command = tidegate(&["rules", "check", "broken.yaml"]);
        command.env("CLICOLOR_FORCE", "1");
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        command.output().unwrap().into()
    };
    assert!(forced(None).stdout.contains(ESCAPE));
    assert!(!forced(Some("1")).stdout.contains(ESCAPE));
}

/// Runs the binary with a closed standard output.
fn unread(words: &[&str], stdin: &str) -> (i32, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("tidegate"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    command.args(words).stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The child may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for command in [
        "rules schema",
        "rules check rules",
        "rules explain --domain shop user=ada",
        "completions zsh",
        "version",
        "--help",
        "demo",
        "demo --print-rules",
    ] {
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(unread(&words, "rules\nnonsense\n"), (0, String::new()), "{command}");
    }
}

#[test]
fn a_reader_that_goes_away_does_not_change_how_a_check_ends() {
    let check = ["rules", "check", "broken.yaml"];
    assert_eq!(unread(&check, ""), (1, String::new()));
    let json = ["rules", "check", "--format", "json", "broken.yaml"];
    assert_eq!(unread(&json, ""), (1, String::new()));
}
