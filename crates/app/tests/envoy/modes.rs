//! Limits that count and do not refuse.

use serde_json::json;

use crate::answers::TWO_EACH;
use crate::proxy::Proxy;
use crate::tidegate::Launch;

#[test]
fn a_rule_in_shadow_mode_counts_and_refuses_no_request() {
    let rules = "
domain: shop
descriptors:
  - key: user
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 2}
";
    let tidegate = Launch::with(rules).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
    });
    for remaining in ["1", "0", "0", "0"] {
        let answer = envoy.get_as("ada").send();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(remaining));
    }
}

#[test]
fn in_global_shadow_mode_no_request_is_refused() {
    let tidegate = Launch::with(TWO_EACH).set("limiter.shadow", "true").start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
    });
    for remaining in ["1", "0", "0", "0"] {
        let answer = envoy.get_as("ada").send();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(remaining));
    }
}

#[test]
fn an_unlimited_rule_admits_everybody_and_shows_no_limit() {
    let rules = "
domain: shop
descriptors:
  - {key: user, value: root, rate_limit: {unlimited: true}}
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}
";
    let tidegate = Launch::with(rules).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
    });
    for _ in 0..3 {
        let answer = envoy.get_as("root").send();
        assert_eq!((answer.status, answer.field("x-ratelimit-limit")), (200, None));
    }
    assert_eq!(envoy.get_as("ada").statuses(2), [200, 429]);
}
