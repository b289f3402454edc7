use std::collections::HashMap;

use proptest::prelude::*;
use tidegate_algorithms::Nanos;

use super::*;

const START: Timestamp = Timestamp::from_secs(1_000);

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// A board past its learning, and a clock turned by hand.
struct Bench {
    board: Board,
    now: Timestamp,
    /// What each node goes by: what it heard last.
    held: HashMap<u64, u64>,
}

impl Bench {
    fn new() -> Self {
        let board = Board::new(FleetSettings::default(), START);
        Bench { board, now: START.after(ms(2_000)), held: HashMap::new() }
    }

    fn beat(&mut self, node: u64, capacity: u64, in_flight: u64, demand: u64) -> Grant {
        let own = self.board.settings.pool(capacity);
        let held = self.held.get(&node).copied().unwrap_or(own);
        let report = Report { node, capacity, in_flight, demand, held };
        let grant = self.board.beat(self.now, &report).unwrap();
        self.held.insert(node, grant.admit_below);
        grant
    }

    /// Each node beats, so many times, with the same demand and what it may have of it in
    /// flight.
    fn rounds(&mut self, count: u32, demands: &[u64]) -> Vec<u64> {
        let mut below = vec![0u64; demands.len()];
        for _ in 0..count {
            self.now = self.now.after(ms(200));
            for (node, demand) in demands.iter().enumerate() {
                let grant = self.beat(node as u64, 100, (*demand).min(below[node]), *demand);
                below[node] = grant.admit_below;
                assert!(self.board.granted() <= self.board.pool());
            }
        }
        below
    }
}

#[test]
fn a_node_that_joins_begins_with_its_share() {
    let mut bench = Bench::new();
    assert_eq!(bench.beat(1, 100, 0, 0).grant, 80);
    let grant = bench.beat(2, 50, 0, 0);
    assert_eq!((grant.grant, grant.pool, grant.fleet_capacity), (40, 120, 150));
}

#[test]
fn idle_nodes_leave_what_they_do_not_need_to_busy_ones() {
    let mut bench = Bench::new();
    let grants = bench.rounds(100, &[100, 10]);
    assert_eq!(grants, [100, 36], "wanted 100 and 12, and half of the spare");
}

#[test]
fn when_all_want_everything_all_get_the_same() {
    let mut bench = Bench::new();
    bench.rounds(100, &[100, 0, 0]);
    assert_eq!(bench.rounds(100, &[100, 100, 100]), [80, 80, 80]);
}

#[test]
fn a_grant_grows_by_a_quarter_of_the_share_in_a_second_at_most() {
    let mut bench = Bench::new();
    bench.rounds(20, &[0, 100]);
    let before = bench.rounds(1, &[0, 100])[0];
    assert!(before < 60, "the busy one has most of it: {before}");
    let after = bench.rounds(5, &[100, 0])[0];
    assert!((before + 10..=before + 20).contains(&after), "{before} to {after}");
}

#[test]
fn even_the_smallest_share_grows() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        bench.now = bench.now.after(ms(200));
        bench.beat(1, 2, 1, 2);
        bench.beat(2, 2, 0, 0);
    }
    assert_eq!(bench.beat(1, 2, 2, 2).grant, 2);
}

#[test]
fn the_grant_of_a_crashed_node_comes_back_when_its_lease_is_over() {
    let mut bench = Bench::new();
    bench.rounds(50, &[100, 100]);
    let alone = |bench: &mut Bench| bench.beat(0, 100, 80, 100);
    bench.now = bench.now.after(ms(1_999));
    assert_eq!(alone(&mut bench).pool, 160);
    bench.now = bench.now.after(ms(1));
    assert_eq!(alone(&mut bench).pool, 80);
    assert_eq!(bench.board.nodes(), 1);
}

#[test]
fn running_requests_keep_their_grant_but_nothing_is_admitted_above_the_target() {
    let mut bench = Bench::new();
    bench.rounds(100, &[100, 0]);
    // The other one is gone, and its capacity with it.
    bench.now = bench.now.after(ms(1_000));
    bench.beat(0, 100, 100, 100);
    bench.now = bench.now.after(ms(1_001));
    let grant = bench.beat(0, 100, 97, 100);
    assert_eq!((grant.grant, grant.admit_below, grant.pool), (100, 80, 80), "not heard yet");
    let grant = bench.beat(0, 100, 95, 100);
    assert_eq!((grant.grant, grant.admit_below, grant.pool), (95, 80, 80));
    let grant = bench.beat(0, 100, 60, 100);
    assert_eq!((grant.grant, grant.admit_below), (80, 80));
}

#[test]
fn others_get_what_a_node_had_only_when_it_has_heard_that_it_lost_it() {
    let mut bench = Bench::new();
    bench.rounds(100, &[100, 0]);
    // The answers that take its grant away do not reach the first node.
    let deaf = Report { node: 0, capacity: 100, in_flight: 20, demand: 20, held: 100 };
    for _ in 0..20 {
        bench.now = bench.now.after(ms(200));
        let lost = bench.board.beat(bench.now, &deaf).unwrap();
        assert!(lost.admit_below < 100 && lost.grant == 100, "{lost:?}");
        assert!(bench.beat(1, 100, 60, 100).admit_below <= 60);
    }
    assert_eq!(bench.beat(1, 100, 60, 100).admit_below, 60);
    assert!(bench.rounds(20, &[20, 100])[1] > 60, "it has heard");
}

#[test]
fn a_clock_that_is_put_back_makes_no_lease_longer() {
    let mut bench = Bench::new();
    bench.rounds(10, &[100, 100]);
    bench.now = START;
    assert_eq!(bench.beat(0, 100, 80, 100).pool, 160);
    bench.now = bench.now.after(ms(1_999));
    assert_eq!(bench.beat(0, 100, 80, 100).pool, 160);
    bench.now = bench.now.after(ms(1));
    assert_eq!(bench.beat(0, 100, 80, 100).pool, 80);
}

#[test]
fn a_board_that_lost_everything_learns_what_nodes_hold_and_lets_nobody_grow() {
    let mut board = Board::new(FleetSettings::default(), START);
    let report = |node, held| Report { node, capacity: 100, in_flight: 10, demand: 200, held };
    assert_eq!(board.beat(START, &report(1, 40)).unwrap().grant, 40);
    assert_eq!(board.beat(START, &report(2, 90)).unwrap().grant, 90);
    for beat in 1..10 {
        let now = START.after(ms(200 * beat));
        assert_eq!(board.beat(now, &report(1, 40)).unwrap().grant, 40);
        assert_eq!(board.beat(now, &report(2, 90)).unwrap().grant, 90);
    }
    let learned = START.after(ms(2_000));
    assert_eq!(board.beat(learned, &report(2, 90)).unwrap().admit_below, 80);
    assert!(board.beat(learned, &report(1, 40)).unwrap().grant > 40);
}

#[test]
fn a_full_board_takes_no_more_nodes_and_keeps_those_it_has() {
    let mut board = Board::new(FleetSettings::default(), START);
    let report = |node| Report { node, capacity: 1, ..Report::default() };
    for node in 0..NODES_MAX as u64 {
        let row = NodeRow {
            capacity: 1,
            in_flight: 0,
            demand: 0,
            grant: 0,
            expires: Timestamp::MAX,
            growing: START,
        };
        board.rows.insert(node, row);
    }
    let full = board.beat(START, &report(NODES_MAX as u64));
    assert!(matches!(full, Err(BoardError::Full)));
    assert!(board.beat(START, &report(0)).is_ok());
}

proptest! {
    #[test]
    fn no_beat_raises_the_sum_of_grants_above_the_pool(
        beats in prop::collection::vec(
            (0u64..6, 0u64..200, 0u64..300, 0u64..400, 0u64..300, 0u64..900),
            1..200,
        ),
    ) {
        let mut board = Board::new(FleetSettings::default(), START);
        let mut now = START;
        for (node, capacity, in_flight, demand, held, passed) in beats {
            now = now.after(ms(passed));
            board.rows.retain(|_, row| row.expires > now);
            let before = board.granted();
            let report = Report { node, capacity, in_flight, demand, held };
            let grant = board.beat(now, &report).unwrap();
            prop_assert!(board.granted() <= before.max(board.pool()));
            prop_assert!(grant.admit_below <= grant.grant);
        }
    }

    #[test]
    fn with_steady_capacity_the_sum_never_exceeds_the_pool(
        demands in prop::collection::vec(prop::collection::vec(0u64..300, 4), 1..80),
    ) {
        let mut bench = Bench::new();
        for round in demands {
            bench.rounds(1, &round);
        }
    }

    #[test]
    fn no_report_overflows(reports in prop::collection::vec(any::<[u64; 6]>(), 1..20)) {
        let mut board = Board::new(FleetSettings::default(), START);
        for [node, capacity, in_flight, demand, held, now] in reports {
            let report = Report { node: node % 4, capacity, in_flight, demand, held };
            let grant = board.beat(Timestamp::from_nanos(now), &report).unwrap();
            prop_assert!(grant.admit_below <= grant.pool);
        }
    }
}
