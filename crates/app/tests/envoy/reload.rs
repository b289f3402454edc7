//! Rules change while requests are under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use crate::eventually;
use crate::proxy::Proxy;
use crate::tidegate::Launch;

/// At once, so that some are under way at any moment of the change.
const CLIENTS: usize = 8;

/// What each client asks at least before the rules change, and again after.
const REQUESTS_EACH: usize = 25;

/// Raises a flag when it goes, so that who waits for it ends however the test does.
struct Raises<'a>(&'a AtomicBool);

impl Drop for Raises<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn limited_to(limit: u32) -> String {
    format!(
        "{{domain: shop, descriptors: [{{key: user, rate_limit: \
         {{unit: year, requests_per_unit: {limit}}}}}]}}"
    )
}

#[test]
fn rules_change_under_load_without_one_failed_request() {
    let tidegate = Launch::with(&limited_to(1_000_000)).set("rules.debounce", "10ms").start();
    let envoy = Proxy::asking_with(&tidegate, |setup| {
        setup.filter = json!({
            "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
            "failure_mode_deny": true,
        });
    });
    let changed = AtomicBool::new(false);
    let load = || {
        let before = envoy.get_as("crowd").statuses(REQUESTS_EACH);
        let mut during = Vec::new();
        while !changed.load(Ordering::Acquire) {
            during.push(envoy.get_as("crowd").status());
        }
        (before, during, envoy.get_as("crowd").statuses(REQUESTS_EACH))
    };
    let seen: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(load)).collect();
        let waiting = Raises(&changed);
        // Some requests are through, and more are on their way.
        eventually("load", || (envoy.asked("ok") > 100).then_some(()));
        tidegate.change_rules(&limited_to(2));
        eventually("the new limit", || {
            let answer = envoy.get_as("watcher").send();
            (answer.field("x-ratelimit-limit") == Some("2, 2;w=31536000")).then_some(())
        });
        drop(waiting);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for (before, during, after) in seen {
        let all_decided =
            |statuses: &[u16]| statuses.iter().all(|status| matches!(status, 200 | 429));
        assert!(all_decided(&before), "{before:?}");
        assert!(all_decided(&during), "{during:?}");
        // Units used before the change still count.
        assert_eq!(after, [429; REQUESTS_EACH]);
    }
    // The new limit is the one that holds.
    assert_eq!(envoy.get_as("newcomer").statuses(3), [200, 200, 429]);
    assert_eq!(envoy.asked("error"), 0);
}

#[test]
fn rules_with_a_mistake_leave_the_good_ones_in_force() {
    let tidegate = Launch::with(&limited_to(2)).set("rules.debounce", "10ms").start();
    let envoy = Proxy::asking(&tidegate);
    assert_eq!(envoy.get_as("ada").statuses(3), [200, 200, 429]);
    tidegate.change_rules("{domain: shop, descriptors: [{kye: user}]}");
    tidegate.waits_for_complaint("kye");
    assert_eq!(envoy.get_as("ada").status(), 429);
    assert_eq!(envoy.get_as("bob").statuses(3), [200, 200, 429]);
}
