use std::collections::BTreeSet;

use serde_json::Value;
use tidegate_requests::Role;

use super::OPENAPI;
use crate::decode::schemas;
use crate::route::{Methods, ROUTES};

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

#[test]
fn the_document_has_every_route_and_no_other() {
    let document = document();
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            documented.insert((path.clone(), method.clone()));
        }
    }
    let served = ROUTES.iter().map(|(path, methods, _)| {
        let method = match methods {
            Methods::Get => "get",
            // Any method will do there; one is documented.
            Methods::Post | Methods::Any => "post",
        };
        ((*path).to_owned(), method.to_owned())
    });
    assert_eq!(documented, served.collect());
}

#[test]
fn the_document_has_the_role_of_every_route() {
    let document = document();
    for (path, methods, route) in ROUTES {
        let method = if *methods == Methods::Get { "get" } else { "post" };
        let operation = &document["paths"][path][method];
        let security = operation["security"].as_array().and_then(|all| all.last());
        let scope = security.and_then(|needed| needed["token"][0].as_str());
        assert_eq!(scope, route.role().map(Role::as_str), "{path}");
        for status in ["401", "403"] {
            assert_eq!(operation["responses"].get(status).is_some(), scope.is_some(), "{path}");
        }
    }
}

#[test]
fn the_document_has_every_field_that_is_read_and_no_other() {
    let document = document();
    for (name, fields) in schemas() {
        let properties = &document["components"]["schemas"][name]["properties"];
        let documented: BTreeSet<&str> =
            properties.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(documented, fields.iter().map(String::as_str).collect(), "{name}");
    }
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
