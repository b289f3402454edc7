//! Processes that are killed, frozen, started and stopped.

use std::time::Duration;

use tidegate_test_servers::postgres::PostgresServer;
use tidegate_test_servers::server::Server;
use tidegate_throttled_service::{Arrival, ArrivalLog};

use super::{SceneReport, Stage, let_work};
use crate::chance::SceneChance;
use crate::fleet::{Fleet, FleetPlan, WorkerHandle};

/// Three workers on one queue; one of them is killed at a random point, again and again, and another one takes its
/// place. A killed worker's records are sent again if they were in flight, and no others.
pub(super) fn killed(stage: Stage<'_>) -> SceneReport {
    let (postgres, redis) = (PostgresServer::start(), Server::redis());
    let plan = FleetPlan::default();
    let (amount, in_flight) = (plan.amount, plan.in_flight);
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let mut chance = SceneChance::new(stage.seed);
    let queue = fleet.open_queue(&postgres.url());
    let kills = stage.length.of(5, 100);
    fleet.enqueue(&queue, stage.length.of(1_200, 20_000));
    let mut workers: Vec<WorkerHandle> =
        (0..3).map(|_| fleet.start_worker(&postgres.url(), &redis.url())).collect();
    fleet.wait_for_arrivals(50);
    for _ in 0..kills {
        let_work(chance.between(Duration::from_millis(100), Duration::from_millis(900)));
        let victim = chance.index(workers.len());
        workers[victim].process.kill();
        workers[victim] = fleet.start_worker(&postgres.url(), &redis.url());
    }
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    let summary = log.summary(tidegate_capacity::Dimension::Operations);
    let most = kills * in_flight as usize;
    assert!(summary.duplicates <= most, "{} duplicates after {kills} kills", summary.duplicates);
    report(&fleet, &format!("{kills} kills"))
}

/// Two workers; one is stopped for two leases. When it continues, another one has its slots: it must not send under
/// them, and its claims are the other's.
pub(super) fn frozen(stage: Stage<'_>) -> SceneReport {
    let (postgres, redis) = (PostgresServer::start(), Server::redis());
    let plan = FleetPlan::default();
    let (amount, lease) = (plan.amount, plan.lease);
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let queue = fleet.open_queue(&postgres.url());
    let freezes = stage.length.of(1, 20);
    fleet.enqueue(&queue, stage.length.of(2_000, 40_000));
    let sleeper = fleet.start_worker(&postgres.url(), &redis.url());
    let _other = fleet.start_worker(&postgres.url(), &redis.url());
    fleet.wait_for_arrivals(100);
    for _ in 0..freezes {
        sleeper.process.freeze();
        let_work(lease * 5 / 2);
        sleeper.process.thaw();
        fleet.wait_for_arrivals(100);
    }
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    // The residue of a process that is frozen between its last look at the lease and the write: one for its thread.
    let late = written_late(&log, 2 * lease);
    assert!(late <= freezes, "{late} requests were written after the lease, {freezes} freezes");
    report(
        &fleet,
        &format!("{freezes} freezes, {late} requests written after the end of the lease"),
    )
}

/// How many requests reached the service so much later than they departed. The clocks differ by a constant: the fastest
/// request tells which.
fn written_late(log: &ArrivalLog, late: Duration) -> usize {
    let delay = |arrival: &Arrival| {
        let departed = i128::from(arrival.departed?.as_nanos());
        Some(i128::from(arrival.received.as_nanos()) - departed)
    };
    let delays: Vec<i128> = log.arrivals().iter().filter_map(delay).collect();
    let fastest = delays.iter().min().copied().unwrap_or(0);
    let late = i128::try_from(late.as_nanos()).unwrap();
    delays.iter().filter(|delay| **delay - fastest >= late).count()
}

/// Workers start and stop at random, politely or not. At no instant do shares add up to more than the limit.
pub(super) fn joining_and_leaving(stage: Stage<'_>) -> SceneReport {
    let (postgres, redis) = (PostgresServer::start(), Server::redis());
    let plan = FleetPlan::default();
    let amount = plan.amount;
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let mut chance = SceneChance::new(stage.seed);
    let queue = fleet.open_queue(&postgres.url());
    let (most, changes) = stage.length.of((4, 8), (10, 600));
    fleet.enqueue(&queue, stage.length.of(1_200, 110_000));
    let mut workers = vec![fleet.start_worker(&postgres.url(), &redis.url())];
    fleet.wait_for_arrivals(50);
    for _ in 0..changes {
        let_work(chance.between(Duration::from_millis(100), Duration::from_millis(1_500)));
        if workers.len() < most && (workers.is_empty() || chance.index(2) == 0) {
            workers.push(fleet.start_worker(&postgres.url(), &redis.url()));
        } else {
            let mut leaver = workers.swap_remove(chance.index(workers.len()));
            match chance.index(3) {
                0 => leaver.process.kill(),
                _ => leaver.stop(),
            }
        }
    }
    if workers.is_empty() {
        workers.push(fleet.start_worker(&postgres.url(), &redis.url()));
    }
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    report(&fleet, &format!("{changes} joins and leaves"))
}

/// The report of a scene that has ended.
pub(super) fn report(fleet: &Fleet, detail: &str) -> SceneReport {
    let log = fleet.service.log();
    let busiest = log.busiest(
        tidegate_capacity::Dimension::Operations,
        Duration::from_secs(1),
        tidegate_throttled_service::ArrivalTime::Departed,
    );
    SceneReport {
        records: fleet.acknowledged(),
        arrivals: log.arrivals().len(),
        duplicates: log.duplicates(),
        detail: format!("{detail}; busiest second {busiest}"),
    }
}
