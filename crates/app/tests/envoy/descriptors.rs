//! What Envoy can tell of a request, and the rules that it meets.

use serde_json::{Value, json};

use crate::answers::TWO_EACH;
use crate::bootstrap::{fixed, header};
use crate::proxy::Proxy;
use crate::tidegate::{Launch, Tidegate};

fn with_actions(tidegate: &Tidegate, actions: &Value) -> Proxy {
    Proxy::asking_with(tidegate, |setup| setup.rate_limits = json!([{"actions": actions}]))
}

#[test]
fn each_value_of_a_header_field_is_counted_apart() {
    let tidegate = Launch::with(TWO_EACH).start();
    let envoy = Proxy::asking(&tidegate);
    assert_eq!(envoy.get_as("ada").statuses(3), [200, 200, 429]);
    assert_eq!(envoy.get_as("bob").statuses(3), [200, 200, 429]);
}

#[test]
fn a_request_without_the_field_is_not_asked_about() {
    let tidegate = Launch::with(TWO_EACH).start();
    let envoy = Proxy::asking(&tidegate);
    assert_eq!(envoy.get().statuses(4), [200; 4]);
}

#[test]
fn the_address_of_the_client_meets_the_range_that_holds_it() {
    let rules = "
domain: shop
descriptors:
  - {key: remote_address, cidr: 10.0.0.0/8, rate_limit: {unlimited: true}}
  - key: remote_address
    cidr: 192.0.2.0/24
    share_threshold: true
    rate_limit: {unit: year, requests_per_unit: 2}
  - {key: remote_address, address: true, rate_limit: {unit: year, requests_per_unit: 1}}
";
    let tidegate = Launch::with(rules).start();
    let envoy = with_actions(&tidegate, &json!([{"remote_address": {}}]));
    let from = |address: &str| envoy.get().with("x-forwarded-for", address);
    // Our own people.
    assert_eq!(from("10.1.2.3").statuses(4), [200; 4]);
    // One counter for all of a range.
    assert_eq!(from("192.0.2.1").statuses(2), [200, 200]);
    assert_eq!(from("192.0.2.2").status(), 429);
    // One for each other address, and one for each network of IPv6.
    assert_eq!(from("198.51.100.1").statuses(2), [200, 429]);
    assert_eq!(from("198.51.100.2").statuses(2), [200, 429]);
    assert_eq!(from("2001:db8::1").status(), 200);
    assert_eq!(from("2001:db8::2").status(), 429);
}

#[test]
fn a_fixed_entry_limits_all_requests_of_a_route() {
    let rules = "
domain: shop
descriptors:
  - {key: generic_key, value: checkout, rate_limit: {unit: year, requests_per_unit: 2}}
";
    let tidegate = Launch::with(rules).start();
    let actions = json!([{"generic_key": {"descriptor_value": "checkout"}}]);
    let envoy = with_actions(&tidegate, &actions);
    assert_eq!(envoy.get_as("ada").status(), 200);
    assert_eq!(envoy.get_as("bob").status(), 200);
    assert_eq!(envoy.get().status(), 429);
}

#[test]
fn paths_meet_rules_by_value_and_by_pattern() {
    let rules = "
domain: shop
descriptors:
  - {key: path, value: /login, rate_limit: {unit: year, requests_per_unit: 1}}
  - key: path
    value: /static/*
    share_threshold: true
    rate_limit: {unit: year, requests_per_unit: 2}
";
    let tidegate = Launch::with(rules).start();
    let envoy = with_actions(&tidegate, &json!([header(":path", "path")]));
    assert_eq!(envoy.get_path("/login").statuses(2), [200, 429]);
    assert_eq!(envoy.get_path("/static/a.css").status(), 200);
    assert_eq!(envoy.get_path("/static/b.css").status(), 200);
    assert_eq!(envoy.get_path("/static/c.css").status(), 429);
    assert_eq!(envoy.get_path("/").statuses(4), [200; 4]);
}

#[test]
fn nested_entries_meet_nested_rules() {
    let rules = "
domain: shop
descriptors:
  - key: destination_cluster
    value: service
    descriptors:
      - key: user
        rate_limit: {unit: year, requests_per_unit: 2}
        descriptors:
          - {key: path, value: /login, rate_limit: {unit: year, requests_per_unit: 1}}
";
    let tidegate = Launch::with(rules).start();
    let destination = json!({"destination_cluster": {}});
    let user = header("x-user", "user");
    let login = json!({"header_value_match": {
        "descriptor_key": "path",
        "descriptor_value": "/login",
        "headers": [{"name": ":path", "string_match": {"exact": "/login"}}],
    }});
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.rate_limits = json!([
            {"actions": [destination, user]},
            {"actions": [destination, user, login]},
        ]);
    });
    let login = |user: &str| envoy.get_path("/login").with("x-user", user);
    assert_eq!(login("ada").statuses(2), [200, 429]);
    // The refused request was not charged, so one unit is left.
    assert_eq!(envoy.get_as("ada").statuses(2), [200, 429]);
    assert_eq!(login("bob").status(), 200);
}

#[test]
fn one_descriptor_over_its_limit_refuses_the_request() {
    let rules = "
domain: shop
descriptors:
  - {key: service, value: checkout, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}
";
    let tidegate = Launch::with(rules).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.rate_limits = json!([
            {"actions": [fixed("service", "checkout")]},
            {"actions": [header("x-user", "user")]},
        ]);
    });
    assert_eq!(envoy.get_as("ada").statuses(3), [200, 429, 429]);
    // Refused requests of one user took nothing from the others.
    assert_eq!(envoy.get_as("bob").status(), 200);
    assert_eq!(envoy.get_as("cyd").status(), 200);
    assert_eq!(envoy.get_as("dan").status(), 429);
}
