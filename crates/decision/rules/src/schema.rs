//! The language as a JSON Schema, for editors and other tools.
//!
//! Generated from the vocabulary, so it cannot fall behind. It says what a
//! schema can say: keys, types, ranges, which keys go together. What needs a
//! look at the whole file (duplicates, plans that exist) only the compiler knows.

use serde_json::{Map, Value, json};

use crate::choices::{AlgorithmName, Unit};
use crate::vocabulary::{KEYS, Key, Place, Shape, keys_of};

/// A length of time, as in `document`'s parser.
const DURATION_PATTERN: &str = "^([0-9]+(ms|s|m|h|d|w))+$";

/// The JSON Schema (draft 2020-12) of a rule file.
pub fn schema() -> Value {
    let mut definitions = Map::new();
    for place in Place::ALL {
        definitions.insert(place.schema_name().to_owned(), mapping(place));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidegate rules",
        "description": "Rate limit rules: a superset of the format of envoyproxy/ratelimit.",
        "$ref": format!("#/$defs/{}", Place::Root.schema_name()),
        "$defs": definitions,
    })
}

fn mapping(place: Place) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in keys_of(place) {
        properties.insert(key.name.to_owned(), described(key));
        if key.required {
            required.push(key.name);
        }
    }
    if place.is_upstream() {
        tolerate_misplaced(place, &mut properties);
    }
    let mut all = algorithm_conditions(place);
    match place {
        Place::Descriptor => all.extend(descriptor_conditions()),
        Place::Limit => all.extend(limit_conditions()),
        _ => {}
    }
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if let (false, Some(schema)) = (all.is_empty(), schema.as_object_mut()) {
        schema.insert("allOf".to_owned(), Value::Array(all));
    }
    schema
}

/// Upstream's keys have no effect in the wrong place, but are not refused there.
fn tolerate_misplaced(place: Place, properties: &mut Map<String, Value>) {
    for key in KEYS.iter().filter(|key| key.upstream) {
        let home = key.place.title();
        properties.entry(key.name).or_insert_with(|| {
            json!({
                "deprecated": true,
                "description": format!("Has no effect {}: it belongs {home}.", place.title()),
            })
        });
    }
}

fn described(key: &Key) -> Value {
    let mut schema = shape(key);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".to_owned(), Value::from(key.about));
    }
    schema
}

fn shape(key: &Key) -> Value {
    match key.shape {
        Shape::Text => json!({"type": ["string", "integer", "boolean", "null"]}),
        Shape::FilledText => json!({"type": ["string", "integer", "boolean"], "minLength": 1}),
        Shape::Flag => json!({"type": ["boolean", "null"]}),
        Shape::Count { least, most } => {
            json!({"type": ["integer", "null"], "minimum": least, "maximum": most})
        }
        Shape::Choice(words) => {
            // To older YAML an unquoted `off` is a boolean.
            let as_boolean = words.contains(&"off").then_some(Value::Bool(false));
            // An unquoted `429` is a number.
            let as_numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
            let as_numbers = as_numbers.map(Value::from);
            let words = words.iter().map(|word| Value::from(*word));
            json!({"enum": words.chain(as_boolean).chain(as_numbers).collect::<Vec<_>>()})
        }
        // Which words are right depends on `unlimited`; see the conditions.
        Shape::AnyCaseChoice(words) => json!({"type": ["string", "null"], "examples": words}),
        Shape::Duration => json!({"type": "string", "pattern": DURATION_PATTERN}),
        Shape::Percent => json!({"type": "string", "pattern": "^[0-9]+%$"}),
        Shape::One(place) => json!({"anyOf": [reference(place), {"type": "null"}]}),
        Shape::Many(place) => {
            let least = usize::from(key.name == "limits");
            json!({"type": ["array", "null"], "items": reference(place), "minItems": least})
        }
        Shape::Named(place) => {
            json!({"type": ["object", "null"], "additionalProperties": reference(place)})
        }
        Shape::Cidrs => json!({"anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        ]}),
        Shape::FlagOr(place) => json!({"anyOf": [{"type": "boolean"}, reference(place)]}),
        Shape::TextOr(place) => {
            json!({"anyOf": [{"type": "string", "minLength": 1}, reference(place)]})
        }
        Shape::Anything => json!({"type": ["object", "null"]}),
    }
}

fn reference(place: Place) -> Value {
    json!({"$ref": format!("#/$defs/{}", place.schema_name())})
}

/// A pattern for the words in upper, lower or mixed case.
fn any_case(words: &[&str]) -> String {
    let each_case = |char: char| format!("[{}{char}]", char.to_ascii_uppercase());
    let words: Vec<String> =
        words.iter().map(|word| word.chars().map(each_case).collect()).collect();
    format!("^({})$", words.join("|"))
}

/// A key that only some algorithms know asks for one of them.
fn algorithm_conditions(place: Place) -> Vec<Value> {
    keys_of(place)
        .filter(|key| !key.algorithms.is_empty())
        .map(|key| {
            let words: Vec<&str> = key.algorithms.iter().map(|name| name.as_str()).collect();
            let by_default = key.algorithms.contains(&AlgorithmName::FixedWindow);
            let required: &[&str] = if by_default { &[] } else { &["algorithm"] };
            json!({
                "if": {"required": [key.name]},
                "then": {"properties": {"algorithm": {"enum": words}}, "required": required},
            })
        })
        .collect()
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

/// Both keys, and neither null.
fn not_together(one: &str, other: &str) -> Value {
    let there = json!({"not": {"type": "null"}});
    json!({"not": {"required": [one, other], "properties": {one: there, other: there}}})
}
