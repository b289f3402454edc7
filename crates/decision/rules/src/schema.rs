//! The rule language as a JSON Schema, for editors and other tools.
//!
//! Made from the table: keys, types, ranges, and which keys exclude each other. Only the compiler can check what needs
//! the whole file, such as duplicates and plans that do not exist.

use serde_json::{Value, json};
use tidegate_document::{Key, MappingType, Shape, definitions};

use crate::choices::{AlgorithmName, Unit};
use crate::table::{
    DescriptorKeys, LimitKeys, RuleFileKeys, algorithms_of, all_keys, is_upstream,
    is_upstream_mapping,
};

/// The JSON Schema (draft 2020-12) of a rule file.
pub fn schema() -> Value {
    let root = RuleFileKeys::mapping();
    let mut definitions = definitions(root, property);
    for mapping in root.reachable() {
        if let Some(schema) = definitions.get_mut(mapping.name) {
            if is_upstream_mapping(mapping) {
                tolerate_misplaced(mapping, schema);
            }
            let conditions = conditions(mapping);
            if !conditions.is_empty() {
                schema["allOf"] = Value::Array(conditions);
            }
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidegate rules",
        "description": "Rate limit rules: a superset of the format of envoyproxy/ratelimit.",
        "$ref": format!("#/$defs/{}", root.name),
        "$defs": definitions,
    })
}

/// The keys of envoyproxy/ratelimit have no effect in the wrong mapping, but are accepted there.
fn tolerate_misplaced(mapping: &MappingType, schema: &mut Value) {
    for (home, key) in all_keys().filter(|(_, key)| is_upstream(key)) {
        if schema["properties"].get(key.name).is_none() {
            let description =
                format!("Has no effect in {}: it belongs in {}.", mapping.title, home.title);
            schema["properties"][key.name] =
                json!({"deprecated": true, "description": description});
        }
    }
}

/// The schema of a key. Most take null, which means the same as leaving them out.
fn property(key: &Key) -> Value {
    let mut schema = match key.shape() {
        Shape::Scalar(_, mut schema) => {
            if schema["type"] == "boolean" || schema["type"] == "integer" {
                schema["type"] = json!([schema["type"], "null"]);
            }
            schema
        }
        shape @ Shape::Mapping(_) => json!({"anyOf": [shape.schema(), {"type": "null"}]}),
        Shape::List(item) => {
            let min = usize::from(key.name == "limits");
            json!({"type": ["array", "null"], "items": item.schema(), "minItems": min})
        }
        shape @ Shape::Named(_) => {
            let mut schema = shape.schema();
            schema["type"] = json!(["object", "null"]);
            schema
        }
        shape @ (Shape::Either(..) | Shape::OrOff(_) | Shape::Other(..)) => shape.schema(),
    };
    schema["description"] = Value::from(key.about);
    schema
}

/// A pattern for the words in upper, lower or mixed case.
fn any_case(words: &[&str]) -> String {
    let each_case = |char: char| format!("[{}{char}]", char.to_ascii_uppercase());
    let words: Vec<String> =
        words.iter().map(|word| word.chars().map(each_case).collect()).collect();
    format!("^({})$", words.join("|"))
}

fn conditions(mapping: &MappingType) -> Vec<Value> {
    let mut conditions: Vec<Value> = mapping.keys.iter().filter_map(algorithm_condition).collect();
    if mapping.name == DescriptorKeys::mapping().name {
        conditions.extend(descriptor_conditions());
    } else if mapping.name == LimitKeys::mapping().name {
        conditions.extend(limit_conditions());
    }
    conditions
}

/// A key that only some algorithms have requires one of them.
fn algorithm_condition(key: &Key) -> Option<Value> {
    let algorithms = algorithms_of(key);
    if algorithms.is_empty() {
        return None;
    }
    let words: Vec<&str> = algorithms.iter().map(|name| name.as_str()).collect();
    let is_default = algorithms.contains(&AlgorithmName::FixedWindow);
    let required: &[&str] = if is_default { &[] } else { &["algorithm"] };
    Some(json!({
        "if": {"required": [key.name]},
        "then": {"properties": {"algorithm": {"enum": words}}, "required": required},
    }))
}

fn descriptor_conditions() -> Vec<Value> {
    let filled = json!({"type": ["string", "integer", "boolean"], "minLength": 1});
    let grouped = json!({"anyOf": [{"const": true}, {"type": "object"}]});
    vec![
        not_together("rate_limit", "limits"),
        not_together("rate_limit", "plan"),
        not_together("limits", "plan"),
        json!({"not": {"required": ["value", "cidr"], "properties": {"value": filled}}}),
        json!({"not": {
            "required": ["value", "address"],
            "properties": {"value": filled, "address": grouped},
        }}),
    ]
}

fn limit_conditions() -> Vec<Value> {
    let unit = json!({"type": "string", "pattern": any_case(Unit::WORDS)});
    vec![
        not_together("unit", "per"),
        json!({
            "if": {"required": ["unlimited"], "properties": {"unlimited": {"const": true}}},
            "then": {"properties": {"unit": {"not": unit}}},
            "else": {"properties": {"unit": unit}, "anyOf": [
                {"required": ["unit"]},
                {"required": ["per"]},
                {"required": ["algorithm"], "properties": {"algorithm": {"const": "concurrency"}}},
            ]},
        }),
    ]
}

/// Refuses both keys together, unless one is null.
fn not_together(one: &str, other: &str) -> Value {
    let there = json!({"not": {"type": "null"}});
    json!({"not": {"required": [one, other], "properties": {one: there, other: there}}})
}
