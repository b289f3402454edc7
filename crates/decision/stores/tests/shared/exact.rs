//! Exact limits: every check is a call.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_algorithms::{
    Clock, FixedWindow, LeakyBucket, Limit, Period, SlidingLog, SlidingWindow, Soft, TokenBucket,
    Window,
};
use tidegate_stores::{
    Basis, Batch, Charge, Check, Consistency, Policy, Role, SharedSettings, Verb,
};

use super::world::{World, check, pass, policy};

fn exact() -> Policy {
    policy(Consistency::Exact)
}

fn bucket(burst: u64) -> Limit {
    Limit::new(TokenBucket::new(10, Period::SECOND, burst))
}

#[tokio::test(start_paused = true)]
async fn nodes_admit_exactly_the_limit_together() {
    let world = World::new();
    let (one, two) = (world.node(1), world.node(2));
    let limit = bucket(7);
    let check = check("a", &limit, 1, exact());
    assert_eq!(one.burst(check, 4).await + two.burst(check, 10).await, 7);
    assert_eq!(one.ask(check).await.1, Basis::Exact);
}

#[tokio::test(start_paused = true)]
async fn a_key_over_its_limit_is_not_asked_for_until_it_can_admit() {
    let world = World::new();
    let node = world.node(1);
    let limit = bucket(5);
    let check = check("a", &limit, 1, exact());
    pass(50).await;
    assert_eq!(node.burst(check, 5).await, 5);
    assert!(!node.admits(check).await);
    let asked = world.server.calls.load(Ordering::Relaxed);
    for _ in 0..9 {
        pass(10).await;
        assert!(!node.admits(check).await);
    }
    assert_eq!(world.server.calls.load(Ordering::Relaxed), asked);
    assert_eq!(node.metrics().cached_refusals, 9);
    pass(10).await;
    assert!(node.admits(check).await, "ten a second: the next one after 100 ms");
}

#[tokio::test(start_paused = true)]
async fn what_another_node_gives_back_is_noticed_within_the_stated_time() {
    let world = World::new();
    let (one, two) = (world.node(1), world.node(2));
    let limit = Limit::new(FixedWindow::new(5, Window::Every(Period::DAY)));
    let check = check("a", &limit, 1, exact());
    assert_eq!(one.burst(check, 6).await, 5);
    two.send(Verb::Reset, &[check]).await.unwrap();
    assert!(!one.admits(check).await);
    pass(250).await;
    assert!(one.admits(check).await);
}

#[tokio::test(start_paused = true)]
async fn what_this_node_gives_back_is_noticed_at_once() {
    let world = World::new();
    let node = world.node(1);
    let limit = Limit::new(FixedWindow::new(5, Window::Every(Period::DAY)));
    let check = check("a", &limit, 1, exact());
    assert_eq!(node.burst(check, 6).await, 5);
    node.send(Verb::Refund, &[check]).await.unwrap();
    assert!(node.admits(check).await);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_because_of_a_duplicate_check_is_not_cached() {
    let world = World::new();
    let node = world.node(1);
    let limit = bucket(5);
    let three = check("a", &limit, 3, exact());
    let decided = node.send(Verb::Check, &[three, three]).await.unwrap();
    assert!(!decided[1].0.is_admitted(), "six of five");
    assert!(node.admits(three).await);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_one_mode_charges_no_other() {
    let world = World::new();
    let node = world.node(1);
    let large = Limit::new(FixedWindow::new(100, Window::Every(Period::DAY)));
    let small = bucket(1);
    let leased = check("leased", &large, 1, policy(Consistency::Leased));
    let eventual = check("eventual", &large, 1, policy(Consistency::Eventual));
    let exact = check("exact", &small, 1, exact());
    let all = [leased, eventual, exact];
    assert!(
        node.send(Verb::Check, &all).await.unwrap().iter().all(|decided| decided.0.is_admitted())
    );
    for _ in 0..50 {
        let decided = node.send(Verb::Check, &all).await.unwrap();
        assert!(!decided[2].0.is_admitted());
        assert_eq!(decided[0].0.taken + decided[1].0.taken, 0);
    }
    assert_eq!(node.burst(leased, 200).await, 99);
    assert_eq!(node.burst(eventual, 200).await, 99);
}

#[tokio::test(start_paused = true)]
async fn a_leased_refusal_keeps_exact_limits_uncharged() {
    let world = World::new();
    let node = world.node(1);
    let (small, large) = (bucket(16), bucket(100));
    let leased = check("leased", &small, 1, policy(Consistency::Leased));
    let exact = check("exact", &large, 1, exact());
    let mut admitted = 0;
    for _ in 0..30 {
        let decided = node.send(Verb::Check, &[leased, exact]).await.unwrap();
        admitted += u64::from(decided.iter().all(|decided| decided.0.is_admitted()));
    }
    assert!((10..16).contains(&admitted), "{admitted}");
    assert_eq!(world.left("exact", &large), 100 - admitted);
}

#[tokio::test(start_paused = true)]
async fn one_alternative_of_any_mode_is_enough() {
    let world = World::new();
    let node = world.node(1);
    let (large, none) = (bucket(100), bucket(0));
    let leased = Check {
        role: Role::Alternative,
        ..check("leased", &large, 1, policy(Consistency::Leased))
    };
    let exact = Check { role: Role::Alternative, ..check("exact", &none, 1, exact()) };
    let required = check("required", &large, 1, self::exact());
    let decided = node.send(Verb::Check, &[exact, leased, required]).await.unwrap();
    assert!(decided[2].0.is_admitted());
    assert_eq!(world.left("required", &large), 99);
    let neither = Check { limit: &none, ..leased };
    node.send(Verb::Check, &[exact, neither, required]).await.unwrap();
    assert_eq!(world.left("required", &large), 99);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_remembers_no_refusals_asks_each_time() {
    let world = World::new();
    let settings = SharedSettings { refusals_for: Duration::ZERO, ..SharedSettings::default() };
    let node = world.node_with(1, 0, |store| store, &settings);
    let limit = bucket(1);
    let check = check("a", &limit, 1, exact());
    assert_eq!(node.burst(check, 10).await, 1);
    assert_eq!(node.metrics().cached_refusals, 0);
}

/// The cache may save a question, and must not change an answer.
#[tokio::test(start_paused = true)]
async fn remembered_refusals_are_those_that_the_remote_would_give() {
    let world = World::new();
    let node = world.node(1);
    let judge = World::new();
    let soft = Soft { over_percent: 50, lasting: Period::SECOND };
    let window = FixedWindow::new(6, Window::Every(Period::SECOND));
    let limits = [
        bucket(5),
        bucket(8).with_soft(soft),
        Limit::new(LeakyBucket::new(10, Period::SECOND, 4)),
        Limit::new(window.clone()),
        Limit::new(window.counting_refused(true)),
        Limit::new(SlidingLog::new(7, Period::SECOND).unwrap()),
        Limit::new(SlidingWindow::new(7, Period::SECOND, 3).unwrap()),
    ];
    let names: Vec<String> = (0..limits.len()).map(|number| format!("key{number}")).collect();
    let mut state = 9_u64;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    };
    for step in 0..20_000 {
        let checks: Vec<Check<'_>> = (0..1 + below(2))
            .map(|_| {
                let at = usize::try_from(below(limits.len() as u64)).unwrap();
                check(&names[at], &limits[at], below(4), exact())
            })
            .collect();
        let verb = if below(20) == 0 { Verb::Refund } else { Verb::Check };
        let decided = node.send(verb, &checks).await.unwrap();
        let batch = Batch::new(verb, Charge::AllOrNothing, node.clock.now(), &checks);
        let expected = judge.server.apply_now(&batch);
        for ((check, decided), expected) in checks.iter().zip(decided).zip(expected) {
            let (decided, expected) = (decided.0, expected.decision);
            assert_eq!(decided.outcome, expected.outcome, "step {step}: {check:?}");
            assert_eq!(decided.reset_after, expected.reset_after, "step {step}: {check:?}");
        }
        if below(3) == 0 {
            pass(below(60)).await;
        }
    }
    assert!(node.metrics().cached_refusals > 500, "{}", node.metrics().cached_refusals);
}
