//! Calls that miss their deadline while the remote keeps answering.

use std::time::Duration;

use tidegate_algorithms::{FixedWindow, Limit, Period, Window};
use tidegate_stores::{Basis, Check, Consistency};

use super::fake::Condition;
use super::world::{World, check, pass, policy};

/// Longer than the deadline, and soon enough that the remote has run the call by then.
const LATE: Duration = Duration::from_millis(15);

fn hourly(limit: u64) -> Limit {
    Limit::new(FixedWindow::new(limit, Window::Every(Period::HOUR)))
}

fn exact<'a>(name: &str, limit: &'a Limit) -> Check<'a> {
    check(name, limit, 1, policy(Consistency::Exact))
}

#[tokio::test(start_paused = true)]
async fn late_answers_leave_the_breaker_closed_while_the_remote_keeps_answering() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(1_000);
    node.line.keep_answering();
    node.line.slow(LATE);
    for _ in 0..100 {
        let (decision, basis) = node.ask(exact("a", &limit)).await;
        assert!(decision.is_admitted());
        assert_eq!(basis, Basis::Local, "an answer without the store says so");
    }
    let metrics = node.metrics();
    assert_eq!((metrics.outages, metrics.late, metrics.fell_back_local), (0, 100, 100));
    node.line.slow(Duration::ZERO);
    assert_eq!(node.ask(exact("a", &limit)).await.1, Basis::Exact, "the next call is in time");
}

#[tokio::test(start_paused = true)]
async fn late_answers_of_a_remote_that_says_nothing_else_open_the_breaker() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(1_000);
    node.line.slow(LATE);
    for _ in 0..10 {
        node.ask(exact("a", &limit)).await;
    }
    let metrics = node.metrics();
    assert_eq!((metrics.outages, metrics.late), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_check_that_timed_out_and_was_charged_is_not_charged_again() {
    for keeps_answering in [true, false] {
        let world = World::new();
        let node = world.node(1);
        let limit = hourly(1_000);
        if keeps_answering {
            node.line.keep_answering();
        }
        node.line.set(Condition::Deaf);
        for _ in 0..4 {
            assert!(node.admits(exact("a", &limit)).await);
        }
        node.line.set(Condition::Well);
        pass(10_000).await;
        assert!(node.admits(exact("a", &limit)).await);
        assert_eq!(world.left("a", &limit), 995, "five requests, each counted once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_timed_out_and_was_not_charged_is_lost_and_no_other() {
    for keeps_answering in [true, false] {
        let world = World::new();
        let node = world.node(1);
        let limit = hourly(1_000);
        if keeps_answering {
            node.line.keep_answering();
        }
        node.line.set(Condition::Silent);
        for _ in 0..4 {
            assert!(node.admits(exact("a", &limit)).await);
        }
        node.line.set(Condition::Refusing);
        for _ in 0..3 {
            assert!(node.admits(exact("a", &limit)).await);
        }
        node.line.set(Condition::Well);
        pass(10_000).await;
        let left = world.left("a", &limit);
        assert_eq!(left, 997, "the rejected ones are charged later, the timed out ones never");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_time_out_share_the_limit_of_the_node_and_never_exceed_it() {
    let world = World::new();
    let node = world.node(1);
    let limit = hourly(50);
    node.line.keep_answering();
    node.line.slow(LATE);
    let admitted = node.burst(exact("a", &limit), 200).await;
    assert_eq!(admitted, 50);
}
