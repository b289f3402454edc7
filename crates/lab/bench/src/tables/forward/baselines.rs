//! The clients to compare with.

use std::time::Duration;

use tidegate_algorithms::Timestamp;
use tidegate_capacity::{Cost, Dimension, TargetLimit};
use tidegate_throttled_service::{
    ArrivalTime, BaselineClient, BaselineReport, BatcherFleet, BatcherSettings, Judge, LimitKind,
    ServiceLimit, ThrottledService, ThrottledServiceSettings, run_in_virtual_time, run_over_http,
};

use super::fleet::NETWORK;

/// Runs a client over HTTP against a service with this limit.
pub(super) async fn over_http(
    client: &mut dyn BaselineClient,
    limit: TargetLimit,
    units: u64,
) -> anyhow::Result<BaselineReport> {
    let limits = vec![ServiceLimit { limit, kind: LimitKind::FixedWindow }];
    let mut settings = ThrottledServiceSettings::new(limits);
    (settings.delay_before, settings.delay_after) = (NETWORK, NETWORK);
    let service = ThrottledService::start(settings)?;
    Ok(run_over_http(client, service.address(), units).await?)
}

/// The part of all partitions that go-batcher holds, and the part of its attempts that fail.
pub(super) fn batcher_leases(processes: usize, partitions: usize) -> (f64, f64) {
    let settings = BatcherSettings { processes, partitions, factor: 1, cost: 1, seed: 1 };
    let mut fleet = BatcherFleet::new(1_000_000, settings);
    run(&mut fleet, 1, Timestamp::from_secs(600));
    let (attempts, failed) = fleet.lease_attempts();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let failed = failed as f64 / attempts.max(1) as f64;
    (fleet.held_share(), failed)
}

/// The busiest second of go-batcher, divided by its limit of 1,000 units a second, with records of this cost.
pub(super) fn batcher_busiest(cost: u64) -> f64 {
    let settings = BatcherSettings { processes: 1, partitions: 20, factor: 50, cost, seed: 1 };
    let mut fleet = BatcherFleet::new(100_000, settings);
    let busiest = run(&mut fleet, cost, Timestamp::from_secs(60));
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let busiest = busiest as f64;
    busiest / 1_000.0
}

/// The rate of go-batcher with records of this cost, divided by its limit of units a second, in twenty partitions if the
/// limit has as many units.
pub(super) fn batcher_rate(limit: u64, cost: u64) -> f64 {
    const SECONDS: u64 = 120;
    let partitions = limit.min(20);
    let factor = limit / partitions;
    let partitions = usize::try_from(limit.div_ceil(factor)).unwrap_or(1);
    let settings = BatcherSettings { processes: 1, partitions, factor, cost, seed: 1 };
    let mut fleet = BatcherFleet::new(1_000_000, settings);
    let end = Timestamp::from_secs(SECONDS);
    let service = TargetLimit::per_second(Dimension::Units, TargetLimit::AMOUNT_MAX);
    let mut judge = Judge::new(&[ServiceLimit { limit: service, kind: LimitKind::FixedWindow }]);
    let (report, _) =
        run_in_virtual_time(&mut fleet, &mut judge, Cost::units(cost), NETWORK, end, 1);
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = (report.sends * cost) as f64 / SECONDS as f64;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let limit = limit as f64;
    rate / limit
}

fn run(fleet: &mut BatcherFleet, cost: u64, end: Timestamp) -> u64 {
    // A service without a limit of its own: the client alone decides.
    let limit = TargetLimit::per_second(Dimension::Units, TargetLimit::AMOUNT_MAX);
    let mut judge = Judge::new(&[ServiceLimit { limit, kind: LimitKind::FixedWindow }]);
    let (_, log) = run_in_virtual_time(fleet, &mut judge, Cost::units(cost), NETWORK, end, 1);
    log.busiest(Dimension::Units, Duration::from_secs(1), ArrivalTime::Received)
}
