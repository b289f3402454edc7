//! Servers that are far, or silent.

use std::time::Duration;

use crate::caller::{Caller, UNHURRIED, adds};
use tidegate_redis_link::FailureKind;
use tidegate_test_servers::eventually;
use tidegate_test_servers::relay::Relay;
use tidegate_test_servers::server::Server;

/// Far enough that waiting for a reply before the next call would double its latency.
const FAR: Duration = Duration::from_millis(20);

/// The calls that a silent server keeps waiting, at most.
const SILENT_CALLERS_MAX: usize = 64;

fn count(server: &Server, key: &str) -> Option<u64> {
    server.ask(&["GET", key]).text()?.parse().ok()
}

#[test]
fn calls_to_a_far_server_do_not_wait_for_replies_to_earlier_ones() {
    let server = Server::redis();
    let relay = Relay::to(server.port());
    relay.delay(FAR, Duration::ZERO);
    // The silence must not end the connection.
    let caller = Caller::connected_to(&format!("{}?connect_timeout=60s", relay.url()));
    relay.hold_replies();
    let mut calls = Vec::new();
    for number in 1..=20 {
        calls.push(caller.spawn_add("a"));
        eventually("that the server has counted the call", || {
            (count(&server, "a") == Some(number)).then_some(())
        });
    }
    relay.release_replies();
    let replies: Vec<u64> = calls.into_iter().map(|call| call.join().unwrap().unwrap()).collect();
    assert_eq!(replies, (1..=20).collect::<Vec<_>>());
}

#[test]
fn few_calls_wait_for_a_server_that_is_silent_and_the_others_are_rejected_at_once() {
    let server = Server::redis();
    let caller = Caller::connected_to(&format!("{}?connect_timeout=60s", server.url()));
    assert_eq!(caller.add("a"), Ok(1));
    server.freeze();
    let timeout = caller.add_within("a", Duration::from_millis(20)).unwrap_err();
    assert_eq!(timeout.kind(), FailureKind::Timeout);
    let calls: Vec<_> = (0..100).map(|_| caller.spawn_add("a")).collect();
    let overloaded = || {
        let errors = caller.client.figures().errors;
        errors.get(FailureKind::Overloaded as usize).copied().unwrap_or_default()
    };
    eventually("that the others are rejected", || {
        (overloaded() == 100 - SILENT_CALLERS_MAX as u64).then_some(())
    });
    eventually("that the others have gone", || {
        (caller.client.figures().waiting == SILENT_CALLERS_MAX).then_some(())
    });
    server.thaw();
    let replies: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    let rejected = replies.iter().filter_map(|reply| reply.as_ref().err());
    assert!(rejected.clone().all(|error| !error.may_have_run()), "{replies:?}");
    assert!(rejected.clone().all(|error| error.to_string().contains("silent")), "{replies:?}");
    assert_eq!(replies.iter().flatten().count(), SILENT_CALLERS_MAX);
    assert!(caller.send(adds(1, 0, &["a"]), UNHURRIED).is_ok(), "it has answered since");
}

#[test]
fn a_call_that_was_never_sent_has_not_run_when_it_times_out() {
    let server = Server::redis();
    server.freeze();
    // It cannot be connected to, so nothing is sent.
    let caller = Caller::to(&format!("{}?connect_timeout=60s", server.url()));
    let error = caller.add_within("a", Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.kind(), FailureKind::Timeout);
    assert!(!error.may_have_run(), "{error}");
    server.thaw();
    caller.wait_until_connected();
    assert_eq!(caller.add("a"), Ok(1));
}
