//! The schema agrees with the compiler, as far as a schema can.

#[path = "support/cases.rs"]
mod cases;

use std::fs;
use std::path::Path;

use cases::cases;
use jsonschema::Validator;
use serde_json::Value;
use tidegate_rules::schema;

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
        // A second document is beyond a schema.
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules");
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
