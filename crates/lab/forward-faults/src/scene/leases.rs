//! Faults of the store of leases, and limits that change.

use std::time::Duration;

use tidegate_algorithms::{Clock, Timestamp};
use tidegate_capacity::{BootClock, Dimension, LeaseStore, TargetLimit, TargetLimits};
use tidegate_test_servers::postgres::PostgresServer;
use tidegate_test_servers::relay::Relay;
use tidegate_test_servers::server::Server;
use tidegate_throttled_service::ArrivalLog;

use super::processes::report;
use super::{SceneReport, Stage, let_work};
use crate::chance::SceneChance;
use crate::fleet::{Fleet, FleetPlan, WorkerHandle};
use crate::worker::TARGET;

/// How many records left between two instants.
fn departures_between(log: &ArrivalLog, from: Timestamp, until: Timestamp) -> usize {
    let departed = log.arrivals().iter().filter_map(|arrival| arrival.departed);
    departed.filter(|at| *at >= from && *at < until).count()
}

/// The store is away for longer than a lease: members stop at the end of theirs and go on when it is back. Then it
/// forgets everything: members register what they hold, and nobody gets more for a while.
pub(super) fn lost_and_wiped(stage: Stage<'_>) -> SceneReport {
    let (postgres, redis) = (PostgresServer::start(), Server::redis());
    let plan = FleetPlan::default();
    let (amount, lease) = (plan.amount, plan.lease);
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let queue = fleet.open_queue(&postgres.url());
    let rounds = stage.length.of(1, 5);
    fleet.enqueue(&queue, stage.length.of(1_500, 20_000));
    let relay = Relay::to(redis.port());
    let _workers: Vec<WorkerHandle> =
        (0..3).map(|_| fleet.start_worker(&postgres.url(), &relay.url())).collect();
    fleet.wait_for_arrivals(50);
    let mut silences = Vec::new();
    for _ in 0..rounds {
        relay.cut();
        let lost = BootClock.now();
        let_work(stage.length.of(2 * lease, Duration::from_secs(60)));
        silences.push((lost.after(lease.into()), BootClock.now()));
        relay.mend();
        fleet.wait_for_arrivals(100);
        assert!(redis.try_ask(&["FLUSHALL"]).is_some());
        fleet.wait_for_arrivals(100);
    }
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    for (from, until) in silences {
        let sent = departures_between(&log, from, until);
        assert_eq!(sent, 0, "departures after the end of every lease, without the store");
    }
    report(&fleet, &format!("{rounds} outages, {rounds} wiped stores"))
}

/// Half of the members cannot reach the store. They stop at the end of their leases, and the others take their slots.
pub(super) fn partitioned(stage: Stage<'_>) -> SceneReport {
    let (postgres, redis) = (PostgresServer::start(), Server::redis());
    let plan = FleetPlan::default();
    let (amount, lease) = (plan.amount, plan.lease);
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let mut chance = SceneChance::new(stage.seed);
    let queue = fleet.open_queue(&postgres.url());
    let rounds = stage.length.of(2, 30);
    fleet.enqueue(&queue, stage.length.of(1_800, 50_000));
    let relay = Relay::to(redis.port());
    let _workers: Vec<WorkerHandle> = (0..4)
        .map(|number| match number % 2 {
            0 => fleet.start_worker(&postgres.url(), &relay.url()),
            _ => fleet.start_worker(&postgres.url(), &redis.url()),
        })
        .collect();
    fleet.wait_for_arrivals(50);
    for _ in 0..rounds {
        // Answers are lost too, so that a write may have succeeded unseen.
        match chance.index(2) {
            0 => relay.cut(),
            _ => relay.silence(),
        }
        let_work(chance.between(lease / 2, lease * 2));
        relay.mend();
        fleet.wait_for_arrivals(50);
    }
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    report(&fleet, &format!("{rounds} partitions"))
}

/// The limit goes up and down while four members send.
pub(super) fn changed_limits(stage: Stage<'_>) -> SceneReport {
    let (postgres, redis) = (PostgresServer::start(), Server::redis());
    let plan = FleetPlan::default();
    let (slots, lease, usual) = (plan.slots, plan.lease, plan.amount);
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let mut chance = SceneChance::new(stage.seed);
    let queue = fleet.open_queue(&postgres.url());
    let changes = stage.length.of(6, 100);
    fleet.enqueue(&queue, stage.length.of(1_500, 25_000));
    let _workers: Vec<WorkerHandle> =
        (0..4).map(|_| fleet.start_worker(&postgres.url(), &redis.url())).collect();
    fleet.wait_for_arrivals(50);
    let leases = { fleet.runtime.block_on(async { LeaseStore::open(&redis.url()).unwrap() }) };
    // Each limit with the instant before which it was not yet known to anyone.
    let mut known = vec![(Timestamp::EPOCH, usual)];
    for _ in 0..changes {
        let amount = [60, 100, 150, 300, 400][chance.index(5)];
        let limit = TargetLimit::per_second(Dimension::Operations, amount);
        let limits = TargetLimits::with_slots(vec![limit], slots).unwrap();
        known.push((BootClock.now(), amount));
        fleet.runtime.block_on(leases.change_limits(TARGET, &limits)).unwrap();
        let_work(chance.between(Duration::from_millis(100), lease * 2));
    }
    let log = fleet.wait_until_delivered();
    check_changed_limits(&log, &known, lease);
    report(&fleet, &format!("{changes} changes between 60 and 400 a second"))
}

/// No second holds more than the highest limit that a member may have known within the last lease and that second.
fn check_changed_limits(log: &ArrivalLog, known: &[(Timestamp, u64)], lease: Duration) {
    const SECOND: u64 = 1_000_000_000;
    let mut departed: Vec<u64> =
        log.arrivals().iter().filter_map(|arrival| Some(arrival.departed?.as_nanos())).collect();
    departed.sort_unstable();
    let lease = u64::try_from(lease.as_nanos()).unwrap();
    let mut first = 0;
    for (last, at) in departed.iter().enumerate() {
        while departed[first] + SECOND <= *at {
            first += 1;
        }
        let from = at.saturating_sub(SECOND + lease);
        let ends = known.iter().skip(1).map(|(since, _)| since.as_nanos()).chain([u64::MAX]);
        let in_force = known
            .iter()
            .zip(ends)
            .filter(|((since, _), end)| since.as_nanos() <= *at && *end >= from);
        let most = in_force.map(|((_, amount), _)| *amount).max().unwrap();
        let inside = (last + 1 - first) as u64;
        assert!(inside <= most, "{inside} departures in a second, limit {most}");
    }
}
