//! Nodes and their board together: what holds for the fleet, whatever comes.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_overload::{Board, Category, Credit, FleetSettings, FleetShedder};

const START: Timestamp = Timestamp::from_secs(1_000);
const CAPACITIES: [u64; 4] = [100, 60, 20, 1];
const BEAT: Nanos = Nanos::from_millis(200);

/// Whether the board's answer reaches the node.
#[derive(Clone, Copy)]
enum Heard {
    Yes,
    No,
}

struct Fleet {
    board: Board,
    nodes: Vec<Arc<FleetShedder>>,
    held: Vec<Vec<Credit>>,
    now: Timestamp,
}

impl Fleet {
    fn new() -> Self {
        let settings = FleetSettings::default();
        let node = |capacity: &u64| Arc::new(FleetShedder::new(settings, *capacity));
        Fleet {
            board: Board::new(settings, START),
            nodes: CAPACITIES.iter().map(node).collect(),
            held: CAPACITIES.iter().map(|_| Vec::new()).collect(),
            now: START,
        }
    }

    fn beat(&mut self, node: usize) {
        self.beat_and(node, Heard::Yes);
    }

    fn beat_and(&mut self, node: usize, heard: Heard) {
        let shedder = &self.nodes[node];
        let report = shedder.report(node as u64, self.now);
        let grant = self.board.beat(self.now, &report).expect("a small fleet");
        match heard {
            Heard::Yes => shedder.accept(self.now, &grant),
            Heard::No => shedder.miss_beat(),
        }
    }

    /// Every node beats, a fifth of a second later.
    fn round(&mut self) {
        self.now = self.now.after(BEAT);
        (0..self.nodes.len()).for_each(|node| self.beat(node));
    }

    fn enter(&mut self, node: usize, category: Category, count: usize) -> usize {
        let before = self.held[node].len();
        for _ in 0..count {
            let Some(credit) = self.nodes[node].try_enter(self.now, category) else { break };
            self.held[node].push(credit);
        }
        self.held[node].len() - before
    }

    fn leave(&mut self, node: usize, count: usize) {
        let left = self.held[node].len().saturating_sub(count);
        self.held[node].truncate(left);
    }

    fn in_flight(&self) -> u64 {
        self.nodes.iter().map(|node| node.view(self.now).in_flight).sum()
    }
}

/// Four fifths of everything.
const POOL: u64 = 144;

#[test]
fn a_crashed_nodes_share_of_the_pool_is_settled_within_its_lease() {
    let mut fleet = Fleet::new();
    (0..50).for_each(|_| fleet.round());
    assert_eq!(fleet.board.pool(), POOL);
    // The largest dies. The others go on beating.
    let mut beats = 0;
    while fleet.board.pool() == POOL && beats < 20 {
        fleet.now = fleet.now.after(BEAT);
        (1..4).for_each(|node| fleet.beat(node));
        beats += 1;
    }
    assert_eq!((beats, fleet.board.pool()), (10, 64));
    (0..50).for_each(|_| {
        fleet.now = fleet.now.after(BEAT);
        (1..4).for_each(|node| fleet.beat(node));
    });
    assert!(fleet.board.granted() <= 64);
    assert!(fleet.enter(1, Category::Post, 100) >= 40, "its own share at least");
}

#[test]
fn a_busy_node_takes_what_the_others_leave_and_gives_it_back() {
    let mut fleet = Fleet::new();
    (0..20).for_each(|_| fleet.round());
    for _ in 0..50 {
        fleet.enter(0, Category::Post, 200);
        fleet.round();
    }
    assert_eq!(fleet.held[0].len(), 100, "all that the node can work on");
    // Now the others want theirs. What is running runs on, so it takes until it ends.
    for _ in 0..50 {
        (1..4).for_each(|node| _ = fleet.enter(node, Category::Post, 100));
        fleet.leave(0, 5);
        fleet.enter(0, Category::Post, 5);
        fleet.round();
    }
    assert!(fleet.held[1].len() >= 45, "{}", fleet.held[1].len());
    assert_eq!(fleet.held[3].len(), 1);
}

#[test]
fn a_lost_board_is_replaced_without_anybody_gaining() {
    let mut fleet = Fleet::new();
    for _ in 0..50 {
        fleet.enter(0, Category::Post, 200);
        fleet.round();
    }
    let before: Vec<u64> = fleet.nodes.iter().map(|node| node.admit_below(fleet.now)).collect();
    fleet.board = Board::new(FleetSettings::default(), fleet.now);
    for _ in 0..9 {
        fleet.round();
        for (node, before) in fleet.nodes.iter().zip(&before) {
            assert!(node.admit_below(fleet.now) <= *before);
        }
        assert!(fleet.board.granted() <= fleet.board.pool());
    }
}

proptest! {
    #[test]
    fn requests_in_flight_never_exceed_the_pool_and_critical_ones_are_never_refused(
        steps in prop::collection::vec((0usize..4, 0usize..4, 0usize..60, 0usize..60), 1..300),
    ) {
        let mut fleet = Fleet::new();
        fleet.round();
        for (step, (node, category, come, go)) in steps.into_iter().enumerate() {
            fleet.leave(node, go);
            let category = Category::ALL[category];
            let entered = fleet.enter(node, category, come);
            prop_assert!(category != Category::Critical || entered == come);
            prop_assert!(fleet.in_flight() <= POOL, "{}", fleet.in_flight());
            if step % 4 == 3 {
                fleet.round();
            }
        }
        fleet.held.clear();
        prop_assert_eq!(fleet.in_flight(), 0);
    }

    #[test]
    fn nodes_stay_within_the_pool_though_answers_are_lost(
        steps in prop::collection::vec((0usize..4, 0usize..60, 0usize..60, any::<[bool; 4]>()), 1..300),
    ) {
        let mut fleet = Fleet::new();
        fleet.round();
        let mut silent = [0; 4];
        for (step, (node, come, go, lost)) in steps.into_iter().enumerate() {
            fleet.leave(node, go);
            fleet.enter(node, Category::Post, come);
            if step % 2 == 1 {
                fleet.now = fleet.now.after(BEAT);
                for node in 0..4 {
                    // Fewer in a row than a grant lasts: what then is said elsewhere.
                    let heard = if lost[node] && silent[node] < 6 { Heard::No } else { Heard::Yes };
                    silent[node] = match heard { Heard::Yes => 0, Heard::No => silent[node] + 1 };
                    fleet.beat_and(node, heard);
                }
            }
            let goes_by: u64 = fleet.nodes.iter().map(|node| node.admit_below(fleet.now)).sum();
            prop_assert!(goes_by <= POOL, "{goes_by}");
            prop_assert!(fleet.in_flight() <= POOL, "{}", fleet.in_flight());
        }
    }
}
