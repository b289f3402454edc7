//! Limits that nodes count by themselves and add up on a beat.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_algorithms::{Clock, FixedWindow, Limit, Period, SlidingWindow, TokenBucket, Window};
use tidegate_stores::{Basis, Check, Consistency, OVERSHOOT_BOUNDS, Verb};

use super::fake::Condition;
use super::world::{Node, Witness, World, check, pass, policy};

fn window(limit: u64) -> Limit {
    Limit::new(FixedWindow::new(limit, Window::Every(Period::HOUR)))
}

fn eventual<'a>(name: &str, limit: &'a Limit) -> Check<'a> {
    check(name, limit, 1, policy(Consistency::Eventual))
}

#[tokio::test(start_paused = true)]
async fn decisions_do_not_wait_for_the_remote() {
    let world = World::new();
    let node = world.node(1);
    node.line.slow(Duration::from_millis(50));
    let limit = window(1_000);
    pass(100).await;
    let before = tokio::time::Instant::now();
    let (decision, basis) = node.ask(eventual("a", &limit)).await;
    assert!(decision.is_admitted());
    assert_eq!(basis, Basis::Eventual);
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn totals_are_known_everywhere_after_two_beats() {
    let world = World::new();
    let (one, two) = (world.node(1), world.node(2));
    let limit = window(10);
    let check = eventual("a", &limit);
    assert_eq!(one.burst(check, 6).await, 6);
    pass(200).await;
    assert!(two.admits(check).await, "it has not received the count of the other yet");
    pass(200).await;
    assert_eq!(two.burst(check, 10).await, 3);
    pass(200).await;
    assert_eq!(world.left("a", &limit), 0);
    pass(200).await;
    assert!(!one.admits(check).await || one.burst(check, 5).await < 5);
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_is_sent() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(1_000);
    let names: Vec<String> = (0..100).map(|number| format!("key{number}")).collect();
    for name in &names {
        node.admits(eventual(name, &limit)).await;
    }
    pass(150).await;
    let before = node.metrics();
    assert_eq!(before.flushed_keys, 100);
    node.burst(eventual(&names[3], &limit), 20).await;
    pass(500).await;
    let after = node.metrics();
    assert_eq!((after.flushes - before.flushes, after.flushed_keys - before.flushed_keys), (1, 1));
    assert_eq!(world.left(&names[3], &limit), 1_000 - 21);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_busy_keys_take_few_calls() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(1_000_000);
    let names: Vec<String> = (0..1_000).map(|number| format!("key{number}")).collect();
    let before = world.server.calls.load(Ordering::Relaxed);
    for _ in 0..50 {
        for some in names.chunks(50) {
            for name in some {
                node.admits(eventual(name, &limit)).await;
            }
            pass(1).await;
        }
    }
    let calls = world.server.calls.load(Ordering::Relaxed) - before;
    assert!(calls <= 50, "{calls} calls for 50,000 decisions: at most 1 for each 1000");
}

/// Every node sends more requests than the limit allows; returns all admissions.
async fn stampede(
    world: &World,
    nodes: &[Node],
    limit: &Limit,
    every: u64,
    lasting: u64,
) -> Witness {
    let mut witness = Witness::default();
    for _ in 0..lasting / every {
        for node in nodes {
            if node.admits(eventual("a", limit)).await {
                witness.saw(world.server.clock.now(), 1);
            }
        }
        pass(every).await;
    }
    witness
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_exceeded_by_no_more_than_the_stated_bound() {
    for (count, every) in [(2, 2), (5, 4), (8, 1)] {
        let world = World::new();
        let mut nodes = Vec::new();
        for seed in 0..count {
            // Their beats fall at different times.
            pass(13).await;
            nodes.push(world.node(seed));
        }
        nodes.iter().for_each(|node| node.line.slow(Duration::from_millis(2)));
        let limit = window(400);
        let witness = stampede(&world, &nodes, &limit, every, 3_000).await;
        // The requests of all nodes in a beat and while a flush is in flight.
        let bound = count * (100 + 4) / every;
        let over = witness.total() - 400;
        assert!(over <= bound, "{over} over, {bound} stated, {count} nodes");
        let seen: u64 =
            nodes.iter().map(|node| node.metrics().overshoot[1..].iter().sum::<u64>()).sum();
        assert_eq!(seen > 0, over > 0, "the histogram sees what was too much");
        assert_eq!(OVERSHOOT_BOUNDS[0], 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_keeps_its_rate_over_time() {
    let world = World::new();
    let nodes: Vec<Node> = (0..3).map(|seed| world.node(seed)).collect();
    let limit = Limit::new(TokenBucket::new(200, Period::SECOND, 100));
    let witness = stampede(&world, &nodes, &limit, 2, 10_000).await;
    let burst = witness.burst_at(200, Duration::from_secs(1));
    assert!(burst <= 100 + 3 * 50, "{burst}");
    assert!(witness.total() >= 1_900, "{}", witness.total());
    assert!(witness.total() <= 2_250, "{}", witness.total());
}

#[tokio::test(start_paused = true)]
async fn a_sliding_window_admits_again_when_the_remote_would() {
    let world = World::new();
    let nodes: Vec<Node> = (0..2).map(|seed| world.node(seed)).collect();
    let limit = Limit::new(SlidingWindow::new(100, Period::SECOND, 4).unwrap());
    let witness = stampede(&world, &nodes, &limit, 2, 10_000).await;
    assert!(witness.total() >= 700, "{}", witness.total());
    assert!(witness.total() <= 2_000, "{}", witness.total());
}

#[tokio::test(start_paused = true)]
async fn counts_that_could_not_be_sent_are_sent_later_and_once() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(1_000);
    node.burst(eventual("a", &limit), 10).await;
    world.server.set(Condition::Refusing);
    pass(250).await;
    node.burst(eventual("a", &limit), 5).await;
    world.server.set(Condition::Well);
    pass(3_000).await;
    assert_eq!(world.left("a", &limit), 1_000 - 15);
}

#[tokio::test(start_paused = true)]
async fn counts_that_may_have_arrived_are_not_sent_again() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(1_000);
    pass(30).await;
    world.server.set(Condition::Deaf);
    node.burst(eventual("a", &limit), 10).await;
    pass(150).await;
    world.server.set(Condition::Well);
    pass(3_000).await;
    assert_eq!(world.left("a", &limit), 1_000 - 10);
    assert_eq!(node.metrics().unsure, 1);
}

#[tokio::test(start_paused = true)]
async fn a_reset_reaches_the_remote_and_this_node() {
    let world = World::new();
    let node = world.node(1);
    let limit = window(10);
    let check = eventual("a", &limit);
    assert_eq!(node.burst(check, 20).await, 10);
    pass(150).await;
    node.send(Verb::Reset, &[check]).await.unwrap();
    assert_eq!(node.burst(check, 20).await, 10);
    let peeked = node.send(Verb::Peek, &[check]).await.unwrap()[0];
    assert_eq!((peeked.0.remaining, peeked.1), (0, Basis::Eventual));
}
