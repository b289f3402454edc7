//! The JSON Schemas for editors, and the OpenAPI document.

use serde_json::Value;

use super::{Golden, printed, without};
use crate::process::{Folder, RULES, Start};

/// What may be reworded.
const PROSE: &[&str] = &["description", "markdownDescription", "summary", "title"];

pub(crate) fn capture() -> Vec<Golden> {
    let schemas: [(&str, &[&str]); 4] = [
        ("schemas/rules.json", &["rules", "schema"]),
        ("schemas/config.json", &["config", "schema"]),
        ("schemas/gateway.json", &["config", "schema", "gateway"]),
        ("schemas/forward.json", &["config", "schema", "forward"]),
    ];
    let schema = |(file, words): (&str, &[&str])| {
        let schema: Value = serde_json::from_str(&printed(words)).expect("JSON");
        Golden::json(file, &without(&schema, PROSE))
    };
    let mut goldens: Vec<Golden> = schemas.into_iter().map(schema).collect();
    let folder = Folder::with_rules(RULES);
    let document = Start::new(&folder).serving().get("http", "/v1/openapi.json").json();
    let mut document = without(&document, PROSE);
    document["info"]["version"] = Value::from("<version>");
    goldens.push(Golden::json("schemas/openapi.json", &document));
    goldens
}
