//! Several regions that count the same eventual limits.

use std::time::Duration;

use tidegate_algorithms::{FixedWindow, Limit, Period, Window};
use tidegate_stores::{Check, Consistency, SharedSettings};

use super::fake::{Condition, Line, VirtualClock};
use super::world::{Node, World, check, pass, policy};

/// Two regions, each with a node that also tells the other one.
struct Pair {
    worlds: [World; 2],
    nodes: [Node; 2],
    /// The lines to the other region.
    across: [Line; 2],
}

impl Pair {
    fn new() -> Self {
        let worlds = [World::new(), World::new()];
        let clock = |at: usize| VirtualClock::off_by(worlds[at].origin, 0);
        let across =
            [Line::new(&worlds[1].server, clock(0)), Line::new(&worlds[0].server, clock(1))];
        let node = |at: usize| {
            let other = across[at].clone();
            let finish =
                |store: tidegate_stores::SharedStore<Line>| store.with_region("the other", other);
            worlds[at].node_with(at as u64, 0, finish, &SharedSettings::default())
        };
        let nodes = [node(0), node(1)];
        Pair { worlds, nodes, across }
    }

    fn left(&self, limit: &Limit) -> [u64; 2] {
        [self.worlds[0].left("a", limit), self.worlds[1].left("a", limit)]
    }

    fn cut(&self, condition: Condition) {
        self.across.iter().for_each(|line| line.set(condition));
    }
}

fn hourly() -> Limit {
    Limit::new(FixedWindow::new(1_000, Window::Every(Period::HOUR)))
}

fn eventual(limit: &Limit) -> Check<'_> {
    check("a", limit, 1, policy(Consistency::Eventual))
}

#[tokio::test(start_paused = true)]
async fn regions_know_each_others_totals() {
    let (pair, limit) = (Pair::new(), hourly());
    assert_eq!(pair.nodes[0].burst(eventual(&limit), 300).await, 300);
    assert_eq!(pair.nodes[1].burst(eventual(&limit), 200).await, 200);
    pass(300).await;
    assert_eq!(pair.left(&limit), [500, 500]);
    pair.nodes[0].admits(eventual(&limit)).await;
    pass(300).await;
    assert!(pair.nodes[0].burst(eventual(&limit), 600).await < 500);
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_far_away_receives_everything() {
    let (pair, limit) = (Pair::new(), hourly());
    pair.across.iter().for_each(|line| line.slow(Duration::from_millis(80)));
    for _ in 0..20 {
        assert_eq!(pair.nodes[0].burst(eventual(&limit), 10).await, 10);
        pass(50).await;
    }
    pass(500).await;
    assert_eq!(pair.left(&limit), [800, 800]);
    assert_eq!(pair.nodes[0].metrics().unsure, 0);
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_cut_off_goes_on_and_receives_counts_once_it_is_back() {
    for condition in [Condition::Refusing, Condition::Silent] {
        let (pair, limit) = (Pair::new(), hourly());
        pair.nodes[0].burst(eventual(&limit), 10).await;
        pass(300).await;
        pair.cut(condition);
        for _ in 0..100 {
            assert!(pair.nodes[0].admits(eventual(&limit)).await);
            assert!(pair.nodes[1].admits(eventual(&limit)).await);
            pass(50).await;
        }
        pass(150).await;
        assert!(!pair.nodes[0].store.is_degraded(), "its own store is well");
        assert_eq!(pair.nodes[0].metrics().pending, 1, "merged: one key");
        assert_eq!(pair.left(&limit), [890, 890]);
        pair.cut(Condition::Well);
        pass(3_000).await;
        let remaining = pair.left(&limit);
        if condition == Condition::Refusing {
            assert_eq!(remaining, [790, 790]);
        } else {
            // A batch that was in flight when the line went silent is not sent again.
            assert!(remaining.iter().all(|left| (790..=830).contains(left)), "{remaining:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_counted_twice_when_answers_are_lost() {
    let (pair, limit) = (Pair::new(), hourly());
    pass(20).await;
    pair.cut(Condition::Deaf);
    for _ in 0..40 {
        pair.nodes[0].admits(eventual(&limit)).await;
        pass(25).await;
    }
    pair.cut(Condition::Well);
    pass(3_000).await;
    let remaining = pair.left(&limit);
    assert_eq!(remaining[0], 960);
    assert_eq!(remaining[1], 960, "every batch arrived, and none was sent again");
}

#[tokio::test(start_paused = true)]
async fn what_no_longer_counts_is_not_delivered_late() {
    let pair = Pair::new();
    let limit = Limit::new(FixedWindow::new(1_000, Window::Every(Period::SECOND)));
    pair.cut(Condition::Refusing);
    pair.nodes[0].burst(eventual(&limit), 100).await;
    pass(5_000).await;
    pair.cut(Condition::Well);
    pass(3_000).await;
    assert_eq!(pair.nodes[0].metrics().pending, 0);
    assert_eq!(pair.left(&limit), [1_000, 1_000]);
}
