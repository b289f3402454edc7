//! The one free part of a rule file.

use serde_json::{Map, Number, Value, json};
use tidegate_document::{
    Bounds, Fault, GivenKey, Item, NodeId, NodeKind, PlainValue, Reader, Shape,
};

/// The `metadata` of a descriptor, as JSON.
#[derive(Debug)]
pub(crate) struct Metadata(pub(crate) Value);

impl Item for Metadata {
    fn shape(_: &Bounds) -> Shape {
        Shape::Other("a mapping", json!({"type": ["object", "null"]}))
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        if matches!(reader.yaml().node(given.node).kind, NodeKind::Mapping(_)) {
            return value(reader, given.node).map(Metadata);
        }
        reader.wrong_type(given, "a mapping");
        None
    }
}

// The depth of the recursion is bounded by that of the tree.
fn value(reader: &mut Reader<'_, '_>, node: NodeId) -> Option<Value> {
    let yaml = reader.yaml();
    match &yaml.node(node).kind {
        NodeKind::Scalar(scalar) => match scalar.plain() {
            PlainValue::Null => Some(Value::Null),
            PlainValue::Bool(flag) => Some(Value::Bool(flag)),
            PlainValue::Text => Some(Value::String(scalar.text.clone().into_owned())),
            PlainValue::Integer(number) => Number::from_i128(number).map(Value::Number),
            PlainValue::Float(number) => {
                let number = Number::from_f64(number).map(Value::Number);
                if number.is_none() {
                    refuse(reader, node, "infinity or not-a-number");
                }
                number
            }
        },
        NodeKind::Sequence(items) => yaml
            .items(*items)
            .iter()
            .map(|item| value(reader, *item))
            .collect::<Option<Vec<_>>>()
            .map(Value::Array),
        NodeKind::Mapping(_) => {
            let mut map = Map::new();
            for (key, item) in reader.pairs(node)? {
                let text = yaml.scalar(key).filter(|key| key.plain() == PlainValue::Text);
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

fn refuse(reader: &mut Reader<'_, '_>, node: NodeId, what: &str) {
    let fault = Fault::new("invalid_metadata", format!("metadata cannot hold {what}"))
        .hint("put quotes around it")
        .compat(format!("error parsing metadata: {what}"));
    reader.error_at(reader.yaml().location(node), fault);
}
