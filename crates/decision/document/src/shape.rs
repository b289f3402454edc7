//! What a key takes, for words, schema and reference.

use serde_json::{Value, json};

use crate::mapping::MappingType;

/// What a key takes.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A scalar: in words, and as a JSON Schema.
    Scalar(String, Value),
    /// A mapping.
    Mapping(&'static MappingType),
    /// A list. A list of scalars can be written as one scalar.
    List(Box<Shape>),
    /// Names, each with a mapping.
    Named(&'static MappingType),
    /// The first or the second.
    Either(Box<Shape>, Box<Shape>),
    /// The shape, or `off`.
    OrOff(Box<Shape>),
    /// Anything else: in words, and as a JSON Schema.
    Other(&'static str, Value),
}

impl Shape {
    /// What it takes, in words.
    pub fn words(&self) -> String {
        match self {
            Shape::Scalar(words, _) => words.clone(),
            Shape::Mapping(mapping) => format!("a mapping ({})", mapping.title),
            Shape::List(item) => match &**item {
                Shape::Mapping(mapping) => format!("a list of mappings (each {})", mapping.title),
                Shape::Scalar(words, _) if words == "text" => "a list of texts".to_owned(),
                item => format!("a list of: {}", item.words()),
            },
            Shape::Named(mapping) => {
                format!("a mapping of names to mappings (each {})", mapping.title)
            }
            Shape::Either(one, other) => format!("{}, or {}", one.words(), other.words()),
            Shape::OrOff(shape) => format!("{}, or `off`", shape.words()),
            Shape::Other(words, _) => (*words).to_owned(),
        }
    }

    /// Its JSON Schema.
    pub fn schema(&self) -> Value {
        match self {
            Shape::Scalar(_, schema) | Shape::Other(_, schema) => schema.clone(),
            Shape::Mapping(mapping) => reference(mapping),
            Shape::List(item) => match &**item {
                Shape::Mapping(mapping) => json!({"type": "array", "items": reference(mapping)}),
                item => {
                    let item = item.schema();
                    json!({"anyOf": [item, {"type": "array", "items": item}]})
                }
            },
            Shape::Named(mapping) => {
                json!({"type": "object", "additionalProperties": reference(mapping)})
            }
            Shape::Either(one, other) => json!({"anyOf": [one.schema(), other.schema()]}),
            Shape::OrOff(shape) => shape.schema(),
        }
    }

    /// The mapping in it, if there is one.
    pub fn mapping(&self) -> Option<&'static MappingType> {
        match self {
            Shape::Mapping(mapping) | Shape::Named(mapping) => Some(mapping),
            Shape::List(shape) | Shape::OrOff(shape) => shape.mapping(),
            Shape::Either(one, other) => one.mapping().or_else(|| other.mapping()),
            Shape::Scalar(..) | Shape::Other(..) => None,
        }
    }
}

/// A reference to the schema of a mapping.
fn reference(mapping: &MappingType) -> Value {
    json!({"$ref": format!("#/$defs/{}", mapping.name)})
}
