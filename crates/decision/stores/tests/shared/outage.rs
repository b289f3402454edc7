//! Decisions while the remote is slow, silent or gone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_algorithms::{
    Clock, Concurrency, FixedWindow, Holder, Limit, Period, Tenure, TokenBucket, Window,
};
use tidegate_stores::{
    Basis, Check, Consistency, CounterStore, OnStoreError, Policy, Role, StoreError, Verb,
};
use tokio::time::Instant;

use super::fake::Condition;
use super::world::{Node, World, check, pass};

const DEADLINE: Duration = Duration::from_millis(10);

fn hourly(limit: u64) -> Limit {
    Limit::new(FixedWindow::new(limit, Window::Every(Period::HOUR)))
}

fn asking<'a>(name: &str, limit: &'a Limit, on_store_error: OnStoreError) -> Check<'a> {
    check(name, limit, 1, Policy { consistency: Consistency::Exact, on_store_error })
}

fn local<'a>(name: &str, limit: &'a Limit) -> Check<'a> {
    asking(name, limit, OnStoreError::Local)
}

/// Has the breaker open.
async fn cut(node: &Node, condition: Condition) {
    node.line.set(condition);
    let limit = hourly(1);
    for _ in 0..5 {
        let _ = node.send(Verb::Check, &[asking("cut", &limit, OnStoreError::Allow)]).await;
    }
    assert!(node.store.is_degraded());
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_longer_than_its_deadline_and_none_while_the_breaker_is_open() {
    for condition in [Condition::Silent, Condition::Deaf] {
        let world = World::new();
        let node = world.node(1);
        let limit = hourly(1_000);
        assert!(node.admits(local("a", &limit)).await);
        node.line.set(condition);
        let mut waited = Vec::new();
        for _ in 0..100 {
            let begun = Instant::now();
            assert!(node.admits(local("a", &limit)).await);
            waited.push(begun.elapsed());
            pass(20).await;
        }
        assert!(waited.iter().all(|waited| *waited <= DEADLINE + Duration::from_millis(2)));
        assert!(waited.iter().filter(|waited| !waited.is_zero()).count() <= 5);
        assert_eq!(node.metrics().outages, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_may_bring_its_own_deadline() {
    let world = World::new();
    let node = world.node(1);
    node.line.set(Condition::Silent);
    let limit = hourly(10);
    let checks = [local("a", &limit)];
    let batch = tidegate_stores::Batch {
        within: Some(Duration::from_millis(3)),
        ..tidegate_stores::Batch::new(
            Verb::Check,
            tidegate_stores::Charge::AllOrNothing,
            node.clock.now(),
            &checks,
        )
    };
    let begun = Instant::now();
    node.store.apply(&batch, &mut tidegate_stores::Answers::new()).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_millis(4), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn each_policy_decides_as_it_says() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(3);
    cut(&node, Condition::Refusing).await;
    let (decision, basis) = node.ask(asking("a", &limit, OnStoreError::Allow)).await;
    assert!(decision.is_admitted());
    assert_eq!(basis, Basis::Unasked);
    let denied = node.send(Verb::Check, &[asking("a", &limit, OnStoreError::Deny)]).await;
    assert!(matches!(denied, Err(StoreError::Unavailable { .. })));
    assert_eq!(node.burst(local("a", &limit), 5).await, 3);
    assert_eq!(node.ask(local("a", &limit)).await.1, Basis::Local);
    let metrics = node.metrics();
    let fell_back = [metrics.fell_back_local, metrics.fell_back_allow, metrics.fell_back_deny];
    assert_eq!(fell_back, [6, 6, 1], "five to open the breaker");
}

#[tokio::test(start_paused = true)]
async fn a_node_goes_on_with_its_share_of_what_was_left() {
    let world = World::new();
    let nodes = [world.node(1), world.node(2), world.node(3), world.node(4)];
    let limit = hourly(100);
    pass(2_000).await;
    for node in &nodes {
        assert_eq!(node.metrics().nodes, 4);
        assert_eq!(node.burst(local("a", &limit), 14).await, 14);
    }
    let mut admitted = 56;
    for node in &nodes {
        // Each node knows the last answer that it received.
        admitted += node.burst(local("a", &limit), 1).await;
    }
    for node in &nodes {
        cut(node, Condition::Refusing).await;
        admitted += node.burst(local("a", &limit), 100).await;
    }
    assert!((95..=100).contains(&admitted), "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_smaller_than_the_fleet_still_admits_one_for_each_node() {
    let world = World::new();
    let nodes = [world.node(1), world.node(2), world.node(3), world.node(4)];
    pass(2_000).await;
    let limit = hourly(2);
    for node in &nodes {
        cut(node, Condition::Refusing).await;
        assert_eq!(node.burst(local("a", &limit), 5).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_admitted_meanwhile_is_charged_once() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(100);
    assert_eq!(node.burst(local("a", &limit), 10).await, 10);
    cut(&node, Condition::Refusing).await;
    assert_eq!(node.burst(local("a", &limit), 25).await, 25);
    node.line.set(Condition::Well);
    pass(4_000).await;
    assert!(!node.store.is_degraded());
    assert_eq!(world.left("a", &limit), 65);
    assert_eq!(node.metrics().owing, 0);
    assert_eq!(node.burst(local("a", &limit), 100).await, 65);
    assert!(node.metrics().degraded_for >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_is_shown_until_the_remote_has_it() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(100);
    cut(&node, Condition::Refusing).await;
    assert_eq!(node.burst(local("a", &limit), 25).await, 25);
    node.line.slow(Duration::from_millis(40));
    node.line.set(Condition::Well);
    while world.left("a", &limit) == 100 {
        assert_eq!(node.metrics().owing, 1);
        pass(1).await;
    }
    pass(100).await;
    assert_eq!((node.metrics().owing, world.left("a", &limit)), (0, 75));
}

#[tokio::test(start_paused = true)]
async fn a_charge_that_failed_is_owed_once() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(100);
    cut(&node, Condition::Refusing).await;
    assert_eq!(node.burst(local("a", &limit), 25).await, 25);
    node.line.slow(Duration::from_millis(40));
    node.line.set(Condition::Well);
    while node.store.is_degraded() {
        pass(1).await;
    }
    // Away again before anything could be charged, and for a while.
    node.line.set(Condition::Refusing);
    pass(3_000).await;
    assert_eq!((node.metrics().owing, world.left("a", &limit)), (1, 100));
    assert_eq!(node.burst(local("a", &limit), 100).await, 75, "what was admitted counts once");
    node.line.set(Condition::Well);
    pass(4_000).await;
    assert_eq!((node.metrics().owing, world.left("a", &limit)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_put_back_does_not_put_off_what_is_owed() {
    let mut owing = 0;
    for seed in 1..=8 {
        let world = World::new();
        let node = world.node(seed);
        let limit = hourly(100);
        cut(&node, Condition::Refusing).await;
        let admitted = node.burst(local("a", &limit), 25).await as u64;
        node.line.set(Condition::Well);
        while node.store.is_degraded() {
            pass(10).await;
        }
        owing += node.metrics().owing;
        node.clock.step(-3_600_000);
        pass(3_000).await;
        assert_eq!(node.metrics().owing, 0, "seed {seed}");
        assert!(world.left("a", &limit) <= 100 - admitted, "seed {seed}");
    }
    assert!(owing > 0, "some had to wait their turn");
}

#[tokio::test(start_paused = true)]
async fn what_the_remote_may_have_charged_is_not_charged_again() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(100);
    node.line.set(Condition::Deaf);
    assert_eq!(node.burst(local("a", &limit), 10).await, 10);
    node.line.set(Condition::Well);
    pass(4_000).await;
    assert_eq!(world.left("a", &limit), 90, "five by the remote, five charged afterwards");
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_over_is_not_charged_afterwards() {
    let world = World::new();
    let node = world.node(1);
    let limit = Limit::new(TokenBucket::new(50, Period::SECOND, 50));
    cut(&node, Condition::Refusing).await;
    for _ in 0..100 {
        node.admits(local("a", &limit)).await;
        pass(50).await;
    }
    node.line.set(Condition::Well);
    pass(4_000).await;
    assert_eq!(world.left("a", &limit), 50, "a second's worth refills in a second");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_charges_nothing_in_an_outage_either() {
    let world = World::new();
    let node = world.node(1);
    let (small, large) = (hourly(2), hourly(100));
    cut(&node, Condition::Refusing).await;
    let checks = [local("large", &large), local("small", &small)];
    let mut admitted = 0;
    for _ in 0..10 {
        let decided = node.send(Verb::Check, &checks).await.unwrap();
        admitted += usize::from(decided.iter().all(|decided| decided.0.is_admitted()));
    }
    assert_eq!(admitted, 2);
    assert_eq!(node.burst(local("large", &large), 200).await, 98);
}

#[tokio::test(start_paused = true)]
async fn one_limit_that_denies_is_enough_and_nothing_is_charged() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(10);
    cut(&node, Condition::Refusing).await;
    let denying = asking("b", &limit, OnStoreError::Deny);
    for _ in 0..20 {
        assert!(node.send(Verb::Check, &[local("a", &limit), denying]).await.is_err());
    }
    assert_eq!(node.burst(local("a", &limit), 20).await, 10);
    let observed = Check { role: Role::Observed, ..denying };
    let other = local("c", &limit);
    assert!(node.send(Verb::Check, &[other, observed]).await.unwrap()[0].0.is_admitted());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_without_the_remote_enforces_and_heals() {
    let world = World::new();
    world.server.set(Condition::Refusing);
    let node = world.node(1);
    let limit = hourly(10);
    assert_eq!(node.burst(local("a", &limit), 20).await, 10);
    world.server.set(Condition::Well);
    pass(4_000).await;
    assert_eq!(world.left("a", &limit), 0);
    assert_eq!(node.ask(local("b", &limit)).await.1, Basis::Exact);
}

#[tokio::test(start_paused = true)]
async fn nodes_come_back_one_after_the_other() {
    let world = World::new();
    let nodes: Vec<Node> = (0..20).map(|seed| world.node(seed)).collect();
    let limit = hourly(1_000);
    for node in &nodes {
        cut(node, Condition::Refusing).await;
        node.burst(local("a", &limit), 10).await;
        node.line.set(Condition::Well);
    }
    let mut most = 0;
    let before = world.server.checks.load(Ordering::Relaxed);
    let mut last = before;
    for _ in 0..40 {
        pass(100).await;
        let checks = world.server.checks.load(Ordering::Relaxed);
        most = most.max(checks - last);
        last = checks;
    }
    assert_eq!(last - before, 20, "one charge for each node");
    assert!(most <= 8, "{most} in one tenth of a second");
}

#[tokio::test(start_paused = true)]
async fn slots_taken_in_an_outage_are_given_back() {
    let world = World::new();
    let node = world.node(1);
    let limit = Limit::new(Concurrency::new(2, Period::HOUR).unwrap());
    cut(&node, Condition::Refusing).await;
    let held = |holder| Check { holder: Holder(holder), ..local("a", &limit) };
    assert!(node.admits(held(1)).await && node.admits(held(2)).await);
    assert!(!node.admits(held(3)).await);
    let now = node.clock.now();
    let back = [held(1)];
    let charge = tidegate_stores::Charge::Always;
    node.store.give_back(&tidegate_stores::Batch::new(Verb::Refund, charge, now, &back));
    assert!(node.admits(held(3)).await);
}

#[tokio::test(start_paused = true)]
async fn a_slot_taken_in_an_outage_keeps_its_time_to_live_whatever_its_lease() {
    let world = World::new();
    let node = world.node(1);
    let limit = Limit::new(Concurrency::new(1, Period::MINUTE).unwrap());
    cut(&node, Condition::Refusing).await;
    let held = |holder| Check {
        holder: Holder(holder),
        tenure: Tenure::Lease(Period::SECOND),
        ..local("a", &limit)
    };
    assert!(node.admits(held(1)).await);
    pass(59_000).await;
    assert!(!node.admits(held(2)).await, "the node does not renew it");
    pass(1_000).await;
    assert!(node.admits(held(2)).await);
}

#[tokio::test(start_paused = true)]
async fn a_peek_in_an_outage_charges_nothing() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(10);
    cut(&node, Condition::Refusing).await;
    for _ in 0..20 {
        let peeked = node.send(Verb::Peek, &[local("a", &limit)]).await.unwrap()[0];
        assert_eq!((peeked.0.remaining, peeked.1), (10, Basis::Local));
    }
}
