//! The document as a JSON Schema, for editors and other tools.
//!
//! Made from the vocabulary, so it cannot fall behind. What keys mean together only the reader
//! knows.

use serde_json::{Map, Value, json};

use super::place::Place;
use super::vocabulary::{Key, Shape, Without, keys_of};

/// The JSON Schema (draft 2020-12) of a gateway's document.
pub fn gateway_schema() -> Value {
    let definitions: Map<String, Value> =
        Place::ALL.iter().map(|place| (place.name().to_owned(), mapping(*place))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidegate gateway",
        "description": "Routes, upstreams and what requests are limited by.",
        "$ref": reference(Place::Root),
        "$defs": definitions,
    })
}

fn reference(place: Place) -> String {
    format!("#/$defs/{}", place.name())
}

fn mapping(place: Place) -> Value {
    let needed = |key: &&Key| key.without == Without::Wrong;
    let required: Vec<&str> = keys_of(place).filter(needed).map(|key| key.name).collect();
    let properties: Map<String, Value> =
        keys_of(place).map(|key| (key.name.to_owned(), described(key))).collect();
    json!({
        "type": "object",
        "description": place.title(),
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn described(key: &Key) -> Value {
    let mut any = vec![shape(key.shape)];
    if key.off {
        // To older YAML an unquoted `off` is a boolean.
        any.push(json!({"enum": ["off", false]}));
    }
    if key.without != Without::Wrong {
        any.push(json!({"type": "null"}));
    }
    json!({"description": key.about, "anyOf": any})
}

fn shape(shape: Shape) -> Value {
    let text = || json!({"type": ["string", "number", "boolean"], "minLength": 1});
    let list = |items: Value| json!({"anyOf": [items, {"type": "array", "items": items}]});
    match shape {
        Shape::Text => text(),
        Shape::Texts => list(text()),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Count { least, most } => {
            json!({"type": "integer", "minimum": least, "maximum": most})
        }
        Shape::Duration => json!({"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w))+$"}),
        Shape::Size => {
            json!({"type": "string", "pattern": "^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB|TiB)$"})
        }
        Shape::HeaderName => json!({"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"}),
        Shape::Choice(words) => {
            // An unquoted `429` is a number.
            let as_numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
            let as_numbers = as_numbers.map(serde_json::Value::from);
            let words = words.iter().map(|word| serde_json::Value::from(*word));
            json!({"enum": words.chain(as_numbers).collect::<Vec<_>>()})
        }
        Shape::Choices(words) => list(json!({"enum": words})),
        Shape::One(place) => json!({"$ref": reference(place)}),
        Shape::Many(place) => json!({"type": "array", "items": {"$ref": reference(place)}}),
        Shape::CountOr(place) => {
            json!({"anyOf": [{"type": "integer", "minimum": 0}, {"$ref": reference(place)}]})
        }
    }
}
