//! `tidegate config`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use support::{Ran, tidegate};

/// The answer about a right configuration beside one rule.
const RIGHT: &str = "the configuration is right\nrules: 1 in 1 domain\n";

/// Runs `tidegate config` in an environment with only these variables, in a
/// directory with only this file.
fn config(words: &[&str], variables: &[(&str, &str)], file: Option<&str>) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    let rules =
        "domain: api\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}]\n";
    std::fs::create_dir(directory.path().join("rules")).unwrap();
    std::fs::write(directory.path().join("rules/api.yaml"), rules).unwrap();
    if let Some(text) = file {
        std::fs::write(directory.path().join("tidegate.yaml"), text).unwrap();
    }
    let mut command = tidegate(&[&["config"], words].concat());
    command.env_clear().envs(variables.iter().copied()).current_dir(directory.path());
    command.output().unwrap().into()
}

fn fine(words: &[&str], variables: &[(&str, &str)], file: Option<&str>) -> String {
    let ran = config(words, variables, file);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    ran.stdout
}

/// The line of a field in the table, without its padding.
fn row(table: &str, key: &str) -> String {
    let start = format!("{key} ");
    let line = table.lines().find(|line| line.starts_with(&start)).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_configuration_that_is_right_is_said_to_be_so() {
    assert_eq!(fine(&["check"], &[], None), RIGHT);
    assert_eq!(fine(&["check"], &[], Some("workers: 2\n")), RIGHT);
}

#[test]
fn the_file_is_the_one_in_the_directory_or_the_one_that_is_named() {
    let file = Some("workers: 0\n");
    assert_eq!(config(&["check"], &[], file).code, 1);
    let named = [("TIDEGATE_CONFIG", "tidegate.yaml")];
    assert_eq!(config(&["check"], &named, file).code, 1);
    for words in [["check", "gone.yaml"].as_slice(), &["check", "--config", "gone.yaml"]] {
        let ran = config(words, &[], file);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        assert!(ran.stderr.starts_with("error: `gone.yaml` does not exist\nhelp: "), "{ran:?}");
    }
    assert_eq!(config(&["check", "a", "--config", "b"], &[], file).code, 2);
}

#[test]
fn every_problem_is_shown_with_its_place_its_line_and_what_would_be_right() {
    let ran = config(&["check", "--http", "80"], &[("TIDEGATE_WORKERS", "0")], Some("gprc: {}\n"));
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    for part in [
        "1 | gprc: {}\n  | ^^^^\n  = hint: did you mean `grpc`?\n",
        " --> TIDEGATE_WORKERS:1:1\n",
        " --> --http:1:1\n",
    ] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    assert!(ran.stdout.ends_with("\n3 problems\n"), "{}", ran.stdout);
}

#[test]
fn json_says_the_same_as_the_text() {
    let document = |ran: &Ran| serde_json::from_str::<Value>(&ran.stdout).unwrap();
    let ran = config(&["check", "--format", "json"], &[], Some("workers: 0\n"));
    assert_eq!((ran.code, &document(&ran)["ok"]), (1, &Value::Bool(false)));
    let problem = &document(&ran)["problems"][0];
    assert_eq!(
        (problem["file"].as_str(), problem["line"].as_u64()),
        (Some("tidegate.yaml"), Some(1))
    );
    assert_eq!(document(&ran)["summary"]["errors"], 1);
    let backend = [("BACKEND_TYPE", "memcache")];
    let ran = config(&["check", "--format", "json", "--compat"], &backend, None);
    assert_eq!((ran.code, &document(&ran)["ok"]), (1, &Value::Bool(false)));
    let problem = &document(&ran)["problems"][0];
    assert_eq!(problem["code"], "unsupported", "{problem}");
    let ran = config(&["check", "--format", "json", "--compat"], &[("REDIS_POOL_SIZE", "3")], None);
    assert_eq!((ran.code, &document(&ran)["ok"]), (0, &Value::Bool(true)));
    let notes = document(&ran)["notes"].as_array().unwrap().clone();
    assert!(notes.iter().any(|note| note["weight"] == "note"), "{notes:?}");
}

#[test]
fn notes_and_warnings_do_not_fail_a_check() {
    let variables = [("REDIS_POOL_SIZE", "5"), ("TIDEGATE_WORKRES", "5")];
    let said = fine(&["check", "--compat"], &variables, None);
    assert!(said.starts_with("warning[unknown_variable]: "), "{said}");
    assert!(said.contains("warning: REDIS_POOL_SIZE has no effect: calls are batched"), "{said}");
    assert!(said.ends_with("\nthe configuration is right, 1 warning\n"), "{said}");
}

#[test]
fn what_is_in_force_is_shown_with_its_origin() {
    let words = ["show", "--grpc", "127.0.0.1:1", "--set", "shutdown.delay=5s", "--workers", "4"];
    let variables =
        [("TIDEGATE_LOG_FORMAT", "json"), ("TIDEGATE_DEBUG_TOKEN", "open sesame, please")];
    let said = fine(&words, &variables, Some("\nstore:\n  memory: {budget: 64MiB}\n"));
    assert_eq!(row(&said, "grpc.listen"), "grpc.listen 127.0.0.1:1 --grpc");
    assert_eq!(row(&said, "shutdown.delay"), "shutdown.delay 5s --set");
    assert_eq!(row(&said, "workers"), "workers 4 --workers");
    assert_eq!(row(&said, "log.format"), "log.format json TIDEGATE_LOG_FORMAT");
    assert_eq!(row(&said, "store.memory.budget"), "store.memory.budget 64MiB tidegate.yaml:3");
    assert_eq!(row(&said, "debug.token"), "debug.token set TIDEGATE_DEBUG_TOKEN");
    assert_eq!(row(&said, "limiter.shadow"), "limiter.shadow false default");
    assert!(!said.contains("sesame"));
}

#[test]
fn what_is_shown_as_a_file_has_the_same_effect() {
    let variables = [
        ("PORT", "9090"),
        ("HOST", "::1"),
        ("LOG_LEVEL", "debug"),
        ("TRACING_SAMPLING_RATE", "0.5"),
        ("TIDEGATE_DEBUG_TOKEN", "open sesame, please"),
        ("TRACING_SERVICE_NAME", "on: \"call\" # 1"),
    ];
    let words = ["show", "--format", "yaml", "--compat", "--set", "rules.poll=off"];
    let file = fine(&words, &variables, None);
    assert!(!file.contains("sesame") && file.contains("  # token is set"), "{file}");
    let again = fine(&["show", "--format", "yaml"], &[variables[4]], Some(&file));
    let values = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.rsplit_once("  #").map_or(line, |(value, _)| value).to_owned())
            .collect()
    };
    assert_eq!(values(&file), values(&again));
}

#[test]
fn what_is_shown_for_programs_is_a_list_of_fields() {
    let said = fine(&["show", "--format", "json"], &[], Some("workers: 2\n"));
    let fields: Vec<Value> = serde_json::from_str(&said).unwrap();
    let workers = fields.iter().find(|field| field["key"] == "workers").unwrap();
    assert_eq!(
        (&workers["value"], &workers["origin"]),
        (&Value::from(2), &Value::from("tidegate.yaml:1"))
    );
}

#[test]
fn a_broken_configuration_is_not_shown() {
    let ran = config(&["show"], &[], Some("workers: 0\n"));
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    let end = "error: the configuration has 1 problem\n\
               help: fix the problems, then run `tidegate config check`\n";
    assert!(ran.stderr.ends_with(end), "{ran:?}");
}

#[test]
fn schema_variables_and_references_are_printed() {
    let schema: Value = serde_json::from_str(&fine(&["schema"], &[], None)).unwrap();
    assert_eq!(schema["title"], "Tidegate configuration");
    let variables = fine(&["env"], &[], None);
    assert!(variables.contains("TIDEGATE_GRPC_TLS_CLIENT_CA"), "{variables}");
    assert!(fine(&["reference"], &[], None).starts_with("# Configuration\n"));
    let compat = fine(&["reference", "compat"], &[], None);
    assert!(compat.contains("| `REDIS_POOL_SIZE` |"), "{compat}");
    let example = fine(&["reference", "example"], &[], None);
    assert_eq!(fine(&["check"], &[], Some(&example)), RIGHT);
}

#[test]
fn compat_is_a_flag_alone_or_with_a_name() {
    for flag in ["--compat", "--compat=envoy-ratelimit"] {
        assert_eq!(
            row(&fine(&["show", flag], &[], None), "compat"),
            "compat envoy-ratelimit --compat"
        );
    }
    assert_eq!(config(&["show", "--compat=other"], &[], None).code, 2);
    let off = fine(&["show", "--compat=none"], &[], Some("compat: envoy-ratelimit\n"));
    assert_eq!(row(&off, "log.level"), "log.level info default");
}

#[test]
fn a_configuration_cannot_send_commands_to_the_terminal() {
    let ran = config(&["check", "--color", "always"], &[], Some("\"\\e]0;owned\\a\": 1\n"));
    assert_eq!(ran.code, 1);
    assert!(!ran.stdout.contains("\u{1b}]"), "{}", ran.stdout);
}
