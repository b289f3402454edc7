//! `tidegate config schema`: the file as a JSON Schema, for editors and other tools.
//!
//! Made from the declaration, so it cannot fall behind. What fields mean
//! together only the reader knows.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::fields::Config;
use super::kinds::{ITEMS_MAX, OFF, Plurality, Shape};
use super::section::{Entry, Field};
use crate::cli::SchemaOf;
use crate::exit::{Exit, Failure};
use crate::output::Output;

pub(crate) fn run(of: SchemaOf, out: &mut Output) -> Result<Exit, Failure> {
    let schema = match of {
        SchemaOf::Config => schema(),
        SchemaOf::Gateway => tidegate_gateway::gateway_schema(),
    };
    writeln!(out, "{schema:#}")?;
    Ok(Exit::Fine)
}

/// The JSON Schema (draft 2020-12) of a configuration file.
pub fn schema() -> Value {
    let mut config = Config::default();
    let mut root = mapping("The configuration of `tidegate serve`.");
    for entry in config.entries() {
        let (path, schema) = match entry {
            Entry::Section { path, about } => (path, mapping(&about)),
            Entry::Field(field) => (field.path.clone(), described(&field)),
        };
        insert(&mut root, &path, schema);
    }
    if let Some(root) = root.as_object_mut() {
        let draft = "https://json-schema.org/draft/2020-12/schema";
        root.insert("$schema".to_owned(), Value::from(draft));
        root.insert("title".to_owned(), Value::from("Tidegate configuration"));
    }
    root
}

fn mapping(about: &str) -> Value {
    json!({
        "type": ["object", "null"],
        "description": about,
        "properties": Map::new(),
        "additionalProperties": false,
    })
}

/// Puts a schema where its path says; a section comes before what is in it.
fn insert(root: &mut Value, path: &str, schema: Value) {
    let pointer: String = path.split('.').map(|name| format!("/properties/{name}")).collect();
    let (parent, name) = pointer.rsplit_once('/').unwrap_or(("", path));
    if let Some(properties) = root.pointer_mut(parent).and_then(Value::as_object_mut) {
        properties.insert(name.to_owned(), schema);
    }
}

fn described(field: &Field<'_>) -> Value {
    let one = shape(field);
    let mut any: Vec<Value> = vec![one.clone(), json!({"type": "null"})];
    match field.value.plurality() {
        Plurality::One => {}
        // To older YAML an unquoted `off` is a boolean.
        Plurality::Optional => any.push(json!({"enum": [OFF, false]})),
        Plurality::Many => any.push(json!({"type": "array", "items": one, "maxItems": ITEMS_MAX})),
    }
    let mut schema = json!({"description": field.about, "anyOf": any});
    let default = field.value.shown();
    if let (false, Some(schema)) = (default.is_null(), schema.as_object_mut()) {
        schema.insert("default".to_owned(), default);
    }
    schema
}

fn shape(field: &Field<'_>) -> Value {
    let (least, most) = field.bounds.range();
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let words = || json!({"type": ["string", "number", "boolean"], "minLength": 1});
    match field.value.shape() {
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Count => json!({"type": "integer", "minimum": least, "maximum": most}),
        Shape::CountOrAuto => json!({"anyOf": [
            {"const": "auto"},
            {"type": "integer", "minimum": least, "maximum": most},
        ]}),
        Shape::Size => text("^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB|TiB)$"),
        Shape::Duration => text("^([0-9]+(ms|s|m|h|d|w))+$"),
        Shape::Ratio => json!({"anyOf": [
            {"type": "number", "minimum": 0, "maximum": 1},
            {"type": "string", "pattern": "^[0-9]{0,3}(\\.[0-9]*)?%?$"},
        ]}),
        Shape::Percent => json!({"anyOf": [
            {"type": "number", "minimum": 0, "maximum": 100},
            {"type": "string", "pattern": "^[0-9]{0,3}(\\.[0-9]*)?%?$"},
        ]}),
        Shape::Choice(words) => {
            let mut all: Vec<Value> = words.iter().map(|word| Value::from(*word)).collect();
            all.extend(words.contains(&"off").then_some(Value::Bool(false)));
            all.extend(words.contains(&"on").then_some(Value::Bool(true)));
            json!({"enum": all})
        }
        Shape::Text | Shape::Path => words(),
        Shape::Address => text("^(unix:.+|.+:[0-9]{1,5})$"),
        Shape::HeaderName => text("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"),
        Shape::Url => text("^https?://[^/ ]"),
        Shape::RedisUrl => text("^(rediss?(-sentinel|-cluster)?|redis\\+unix|unix)://[^ ]"),
        Shape::UrlPath => text("^/"),
        // To older YAML an unquoted `off` is a boolean.
        Shape::Mode => json!({"anyOf": [
            {"const": false},
            {"type": "string", "pattern": "^(off|shadow|dark|enforce([ \\t]+[0-9]{1,3}%)?)$"},
        ]}),
        Shape::Network => text("^[0-9a-fA-F.:]+(/[0-9]{1,3})?$"),
    }
}
