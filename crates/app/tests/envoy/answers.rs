//! What clients of Envoy get: their answer, or a refusal.

use serde_json::json;

use crate::bootstrap::fixed;
use crate::proxy::Proxy;
use crate::tidegate::Launch;

/// Two requests a year for each user.
pub(crate) const TWO_EACH: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
";

#[test]
fn an_admitted_request_reaches_the_service() {
    let tidegate = Launch::with(TWO_EACH).start();
    let envoy = Proxy::asking(&tidegate);
    let answer = envoy.get_as("ada").send();
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("x-user: ada"), "{answer:?}");
    // It passed because Tidegate admitted it, not because Envoy skipped the call.
    assert_eq!(envoy.asked("ok"), 1);
    assert_eq!(envoy.asked("error"), 0);
}

#[test]
fn a_request_over_its_limit_gets_429_and_says_who_refused() {
    let tidegate = Launch::with(TWO_EACH).start();
    let envoy = Proxy::asking(&tidegate);
    assert_eq!(envoy.get_as("ada").statuses(2), [200, 200]);
    let refused = envoy.get_as("ada").send();
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("x-envoy-ratelimited"), Some("true"));
    assert_eq!(refused.body, "");
    assert_eq!(envoy.asked("over_limit"), 1);
}

#[test]
fn the_status_of_refusals_is_envoys_to_choose() {
    let tidegate = Launch::with(TWO_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"rate_limited_status": {"code": "ServiceUnavailable"}});
    });
    assert_eq!(envoy.get_as("ada").statuses(3), [200, 200, 503]);
}

#[test]
fn a_grpc_client_over_its_limit_gets_resource_exhausted() {
    let tidegate = Launch::with(TWO_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"rate_limited_as_resource_exhausted": true});
    });
    let call = envoy.get_as("ada").with("content-type", "application/grpc");
    assert_eq!(call.statuses(2), [200, 200]);
    let refused = call.send();
    assert_eq!((refused.status, refused.field("grpc-status")), (200, Some("8")));
}

#[test]
fn a_domain_without_rules_is_not_limited() {
    let tidegate = Launch::with(TWO_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"domain": "elsewhere"});
    });
    assert_eq!(envoy.get_as("ada").statuses(4), [200; 4]);
    assert_eq!(envoy.asked("ok"), 4);
}

#[test]
fn two_domains_count_the_same_descriptor_apart() {
    let rules = tempfile::tempdir().unwrap();
    let limited = |domain: &str, limit: u32| {
        let text = format!(
            "{{domain: {domain}, descriptors: [{{key: user, rate_limit: \
             {{unit: year, requests_per_unit: {limit}}}}}]}}"
        );
        std::fs::write(rules.path().join(format!("{domain}.yaml")), text).unwrap();
    };
    limited("shop", 1);
    limited("depot", 2);
    let folder = rules.path().display().to_string();
    let tidegate = Launch::bare().argument("--rules").argument(&folder).start();

    let shop = Proxy::asking(&tidegate);
    let depot = Proxy::asking_with(&tidegate, |setup| setup.filter = json!({"domain": "depot"}));
    assert_eq!(shop.get_as("ada").statuses(2), [200, 429]);
    assert_eq!(depot.get_as("ada").statuses(3), [200, 200, 429]);
}

#[test]
fn two_envoys_that_ask_one_tidegate_share_its_counters() {
    let rules = "
domain: shop
descriptors:
  - {key: service, value: checkout, rate_limit: {unit: year, requests_per_unit: 2}}
";
    let tidegate = Launch::with(rules).start();
    let asking = || {
        Proxy::asking_with(&tidegate, |setup| {
            setup.rate_limits = json!([{"actions": [fixed("service", "checkout")]}]);
        })
    };
    let (one, other) = (asking(), asking());
    assert_eq!([one.get().status(), other.get().status()], [200, 200]);
    assert_eq!([one.get().status(), other.get().status()], [429, 429]);
}
