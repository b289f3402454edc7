//! The one free part of a rule file.

use serde_json::{Map, Number, Value};

use super::reader::Reader;
use crate::diagnostics::Fault;
use crate::yaml::{Kind, NodeId, Plain};

/// A descriptor's `metadata` as JSON.
pub(crate) fn read(reader: &mut Reader<'_, '_>, id: NodeId) -> Option<Value> {
    if matches!(reader.yaml.node(id).kind, Kind::Mapping(_)) {
        return value(reader, id);
    }
    reader.wrong_kind(id, "metadata", "a mapping");
    None
}

// Recursion ends with the tree, which is never deeper than its maximum.
fn value(reader: &mut Reader<'_, '_>, id: NodeId) -> Option<Value> {
    let yaml = reader.yaml;
    match &yaml.node(id).kind {
        Kind::Scalar(scalar) => match scalar.plain() {
            Plain::Null => Some(Value::Null),
            Plain::Bool(flag) => Some(Value::Bool(flag)),
            Plain::Text => Some(Value::String(scalar.text.clone().into_owned())),
            Plain::Integer(number) => Number::from_i128(number).map(Value::Number),
            Plain::Float(number) => {
                let number = Number::from_f64(number).map(Value::Number);
                if number.is_none() {
                    refuse(reader, id, "a number without end");
                }
                number
            }
        },
        Kind::Sequence(items) => yaml
            .items(*items)
            .iter()
            .map(|item| value(reader, *item))
            .collect::<Option<Vec<_>>>()
            .map(Value::Array),
        Kind::Mapping(_) => {
            let mut map = Map::new();
            for (key, item) in reader.pairs(id) {
                let text = yaml.scalar(key).filter(|key| key.plain() == Plain::Text);
                let Some(text) = text else {
                    refuse(reader, key, "a key that is not text");
                    continue;
                };
                if let Some(item) = value(reader, item) {
                    map.insert(text.text.clone().into_owned(), item);
                }
            }
            Some(Value::Object(map))
        }
    }
}

fn refuse(reader: &mut Reader<'_, '_>, id: NodeId, what: &str) {
    let fault = Fault::new("invalid_metadata", format!("metadata cannot hold {what}"))
        .hint("quote it")
        .compat(format!("error parsing metadata: {what}"));
    reader.error(id, fault);
}
