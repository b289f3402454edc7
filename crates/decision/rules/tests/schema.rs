//! The schema agrees with the compiler, as far as a schema can.

#[path = "support/cases.rs"]
mod cases;

use std::fs;
use std::path::Path;

use cases::cases;
use jsonschema::Validator;
use serde_json::Value;
use tidegate_rules::{Options, Source, compile, schema};

fn validator() -> Validator {
    jsonschema::draft202012::new(&schema()).expect("the schema is a schema")
}

fn json(yaml: &str) -> Option<Value> {
    serde_saphyr::from_str(yaml).ok()
}

#[test]
fn is_a_valid_schema_of_its_draft() {
    assert!(jsonschema::meta::is_valid(&schema()));
}

#[test]
fn accepts_every_file_that_the_compiler_accepts() {
    let validator = validator();
    for case in cases("valid") {
        // A schema cannot reject a second document.
        if case.name == "several_documents" {
            continue;
        }
        let value = json(&case.text).unwrap_or_else(|| panic!("{}", case.name));
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{}: {errors:?}", case.name);
    }
}

#[test]
fn accepts_every_example() {
    let validator = validator();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/rules");
    let mut examples = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(validator.is_valid(&json(&text).unwrap()), "{text}");
        examples += 1;
    }
    assert!(examples >= 5);
}

#[test]
fn refuses_every_file_of_the_wrong_structure() {
    let validator = validator();
    let accepted: Vec<String> = cases("invalid")
        .into_iter()
        .filter(|case| json(&case.text).is_some_and(|value| validator.is_valid(&value)))
        .map(|case| case.name)
        .collect();
    assert_eq!(accepted, Vec::<String>::new());
}

/// The reference for people.
fn reference() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/rules-reference.md");
    fs::read_to_string(path).expect("the reference is there")
}

#[test]
fn the_reference_explains_every_key_too() {
    let reference = reference();
    for (place, definition) in schema()["$defs"].as_object().unwrap() {
        for (key, property) in definition["properties"].as_object().unwrap() {
            if property["deprecated"] == true {
                continue;
            }
            // In a table, or in the short form of an example.
            let explained = [format!("| `{key}` |"), format!("{key}: ")];
            let found = explained.iter().any(|text| reference.contains(text));
            assert!(found, "{place}.{key}");
        }
    }
}

#[test]
fn the_rules_in_the_reference_are_right() {
    let reference = reference();
    let blocks = reference.split("```yaml\n").skip(1);
    let mut files = 0;
    for block in blocks {
        let block = block.split("```").next().unwrap_or_default();
        let text = match block.split_once(':').map(|(key, _)| key) {
            Some("rate_limit" | "limits") => {
                let indented = block.trim_end().replace('\n', "\n    ");
                format!("domain: d\ndescriptors:\n  - key: k\n    {indented}\n")
            }
            Some("descriptors") => format!("domain: d\n{block}"),
            _ => block.to_owned(),
        };
        let rows = reference.split("```csv\n").nth(1).and_then(|rows| rows.split("```").next());
        let rows = Source::new("clients.csv", rows.unwrap_or_default());
        let compiled = compile(&[Source::new("reference", text), rows], &Options::default());
        let snapshot = compiled.unwrap_or_else(|report| panic!("{report}"));
        assert!(!snapshot.rules().is_empty() && snapshot.warnings().is_empty(), "{block}");
        files += 1;
    }
    assert_eq!(files, 7);
}

#[test]
fn explains_every_key() {
    let schema = schema();
    let mut keys = 0;
    for (place, definition) in schema["$defs"].as_object().unwrap() {
        for (key, property) in definition["properties"].as_object().unwrap() {
            let about = property["description"].as_str().unwrap_or_default();
            assert!(about.len() > 10, "{place}.{key}");
            keys += 1;
        }
    }
    assert!(keys > 50, "{keys}");
}
