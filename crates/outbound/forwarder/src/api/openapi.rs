//! The OpenAPI document of the API, written by hand. Tests compare it with the routes and with real answers.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};

use super::answer::{Answer, JSON, with_body};

/// An OpenAPI 3.1 document, in JSON.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

pub(super) fn answer() -> Answer {
    let body = Full::new(Bytes::from_static(OPENAPI.as_bytes())).boxed_unsync();
    with_body(JSON, StatusCode::OK, body)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;
    use tidegate_access::Role;

    use super::OPENAPI;
    use crate::api::records::record_fields;
    use crate::api::routes::ROUTES;

    fn document() -> Value {
        serde_json::from_str(OPENAPI).unwrap()
    }

    #[test]
    fn the_document_has_every_route_with_its_role_and_no_other() {
        let document = document();
        let mut documented = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let security = operation["security"].as_array().and_then(|all| all.last());
                let scope = security.and_then(|needed| needed["token"][0].as_str());
                for status in ["401", "403"] {
                    let has = operation["responses"].get(status).is_some();
                    assert_eq!(has, scope.is_some(), "{path}: {status}");
                }
                documented.insert((path.clone(), method.to_uppercase(), scope.map(str::to_owned)));
            }
        }
        let served = ROUTES.iter().map(|(method, path, route)| {
            let role = route.role().map(Role::as_str).map(str::to_owned);
            ((*path).to_owned(), method.to_string(), role)
        });
        assert_eq!(documented, served.collect());
    }

    #[test]
    fn the_document_has_every_field_of_a_record_and_no_other() {
        let document = document();
        let properties = document.pointer("/components/schemas/Record/properties").unwrap();
        let documented: BTreeSet<&str> =
            properties.as_object().unwrap().keys().map(String::as_str).collect();
        let fields = record_fields();
        assert_eq!(documented, fields.iter().map(String::as_str).collect());
    }

    #[test]
    fn every_reference_resolves() {
        fn walk(document: &Value, value: &Value, found: &mut usize) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(reference)) = fields.get("$ref") {
                        let pointer = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                        *found += 1;
                    }
                    fields.values().for_each(|value| walk(document, value, found));
                }
                Value::Array(values) => {
                    values.iter().for_each(|value| walk(document, value, found));
                }
                _ => {}
            }
        }
        let document = document();
        let mut found = 0;
        walk(&document, &document, &mut found);
        assert!(found > 40, "{found} references");
    }
}
