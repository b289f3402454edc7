//! Faults of the service that is called.

use std::time::Duration;

use tidegate_algorithms::Nanos;
use tidegate_capacity::{Cost, Dimension};
use tidegate_queue::{NewRecord, Payload};
use tidegate_test_servers::eventually;
use tidegate_test_servers::postgres::PostgresServer;
use tidegate_test_servers::server::Server;
use tidegate_throttled_service::ServiceFault;

use super::processes::report;
use super::{SceneReport, Stage, let_work};
use crate::fleet::{Fleet, FleetPlan, WorkerHandle};

/// The service answers 500, then slowly, then asks to wait. No record dies of it, and its return meets no burst.
pub(super) fn dead_slow_and_closed(stage: Stage<'_>) -> SceneReport {
    let (postgres, redis) = (PostgresServer::start(), Server::redis());
    let plan = FleetPlan::default();
    let amount = plan.amount;
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let queue = fleet.open_queue(&postgres.url());
    let records = stage.length.of(800, 10_000);
    fleet.enqueue(&queue, records);
    let _workers: Vec<WorkerHandle> =
        (0..2).map(|_| fleet.start_worker(&postgres.url(), &redis.url())).collect();
    fleet.wait_for_arrivals(50);
    let seconds = |short, long| Duration::from_secs(stage.length.of(short, long));
    fleet.service.set_fault(ServiceFault::Status(500));
    let_work(seconds(3, 60));
    fleet.service.set_fault(ServiceFault::Slow(seconds(1, 5)));
    let_work(seconds(2, 60));
    fleet.service.set_fault(ServiceFault::Closed { retry_after: stage.length.of(2, 30) });
    fleet.wait_for_arrivals(1);
    fleet.service.set_fault(ServiceFault::None);
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    let stats = fleet.runtime.block_on(queue.stats()).unwrap();
    assert_eq!(stats.dead_records, 0, "a service that is away kills no record");
    report(&fleet, "dead, slow and closed once each")
}

/// Another client takes four tenths of the limit for a while. The brake gives way: without it, two of five requests
/// would be throttled meanwhile.
pub(super) fn rival(stage: Stage<'_>) -> SceneReport {
    let (postgres, redis) = (PostgresServer::start(), Server::redis());
    let plan = FleetPlan { throttles: true, ..FleetPlan::default() };
    let amount = plan.amount;
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let queue = fleet.open_queue(&postgres.url());
    fleet.enqueue(&queue, stage.length.of(800, 20_000));
    let _workers: Vec<WorkerHandle> =
        (0..2).map(|_| fleet.start_worker(&postgres.url(), &redis.url())).collect();
    fleet.wait_for_arrivals(100);
    let lasting = Duration::from_secs(stage.length.of(4, 60));
    let every = Nanos::new(1_000_000_000 * 10 / (4 * amount));
    let from = fleet.service.now();
    fleet.service.add_rival(Cost { operations: 1, bytes: 0, units: 0 }, every, lasting);
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    let meanwhile = log.between(from, from.after(lasting.into())).summary(Dimension::Operations);
    let percent = 100 * meanwhile.throttled / meanwhile.arrivals.max(1);
    assert!(percent < stage.length.of(30, 10), "{percent} % throttled while a rival calls");
    report(&fleet, &format!("{percent} % throttled during the {lasting:?} of the rival"))
}

/// One request of twenty fails, and some records always do: they become dead letters after ten attempts, and hold up
/// no other.
pub(super) fn poison(stage: Stage<'_>) -> SceneReport {
    const POISON: usize = 5;
    let (postgres, redis) = (PostgresServer::start(), Server::redis());
    let plan = FleetPlan { error_ppm: 50_000, ..FleetPlan::default() };
    let amount = plan.amount;
    let mut fleet = Fleet::new(stage.program, plan, stage.seed);
    let queue = fleet.open_queue(&postgres.url());
    let payload = Payload::from_body("poison").with_header("x-poison", "1");
    let batch = vec![NewRecord::new(payload); POISON];
    let poison = fleet.runtime.block_on(queue.enqueue(batch)).unwrap();
    // Enough of them that the attempts at poison end before: a service that answers nothing but 500 counts as dead.
    fleet.enqueue(&queue, stage.length.of(1_600, 20_000));
    let _workers: Vec<WorkerHandle> =
        (0..2).map(|_| fleet.start_worker(&postgres.url(), &redis.url())).collect();
    let log = fleet.wait_until_delivered();
    fleet.check_bound(&log, amount);
    eventually("the dead letters of poison records", || {
        let stats = fleet.runtime.block_on(queue.stats()).unwrap();
        (stats.dead_records >= POISON as u64 && stats.live().records == 0).then_some(())
    });
    let dead = fleet.runtime.block_on(queue.list_dead_letters(None, 100)).unwrap();
    assert_eq!(dead.len(), POISON, "only poison dies");
    let log = fleet.service.log();
    for outcome in poison {
        let id = outcome.id().to_string();
        let arrivals = log.arrivals().iter().filter(|one| one.id.as_deref() == Some(&id));
        let statuses: Vec<u16> = arrivals.map(|arrival| arrival.status).collect();
        assert_eq!(statuses, [500; 10], "ten attempts at a poison record");
    }
    report(&fleet, "5 dead letters after ten attempts each")
}
