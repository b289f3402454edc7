//! `tidegate config schema`: the file as a JSON Schema, for editors and other tools.

use serde_json::Value;
use tidegate_document::settings_schema;

use super::fields::Config;
use crate::cli::SchemaOf;

/// The JSON Schema of a file.
pub(crate) fn schema_of(of: SchemaOf) -> Value {
    match of {
        SchemaOf::Config => schema(),
        SchemaOf::Gateway => tidegate_gateway::gateway_schema(),
        SchemaOf::Forward => tidegate_forwarder::forward_schema(),
    }
}

/// The JSON Schema (draft 2020-12) of a configuration file.
pub fn schema() -> Value {
    let mut config = Config::default();
    let mut schema = settings_schema("The configuration of `tidegate serve`.", &config.entries());
    schema["$schema"] = Value::from("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = Value::from("Tidegate configuration");
    schema
}
