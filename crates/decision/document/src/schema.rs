//! Declarations as JSON Schemas, for editors and other tools.
//!
//! A schema says what a declaration says: keys, types, ranges. Conditions across keys are for the reader.

use serde_json::{Map, Value, json};

use crate::mapping::{Key, MappingType, Presence};
use crate::shape::Shape;

/// The schemas of a mapping and of all below it, by name. `property` makes the schema of a key.
pub fn definitions(
    root: &'static MappingType,
    property: impl Fn(&Key) -> Value,
) -> Map<String, Value> {
    let schema = |mapping: &MappingType| {
        let is_required = |key: &&Key| key.presence == Presence::Required;
        let required: Vec<&str> =
            mapping.keys.iter().filter(is_required).map(|key| key.name).collect();
        let properties: Map<String, Value> =
            mapping.keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
        json!({
            "type": "object",
            "description": mapping.title,
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    };
    root.reachable().into_iter().map(|mapping| (mapping.name.to_owned(), schema(mapping))).collect()
}

/// The schema of a key that takes null when it can be left out.
pub fn property(key: &Key) -> Value {
    let shape = key.shape();
    let mut any = vec![shape.schema()];
    if let Shape::OrOff(_) = shape {
        // To YAML 1.1 an unquoted `off` is a boolean.
        any.push(json!({"enum": ["off", false]}));
    }
    if key.presence != Presence::Required {
        any.push(json!({"type": "null"}));
    }
    json!({"description": key.about, "anyOf": any})
}
