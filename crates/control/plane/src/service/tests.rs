use std::collections::BTreeSet;

use serde_json::Value;
use tidegate_access::Role;

use super::OPENAPI;
use super::routes::ROUTES;

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

#[test]
fn the_document_has_every_route_and_no_other() {
    let document = document();
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            documented.insert((path.clone(), method.to_uppercase()));
        }
    }
    let served = ROUTES.iter().map(|route| (route.path.to_owned(), route.method.to_string()));
    assert_eq!(documented, served.collect());
}

#[test]
fn the_document_has_the_role_of_every_route() {
    let document = document();
    for route in ROUTES {
        let method = route.method.as_str().to_lowercase();
        let operation = &document["paths"][route.path][&method];
        let scope = operation["security"][0]["token"][0].as_str();
        assert_eq!(scope, route.role.map(Role::as_str), "{method} {}", route.path);
    }
}
