//! Shapes of what differs from run to run.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::process::Answer;

/// Members whose values are the same in each run and no prose.
const EXACT_MEMBERS: &[&str] = &[
    "algorithm",
    "basis",
    "charge",
    "code",
    "cost",
    "descriptor",
    "ending",
    "level",
    "limit",
    "mode",
    "overallCode",
    "path",
    "quota",
    "remaining",
    "role",
    "rule",
    "state",
    "status",
    "type",
    "unit",
    "violated-policies",
    "way",
    "when_over",
];

/// Header fields whose values are the same in each run and no prose.
const EXACT_FIELDS: &[&str] = &[
    "allow",
    "content-type",
    "grpc-status",
    "ratelimit-limit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
];

/// Every run of digits as `N`.
pub(super) fn digits(text: &str) -> String {
    let mut shape = String::new();
    for character in text.chars() {
        if !character.is_ascii_digit() {
            shape.push(character);
        } else if !shape.ends_with('N') {
            shape.push('N');
        }
    }
    shape
}

/// The members and their types; lists by the different shapes of their items. What is the same in
/// each run stays.
pub(super) fn json(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let shapes: BTreeMap<String, Value> = members
                .iter()
                .map(|(key, value)| {
                    let stays = !value.is_object() && EXACT_MEMBERS.contains(&key.as_str());
                    (key.clone(), if stays { value.clone() } else { json(value) })
                })
                .collect();
            Value::Object(shapes.into_iter().collect())
        }
        Value::Array(items) => {
            let mut shapes: Vec<Value> = Vec::new();
            for shape in items.iter().map(json) {
                if !shapes.contains(&shape) {
                    shapes.push(shape);
                }
            }
            Value::Array(shapes)
        }
        Value::String(_) => json!("<text>"),
        Value::Number(_) => json!("<number>"),
        Value::Bool(_) | Value::Null => value.clone(),
    }
}

/// The header fields in the order of their names, with the shapes of their values.
pub(super) fn fields<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut lines: Vec<String> = fields
        .map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            let shape = match name.as_str() {
                // A sentence for people, in the second encoded.
                "grpc-message" | "grpc-status-details-bin" => "<text>".to_owned(),
                "date" => "<date>".to_owned(),
                exact if EXACT_FIELDS.contains(&exact) => value.to_owned(),
                _ => digits(value),
            };
            format!("{name}: {shape}")
        })
        .collect();
    lines.sort();
    lines
}

/// Status, header fields, and what the body is like.
pub(super) fn answer(answer: &Answer) -> Vec<String> {
    let pairs = answer.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let mut lines = vec![format!("status: {}", answer.status)];
    let shapes = fields(pairs);
    let is_json = shapes
        .iter()
        .any(|line| line.starts_with("content-type: application/") && line.contains("json"));
    lines.extend(shapes);
    lines.push(if answer.body.is_empty() {
        "no body".to_owned()
    } else if is_json {
        serde_json::to_string_pretty(&json(&answer.json())).expect("JSON")
    } else {
        "a body".to_owned()
    });
    lines
}
