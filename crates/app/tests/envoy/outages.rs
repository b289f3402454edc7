//! Tidegate goes away and comes back; Envoy stays.
//!
//! The rule refuses everything, so that 429 means that Tidegate was asked.

use serde_json::json;

use crate::eventually;
use crate::proxy::Proxy;
use crate::tidegate::{Launch, Tidegate};

const NOTHING_PASSES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 0}
";

/// On a loopback address that no other program uses, so that the port is still free when Tidegate
/// starts again.
fn apart(launch: Launch) -> Tidegate {
    launch.listening("127.7.7.7:0").start()
}

#[test]
fn requests_pass_while_tidegate_is_away_and_are_limited_again_when_it_is_back() {
    let tidegate = apart(Launch::with(NOTHING_PASSES));
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"failure_mode_deny": false});
    });
    assert_eq!(envoy.get_as("ada").status(), 429);
    let (status, launch) = tidegate.stop();
    assert!(status.success(), "{status}");
    assert_eq!(envoy.get_as("ada").statuses(3), [200; 3]);
    assert_eq!(envoy.asked("failure_mode_allowed"), 3);
    let _tidegate = launch.start();
    eventually("a refusal", || (envoy.get_as("ada").status() == 429).then_some(()));
}

#[test]
fn requests_fail_while_tidegate_is_away_where_envoy_is_told_so() {
    let tidegate = apart(Launch::with(NOTHING_PASSES));
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({"failure_mode_deny": true});
    });
    assert_eq!(envoy.get_as("ada").status(), 429);
    let (_, launch) = tidegate.stop();
    assert_eq!(envoy.get_as("ada").statuses(3), [500; 3]);
    let _tidegate = launch.start();
    eventually("a refusal", || (envoy.get_as("ada").status() == 429).then_some(()));
}

#[test]
fn envoy_sees_by_health_checks_that_tidegate_is_away_and_back() {
    let tidegate = apart(Launch::with(NOTHING_PASSES));
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.cluster = json!({"health_checks": [{
            "grpc_health_check": {"service_name": "ratelimit"},
            "timeout": "30s",
            "interval": "0.1s",
            "no_traffic_interval": "0.1s",
            "no_traffic_healthy_interval": "0.1s",
            "unhealthy_threshold": 1,
            "healthy_threshold": 1,
        }]});
    });
    eventually("health", || envoy.finds_tidegate_healthy().then_some(()));
    assert!(envoy.count_of("cluster.tidegate.health_check.success") > 0);
    let (_, launch) = tidegate.stop();
    eventually("failing checks", || (!envoy.finds_tidegate_healthy()).then_some(()));
    let _tidegate = launch.start();
    eventually("health again", || envoy.finds_tidegate_healthy().then_some(()));
    assert_eq!(envoy.get_as("ada").status(), 429);
}
