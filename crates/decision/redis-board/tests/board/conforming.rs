//! The same reports at the same instants get the same grants, in process and on servers.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_overload::{Board, BoardError, FleetBoard, FleetSettings, Grant, NODES_MAX, Report};

use crate::harness::board;
use tidegate_test_servers::server::Server;

const START: u64 = 1_800_000_000_000_000;
const CASES: u32 = 96;

static BOARDS: AtomicU64 = AtomicU64::new(0);

/// One report, and how far the clock went before it, in microseconds.
type Beat = (i64, Report);

fn settings() -> impl Strategy<Value = FleetSettings> {
    let percent = || prop_oneof![0..40_u64, 0..400_u64];
    (prop_oneof![Just(20), 0..120_u64], 1_000..3_000_000_u64, percent(), percent()).prop_map(
        |(reserved_percent, lease, headroom_percent, growth_percent)| FleetSettings {
            reserved_percent,
            lease: Nanos::new(lease * 1_000),
            // Long, so that a busy machine makes nothing late.
            beat: Nanos::from_secs(20),
            headroom_percent,
            growth_percent,
        },
    )
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..200_u64, 1 => 0..=1_048_576_u64, 1 => Just(7)]
}

fn beats() -> impl Strategy<Value = Vec<Beat>> {
    // Some that differ in their high bits only, and some in their low bits.
    let node = prop_oneof![0..5_u64, (0..3_u64).prop_map(|high| high << 61 | 1)];
    let passed = prop_oneof![
        8 => 0..300_000_i64,
        2 => 0..2_000_000_i64,
        1 => Just(0),
        1 => -5_000_000..0_i64,
    ];
    let report = (node, count(), count(), count(), count());
    let report = report.prop_map(|(node, capacity, in_flight, demand, held)| Report {
        node,
        capacity,
        in_flight,
        demand,
        held,
    });
    prop::collection::vec((passed, report), 1..80)
}

/// Plays the same beats on both, and gives what each said.
async fn play(
    url: &str,
    settings: FleetSettings,
    beats: &[Beat],
) -> Vec<(Result<Grant, BoardError>, Result<Grant, BoardError>)> {
    let name = BOARDS.fetch_add(1, Ordering::Relaxed).to_string();
    let theirs = board(url, &name, settings);
    theirs.connected().await;
    let mut now = START;
    let mut ours = Board::new(settings, micros(now));
    let mut grants = Vec::new();
    for (place, (passed, report)) in beats.iter().enumerate() {
        // The one on the server begins with its first beat.
        now = if place == 0 { now } else { now.saturating_add_signed(*passed) };
        theirs.set_clock(micros(now));
        grants.push((ours.beat(micros(now), report), theirs.beat(*report).await));
    }
    grants
}

fn micros(count: u64) -> Timestamp {
    Timestamp::from_nanos(count * 1_000)
}

fn divides_as_in_process(server: &Server) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { failure_persistence: None, ..Config::with_cases(CASES) };
    let same = TestRunner::new(config).run(&(settings(), beats()), |(settings, beats)| {
        let grants = runtime.block_on(play(&server.url(), settings, &beats));
        for (place, (ours, theirs)) in grants.into_iter().enumerate() {
            let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
            prop_assert_eq!(ours, theirs, "beat {}", place);
        }
        Ok(())
    });
    same.unwrap();
}

#[test]
fn redis_divides_as_the_board_in_process_does() {
    divides_as_in_process(&Server::redis());
}

#[test]
fn valkey_divides_as_the_board_in_process_does() {
    divides_as_in_process(&Server::valkey());
}

#[tokio::test]
async fn a_full_board_takes_no_more_nodes_and_keeps_those_it_has() {
    let server = Server::redis();
    let settings = FleetSettings { beat: Nanos::from_secs(20), ..FleetSettings::default() };
    let board = board(&server.url(), "full", settings);
    board.connected().await;
    board.set_clock(micros(START));
    let fill = "for node = 1, tonumber(ARGV[1]) do
          local row = struct.pack('>I4I4I4I4I7I7', 1, 0, 0, 0, tonumber(ARGV[2]), 0)
          redis.call('HSET', KEYS[1], struct.pack('>I8', node), row)
        end";
    let expires = (START + 1_000_000).to_string();
    server.tell(&["EVAL", fill, "1", "tg:fleet:full", &NODES_MAX.to_string(), &expires]);
    let report = |node| Report { node, capacity: 1, ..Report::default() };
    assert!(matches!(board.beat(report(0)).await, Err(BoardError::Full)));
    let known = board.beat(report(NODES_MAX as u64)).await.unwrap();
    assert_eq!(known.fleet_capacity, NODES_MAX as u64);
}
