//! The schema, the example and the documents, all from one declaration.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tidegate_app::config::{Config, Origin, schema};

use crate::config_cases::{cases, documents, root};
use crate::resolved::{field_paths, of_file};

fn json(yaml: &str) -> Option<Value> {
    serde_saphyr::from_str(yaml).ok()
}

#[test]
fn the_schema_is_a_valid_one_and_lists_exactly_the_fields() {
    let schema = schema();
    assert!(jsonschema::meta::is_valid(&schema));
    let mut listed = BTreeSet::new();
    let mut open = vec![(String::new(), &schema)];
    while let Some((path, part)) = open.pop() {
        match part["properties"].as_object() {
            Some(properties) => {
                assert_eq!(part["additionalProperties"], false, "{path}");
                for (name, below) in properties {
                    let dot = if path.is_empty() { "" } else { "." };
                    open.push((format!("{path}{dot}{name}"), below));
                }
            }
            None => assert!(listed.insert(path)),
        }
        assert!(part["description"].as_str().unwrap().len() > 8);
    }
    assert_eq!(listed, field_paths());
}

#[test]
fn the_schema_accepts_what_is_right_and_refuses_what_is_wrong() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let example = tidegate_app::config::example();
    let accepted = |text: &str| validator.is_valid(&json(text).unwrap());
    assert!(accepted(&example));
    assert!(accepted(&uncommented(&example)), "{}", uncommented(&example));
    assert!(accepted("limiter: {near_limit_ratio: 80%}\ndebug: {switches: off}\nworkers: 3\n"));
    for url in ["redis://h:6379/1", "rediss-cluster://a,b", "redis-sentinel://a/m", "unix:///run/r"]
    {
        assert!(accepted(&format!("store: {{redis: {{url: '{url}'}}}}")), "{url}");
    }
    assert!(!accepted("store: {redis: {url: 'http://localhost'}}"));
    // What only the reader knows: several fields together, bounds with units, the
    // inside of addresses.
    let beyond = [
        "addresses_that_collide",
        "address_taken_by_a_default",
        "certificate_without_key",
        "client_name_without_authority",
        "debug_open_without_token",
        "debug_switches_open_without_token",
        "duplicate_header_field",
        "duration_beyond_all_bounds",
        "forwarder_open_without_token",
        "leases_not_shared",
        "nothing_to_serve",
        "rules_from_two_places",
        "rules_from_nowhere",
        "token_hidden",
        "tokens_from_two_places",
    ];
    let mut refused = 0;
    for case in cases() {
        let Some(value) = json(&case.text) else { continue };
        let expected = beyond.contains(&case.name.as_str());
        assert_eq!(validator.is_valid(&value), expected, "{}", case.name);
        refused += usize::from(!expected);
    }
    assert!(refused > 15, "{refused}");
}

/// The example with every field in force.
fn uncommented(example: &str) -> String {
    let body = example.split_once("\n\n").unwrap().1;
    let line = |line: &str| match line.trim_start().strip_prefix("# ") {
        Some(field) => format!("{}{field}\n", &line[..line.len() - field.len() - 2]),
        None => format!("{line}\n"),
    };
    body.lines().map(line).collect()
}

#[test]
fn the_example_changes_nothing_and_shows_every_field() {
    let example = tidegate_app::config::example();
    assert_eq!(of_file(&example).config, Config::default());
    let loaded = of_file(&uncommented(&example));
    assert_eq!(loaded.config, Config::default());
    let from_file = |origin: &Origin| matches!(origin, Origin::File { .. });
    assert!(loaded.origins.values().all(from_file), "{:?}", loaded.origins);
}

#[test]
fn the_documents_are_what_the_declaration_says() {
    for (path, text) in documents() {
        let written = fs::read_to_string(root().join(path)).unwrap();
        let bless = "cargo run -p tidegate-app --example bless_config";
        assert!(written == text, "{path} is out of date: `{bless}`");
    }
}
