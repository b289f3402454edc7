//! Faults of the queue: its owner or its server is killed, its clock is wrong, its disk is full.

use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tidegate_test_servers::eventually;
use tidegate_test_servers::postgres::PostgresServer;
use tidegate_test_servers::server::{Server, Setup};

use super::processes::report;
use super::{SceneReport, Stage, let_work};
use crate::chance::SceneChance;
use crate::fleet::{Fleet, FleetPlan, WorkerHandle};
use crate::worker::WorkerArguments;

/// A worker that stores records and sends them, on a queue of its own.
fn owner(fleet: &mut Fleet, produce: usize) -> WorkerArguments {
    let queue = format!("sqlite:{}", fleet.files.path().join("data").display());
    let leases = format!("sqlite:{}", fleet.files.path().join("leases.db").display());
    WorkerArguments { produce, ..fleet.arguments(&queue, &leases) }
}

/// The owner of a queue in SQLite is killed while it stores and sends. The next one sends everything that was
/// acknowledged.
pub(super) fn killed_owner(stage: Stage<'_>) -> SceneReport {
    let plan = FleetPlan::default();
    let (amount, in_flight) = (plan.amount, plan.in_flight as usize);
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let mut chance = SceneChance::new(stage.seed);
    let kills = stage.length.of(3, 100);
    for _ in 0..kills {
        let arguments = owner(&mut fleet, usize::MAX);
        let mut worker = fleet.start(&arguments);
        eventually("stored records", || (worker.stored().len() > 20).then_some(()));
        let_work(chance.between(Duration::from_millis(50), Duration::from_millis(400)));
        worker.process.kill();
        fleet.expect_stored_by(&worker);
    }
    let arguments = owner(&mut fleet, 0);
    let _last = fleet.start(&arguments);
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    assert!(log.duplicates() <= kills * in_flight, "{} duplicates", log.duplicates());
    report(&fleet, &format!("{kills} kills"))
}

/// Workers on a queue whose server is killed and started again, while one of them stores records.
fn killed_server(stage: Stage<'_>, queue: &str, mut kill_and_restart: impl FnMut()) -> SceneReport {
    let leases = Server::redis();
    let plan = FleetPlan::default();
    let amount = plan.amount;
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let mut chance = SceneChance::new(stage.seed);
    let kills = stage.length.of(1, 20);
    let produce = stage.length.of(600, 10_000);
    let producer = WorkerArguments { produce, ..fleet.arguments(queue, &leases.url()) };
    let workers: [WorkerHandle; 2] =
        [fleet.start(&producer), fleet.start_worker(queue, &leases.url())];
    let [producer, _consumer] = &workers;
    fleet.wait_for_arrivals(50);
    for _ in 0..kills {
        let_work(chance.between(Duration::from_millis(50), Duration::from_millis(500)));
        kill_and_restart();
        fleet.wait_for_arrivals(20);
    }
    eventually("the rest of the records", || producer.output().contains("produced.").then_some(()));
    fleet.expect_stored_by(producer);
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    report(&fleet, &format!("{kills} kills, {} batches refused", producer.refused()))
}

/// Redis with an append-only file that is synced at each write.
pub(super) fn killed_redis(stage: Stage<'_>) -> SceneReport {
    let setup = Setup::redis().with("appendonly", &["yes"]).with("appendfsync", &["always"]);
    let mut server = setup.start();
    let url = server.url();
    killed_server(stage, &url, || {
        server.kill();
        server.restart();
    })
}

/// PostgreSQL, ended at once.
pub(super) fn killed_postgres(stage: Stage<'_>) -> SceneReport {
    let mut server = PostgresServer::start();
    let url = server.url();
    killed_server(stage, &url, || {
        server.kill();
        server.restart();
    })
}

/// The owner is started again with a clock that is an hour ahead, then an hour behind.
pub(super) fn wrong_clocks(stage: Stage<'_>) -> SceneReport {
    let plan = FleetPlan::default();
    let amount = plan.amount;
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let rounds = stage.length.of(1, 10);
    for _ in 0..rounds {
        for clock_offset in [0, 3_600, -3_600] {
            let arguments = owner(&mut fleet, 150);
            let mut worker = fleet.start(&WorkerArguments { clock_offset, ..arguments });
            worker.wait_for("produced.");
            worker.process.kill();
            fleet.expect_stored_by(&worker);
        }
    }
    let arguments = owner(&mut fleet, 0);
    let _last = fleet.start(&arguments);
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    report(&fleet, &format!("{} steps of the clock", rounds * 3))
}

/// Writes to the queue's file fail, then succeed again. What was refused was not stored; what was acknowledged is sent.
pub(super) fn full_disk(stage: Stage<'_>) -> SceneReport {
    let plan = FleetPlan::default();
    let amount = plan.amount;
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let mut chance = SceneChance::new(stage.seed);
    let rounds = stage.length.of(2, 30);
    let produce = stage.length.of(1_000, 10_000);
    let arguments = owner(&mut fleet, produce);
    let worker = fleet.start(&arguments);
    worker.wait_for("stored");
    for _ in 0..rounds {
        let_work(chance.between(Duration::from_millis(20), Duration::from_millis(100)));
        let before = worker.refused();
        // The log of a database that is in use is larger than this, the worker's output is not: the next write fails.
        let output = worker.output().len() as u64;
        limit_file_size(&worker, Some(output + 64 * 1024));
        eventually("a refused batch", || (worker.refused() > before).then_some(()));
        limit_file_size(&worker, None);
        let stored = worker.stored().len();
        eventually("stored records", || {
            let more = worker.stored().len() > stored;
            (more || worker.output().contains("produced.")).then_some(())
        });
    }
    worker.wait_for("produced.");
    fleet.expect_stored_by(&worker);
    assert_eq!(fleet.acknowledged(), produce);
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    report(&fleet, &format!("{} batches refused", worker.refused()))
}

/// Limits the size of files that a running worker writes.
fn limit_file_size(worker: &WorkerHandle, bytes: Option<u64>) {
    let id = i32::try_from(worker.process.id()).ok().and_then(Pid::from_raw);
    prlimit(id, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}
