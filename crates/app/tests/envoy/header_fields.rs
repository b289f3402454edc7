//! Header fields with the limits of a client: Envoy makes some from our answers and adds others as we ask it to.
//!
//! The filter's setting `enable_x_ratelimit_headers` has two values in Envoy
//! 1.40, `OFF` and `DRAFT_VERSION_03`; there is no other draft to choose. Both
//! are tested.

use std::ops::RangeInclusive;
use std::time::SystemTime;

use serde_json::json;

use crate::answers::TWO_EACH;
use crate::bootstrap::{fixed, header};
use crate::client::Answer;
use crate::proxy::Proxy;
use crate::tidegate::Launch;

const YEAR: u64 = 365 * 86_400;

/// Whole seconds until the window of a year ends.
#[expect(clippy::disallowed_methods, reason = "both processes go by the real clock")]
fn left_of_the_year() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    YEAR - now.as_secs() % YEAR
}

/// What `ask` gives, and the resets that are right for a moment within it.
fn timed(ask: impl FnOnce() -> Answer) -> (Answer, RangeInclusive<u64>) {
    let most = left_of_the_year();
    let answer = ask();
    (answer, left_of_the_year()..=most)
}

fn number(answer: &Answer, name: &str) -> u64 {
    let value = answer.field(name).unwrap_or_else(|| panic!("no {name}: {answer:?}"));
    value.parse().unwrap()
}

#[test]
fn envoy_shows_the_limit_and_what_is_left_of_it() {
    let rules = "
domain: shop
descriptors:
  - key: user
    rate_limit: {name: yearly, unit: year, requests_per_unit: 2}
";
    let tidegate = Launch::with(rules).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
    });
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let (answer, resets) = timed(|| envoy.get_as("ada").send());
        assert_eq!(answer.status, status);
        let policy = r#"2, 2;w=31536000;name="yearly""#;
        assert_eq!(answer.field("x-ratelimit-limit"), Some(policy));
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(remaining));
        let reset = number(&answer, "x-ratelimit-reset");
        assert!(resets.contains(&reset), "{reset} is not in {resets:?}");
    }
}

#[test]
fn envoy_shows_every_limit_with_its_window_the_tightest_first() {
    let rules = "
domain: shop
descriptors:
  - {key: service, value: checkout, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: user, rate_limit: {name: each, unit: year, requests_per_unit: 3}}
  - {key: address, rate_limit: {unlimited: true}}
";
    let tidegate = Launch::with(rules).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
        setup.rate_limits = json!([
            {"actions": [fixed("service", "checkout")]},
            {"actions": [header("x-user", "user")]},
            {"actions": [fixed("address", "anywhere")]},
        ]);
    });
    let (answer, resets) = timed(|| envoy.get_as("ada").send());
    let policies = r#"3, 1000;w=86400, 3;w=31536000;name="each""#;
    assert_eq!(answer.field("x-ratelimit-limit"), Some(policies));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("2"));
    assert!(resets.contains(&number(&answer, "x-ratelimit-reset")), "{answer:?}");
}

#[test]
fn no_fields_come_where_they_are_off() {
    let tidegate = Launch::with(TWO_EACH).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"enable_x_ratelimit_headers": "OFF"});
    });
    for status in [200, 200, 429] {
        let answer = envoy.get_as("ada").send();
        assert_eq!(answer.status, status);
        assert_eq!(answer.fields_with("ratelimit-"), Vec::<&str>::new());
    }
}

#[test]
fn tidegate_adds_fields_of_its_own_where_it_is_asked_to() {
    let tidegate = Launch::with(TWO_EACH).set("limiter.response_headers.enabled", "true").start();
    let envoy = Proxy::asking(&tidegate);
    for (status, remaining) in [(200, 1), (200, 0), (429, 0)] {
        let (answer, resets) = timed(|| envoy.get_as("ada").send());
        assert_eq!(answer.status, status);
        assert_eq!(number(&answer, "ratelimit-limit"), 2);
        assert_eq!(number(&answer, "ratelimit-remaining"), remaining);
        assert!(resets.contains(&number(&answer, "ratelimit-reset")), "{answer:?}");
    }
    // Nothing is known of a request that no limit meets.
    assert_eq!(envoy.get().send().fields_with("ratelimit-"), Vec::<&str>::new());
}

#[test]
fn the_fields_that_tidegate_adds_can_have_other_names() {
    let tidegate = Launch::with(TWO_EACH)
        .set("limiter.response_headers.enabled", "true")
        .set("limiter.response_headers.limit", "x-quota")
        .set("limiter.response_headers.remaining", "x-quota-left")
        .set("limiter.response_headers.reset", "x-quota-reset")
        .start();
    let envoy = Proxy::asking(&tidegate);
    let answer = envoy.get_as("ada").send();
    assert_eq!((number(&answer, "x-quota"), number(&answer, "x-quota-left")), (2, 1));
    assert_eq!(answer.fields_with("quota").len(), 3);
    assert_eq!(answer.fields_with("ratelimit-"), Vec::<&str>::new());
}

#[test]
fn envoy_can_use_the_metadata_of_rules() {
    let rules = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
    metadata: {plan: free}
";
    let tidegate = Launch::with(rules).set("limiter.dynamic_metadata", "true").start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        let from = |path: &str| format!("%DYNAMIC_METADATA(envoy.filters.http.ratelimit:{path})%");
        setup.route = json!({"response_headers_to_add": [
            {"header": {"key": "x-domain", "value": from("domain")}},
            {"header": {"key": "x-plan", "value": from("metadata:plan")}},
        ]});
    });
    let answer = envoy.get_as("ada").send();
    assert_eq!(answer.field("x-domain"), Some("shop"));
    assert_eq!(answer.field("x-plan"), Some("free"));
}
