//! Servers that answer with an error: each limit follows its own policy, the error states the reason, and no caller is
//! refused as over a limit.

use tidegate_stores::{
    Basis, Check, Consistency, FailureKind, OnStoreError, Policy, StoreError, Verb,
};

use crate::fleet::{Fleet, Plan};
use crate::load::{Subject, lasting};
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::{Server, Setup};

/// A subject with this policy.
fn subject(name: &'static str, on_store_error: OnStoreError) -> Subject {
    let subject = Subject::new(name, lasting(1_000), Consistency::Exact);
    Subject { policy: Policy { on_store_error, ..subject.policy }, ..subject }
}

/// Sends checks under every policy until the failure shows; then all follow their policy.
#[track_caller]
fn assert_policies_followed(fleet: &Fleet, kind: FailureKind, words: &[&str]) {
    let [local, allow, deny] = [
        subject("local", OnStoreError::Local),
        subject("allow", OnStoreError::Allow),
        subject("deny", OnStoreError::Deny),
    ];
    let ask = |check: Check<'_>| fleet.send(0, Verb::Check, check);
    // A request that is out when it begins may see the connection end instead.
    let error = eventually(&format!("a failure of kind {kind:?}"), || {
        Some(ask(deny.check()).err()?).filter(|error| error.kind() == kind)
    });
    assert_worded(&error, words);
    fleet.wait_until_degraded();
    for _ in 0..10 {
        let answer = ask(local.check()).unwrap();
        assert_eq!((answer.basis, answer.decision.is_admitted()), (Basis::Local, true));
        let answer = ask(allow.check()).unwrap();
        assert_eq!((answer.basis, answer.decision.is_admitted()), (Basis::Unasked, true));
        // Undecided, which is not over the limit.
        let error = ask(deny.check()).unwrap_err();
        assert!(!error.may_have_run(), "{error}");
    }
    let metrics = fleet.nodes[0].metrics();
    assert!(metrics.fell_back_local >= 10 && metrics.fell_back_allow >= 10);
    assert!(metrics.fell_back_deny >= 10 && metrics.degraded);
}

#[track_caller]
fn assert_worded(error: &StoreError, words: &[&str]) {
    let said = error.to_string();
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

/// The store decides under every policy again, and has been charged for the node's admissions.
#[track_caller]
fn assert_healed(fleet: &Fleet, fault: &str) {
    let took = fleet.wait_until_well();
    println!("{fault}: the store is asked again after {took:?}");
    for policy in [OnStoreError::Local, OnStoreError::Allow, OnStoreError::Deny] {
        let check = subject("healed", policy);
        eventually("an answer of the store", || {
            let answer = fleet.send(0, Verb::Check, check.check()).ok()?;
            (answer.basis == Basis::Exact && answer.decision.is_admitted()).then_some(())
        });
    }
    fleet.wait_until_settled();
    if fleet.sum(|metrics| metrics.unsure) == 0 {
        let counted = |name, policy| fleet.counted(&subject(name, policy));
        assert_eq!(counted("local", OnStoreError::Local), 10);
        assert_eq!(counted("allow", OnStoreError::Allow), 0);
        assert_eq!(counted("deny", OnStoreError::Deny), 0);
    }
}

#[test]
fn a_server_without_memory_is_not_taken_for_a_limit_that_is_used_up() {
    let server = Server::redis();
    let fleet = Plan::new(1, &server.url()).start();
    server.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_policies_followed(&fleet, FailureKind::Full, &["no memory left", "maxmemory"]);
    server.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_healed(&fleet, "out of memory");
}

#[test]
fn a_replica_is_not_taken_for_a_limit_that_is_used_up() {
    let master = Server::redis();
    let server = Server::redis();
    let fleet = Plan::new(1, &server.url()).start();
    server.tell(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    assert_policies_followed(&fleet, FailureKind::ReadOnly, &["replica", "master"]);
    server.tell(&["REPLICAOF", "NO", "ONE"]);
    assert_healed(&fleet, "read-only replica");
}

#[test]
fn a_server_that_loads_is_not_taken_for_a_limit_that_is_used_up() {
    let mut server =
        Setup::redis().with("appendonly", &["yes"]).with("enable-debug-command", &["yes"]).start();
    let fleet = Plan::new(1, &server.url()).start();
    // Each key takes five milliseconds to load, so that there is something to see.
    server.tell(&["DEBUG", "POPULATE", "1000"]);
    server.tell(&["BGREWRITEAOF"]);
    eventually("that the data are on disk", || {
        let field = |name| server.info(&["INFO", "persistence"], name);
        let done =
            field("aof_rewrite_in_progress")? == "0" && field("aof_rewrite_scheduled")? == "0";
        done.then_some(())
    });
    server.kill();
    server.restart_with(&[
        ("key-load-delay", "5000"),
        ("loading-process-events-interval-bytes", "1024"),
    ]);
    assert_policies_followed(&fleet, FailureKind::Loading, &["still reads its data"]);
    assert_healed(&fleet, "loading");
}

#[test]
fn a_password_that_is_asked_for_is_not_taken_for_a_limit_that_is_used_up() {
    let server = Setup::redis().with_password("right").start();
    server.tell(&["CONFIG", "SET", "requirepass", ""]);
    let fleet = Plan::new(1, &server.url()).start();
    server.tell(&["CONFIG", "SET", "requirepass", "right"]);
    server.tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_policies_followed(&fleet, FailureKind::Auth, &["asks for a password"]);
    server.tell(&["CONFIG", "SET", "requirepass", ""]);
    assert_healed(&fleet, "auth");
}
