//! Requests that cost more or less than one hit, and limits that they bring along.
//!
//! Envoy applies the hits of a single descriptor, and charging at the end, only in the configuration of
//! its filter; in `rate_limits` of the route it accepts and ignores them.

use serde_json::json;

use crate::bootstrap::{fixed, header, sets_metadata, takes_hits_from};
use crate::proxy::Proxy;
use crate::tidegate::Launch;

const TEN_EACH: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 10}
";

#[test]
fn a_request_costs_the_hits_that_it_names() {
    let tidegate = Launch::with(TEN_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
        setup.filters_before = vec![takes_hits_from("x-cost")];
    });
    let costing = |cost: &str| envoy.get_as("ada").with("x-cost", cost).send();
    let (first, second) = (costing("6"), costing("3"));
    assert_eq!((first.status, first.field("x-ratelimit-remaining")), (200, Some("4")));
    assert_eq!((second.status, second.field("x-ratelimit-remaining")), (200, Some("1")));
    assert_eq!(costing("2").status, 429);
    // Without a cost it is one hit, and one is left.
    assert_eq!(envoy.get_as("ada").statuses(2), [200, 429]);
}

#[test]
fn a_descriptor_costs_the_hits_of_its_route() {
    let tidegate = Launch::with(TEN_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter_rate_limits = json!([
            {"actions": [header("x-user", "user")], "hits_addend": {"number": 4}},
        ]);
    });
    assert_eq!(envoy.get_as("ada").statuses(3), [200, 200, 429]);
}

#[test]
fn a_descriptor_that_costs_nothing_only_looks() {
    let tidegate = Launch::with(TEN_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
        setup.filter_rate_limits = json!([
            {"actions": [header("x-user", "user")], "hits_addend": {"format": "%REQ(x-cost)%"}},
        ]);
    });
    let costing = |cost: &str| envoy.get_as("ada").with("x-cost", cost).send();
    assert_eq!(costing("9").field("x-ratelimit-remaining"), Some("1"));
    for _ in 0..2 {
        let looked = costing("0");
        assert_eq!((looked.status, looked.field("x-ratelimit-remaining")), (200, Some("1")));
    }
    assert_eq!(costing("1").status, 200);
    assert_eq!(costing("1").status, 429);
}

#[test]
fn a_descriptor_can_give_hits_back() {
    let tidegate = Launch::with(TEN_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
        setup.filter_rate_limits = json!([
            {"actions": [header("x-user", "user")], "hits_addend": {"number": 5}},
            {
                "actions": [header("x-back", "user")],
                "hits_addend": {"number": 3, "is_negative_hits": true},
            },
        ]);
    });
    assert_eq!(envoy.get_as("ada").statuses(3), [200, 200, 429]);
    let back = envoy.get().with("x-back", "ada").send();
    assert_eq!((back.status, back.field("x-ratelimit-remaining")), (200, Some("3")));
    assert_eq!(envoy.get_as("ada").status(), 429);
    assert_eq!(envoy.get().with("x-back", "ada").status(), 200);
    assert_eq!(envoy.get_as("ada").statuses(2), [200, 429]);
}

#[test]
fn a_request_can_be_charged_when_its_answer_is_sent() {
    let tidegate = Launch::with(TEN_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
        setup.filter_rate_limits = json!([
            {"actions": [header("x-user", "user")], "hits_addend": {"number": 0}},
            {
                "actions": [header("x-user", "user")],
                "hits_addend": {"format": "%REQ(x-cost)%"},
                "apply_on_stream_done": true,
            },
        ]);
    });
    let costing = |cost: &str| envoy.get_as("ada").with("x-cost", cost).send();
    assert_eq!(costing("10").field("x-ratelimit-remaining"), Some("10"));
    // Envoy does not wait for that charge, so it may come after the answer.
    crate::eventually("the charge", || {
        let looked = costing("0");
        (looked.field("x-ratelimit-remaining") == Some("0")).then_some(())
    });
}

#[test]
fn a_limit_from_metadata_overrides_the_rules() {
    let tidegate = Launch::with(TEN_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        let limit = json!({"limit": {"requests_per_unit": 1, "unit": "YEAR"}});
        setup.filters_before = vec![sets_metadata("contract", &limit)];
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
        setup.rate_limits = json!([{
            "actions": [header("x-user", "user"), fixed("kind", "contract")],
            "limit": {"dynamic_metadata": {
                "metadata_key": {"key": "contract", "path": [{"key": "limit"}]},
            }},
        }]);
    });
    let first = envoy.get_as("ada").send();
    assert_eq!(first.status, 200);
    assert_eq!(first.field("x-ratelimit-limit"), Some("1, 1;w=31536000"));
    assert_eq!(envoy.get_as("ada").status(), 429);
    assert_eq!(envoy.get_as("bob").status(), 200);
}
