//! Holds answers against the document that the door serves.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex};

use http::Method;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::bench::Answer;

/// The document, as it is served.
pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../src/openapi.json")).unwrap());

/// Making a validator takes longer than using it.
static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// The schema that the document has for this answer.
pub(crate) fn schema_for(method: &Method, path: &str, answer: &Answer) -> Option<&'static Value> {
    let operations = DOCUMENT["paths"].get(path)?;
    let name = method.as_str().to_lowercase();
    // `/json` takes any method, and is documented for one.
    let any = if path == "/json" { operations.get("post") } else { None };
    let operation = operations.get(&name).or(any)?;
    let status = answer.status.to_string();
    let response = operation["responses"].get(&status);
    let response = response.unwrap_or_else(|| panic!("{method} {path} is not said to {status}"));
    let kind = answer.field("content-type").unwrap_or_default();
    let content = response.get("content")?;
    let schema =
        &content.get(kind).unwrap_or_else(|| panic!("{path}: {status} as {kind}"))["schema"];
    Some(schema)
}

/// Panics unless the document allows the answer.
pub(crate) fn hold_against(method: &Method, path: &str, answer: &Answer) {
    let problem = json!({"$ref": "#/components/schemas/Problem"});
    let wrong = matches!(answer.status, 404 | 405);
    let schema = match schema_for_known(method, path, answer) {
        Some(schema) => schema.clone(),
        None if wrong => problem,
        None => return,
    };
    let value = match answer.field("content-type") {
        Some("text/plain") => Value::String(answer.text.clone()),
        _ => answer.json(),
    };
    check(&schema, &value).unwrap_or_else(|error| panic!("{path}: {error}\n{value:#}"));
}

fn schema_for_known(method: &Method, path: &str, answer: &Answer) -> Option<&'static Value> {
    if answer.status == 405 { None } else { schema_for(method, path, answer) }
}

/// Whether a value is as a schema of the document says.
pub(crate) fn check(schema: &Value, value: &Value) -> Result<(), String> {
    let mut known = VALIDATORS.lock().unwrap();
    let validator = known.entry(schema.to_string()).or_insert_with(|| {
        let mut whole = schema.clone();
        whole["components"] = DOCUMENT["components"].clone();
        Arc::new(jsonschema::validator_for(&whole).unwrap())
    });
    let validator = Arc::clone(validator);
    drop(known);
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
}

/// Notes which properties of which schema a value has.
pub(crate) fn note(schema: &Value, value: &Value, seen: &mut BTreeSet<(String, String)>) {
    note_under(schema, value, "", seen);
}

fn note_under(schema: &Value, value: &Value, name: &str, seen: &mut BTreeSet<(String, String)>) {
    if let Some(Value::String(reference)) = schema.get("$ref") {
        let target = DOCUMENT.pointer(reference.trim_start_matches('#')).unwrap();
        let name = reference.rsplit('/').next().unwrap();
        return note_under(target, value, name, seen);
    }
    for choices in ["oneOf", "anyOf"].iter().filter_map(|word| schema.get(word)?.as_array()) {
        for choice in choices.iter().filter(|choice| check(choice, value).is_ok()) {
            note_under(choice, value, name, seen);
        }
    }
    if let (Some(items), Value::Array(values)) = (schema.get("items"), value) {
        values.iter().for_each(|value| note_under(items, value, name, seen));
    }
    if let (Some(properties), Value::Object(fields)) = (schema.get("properties"), value) {
        for (field, value) in fields {
            seen.insert((name.to_owned(), field.clone()));
            note_under(&properties[field], value, "", seen);
        }
    }
}
