//! Pausing, draining, stopping, jobs and forecasts.

use std::time::Duration;

use tidegate_forwarder::{AcceptError, LaneMode};
use tidegate_queue::{ClaimBudget, NewRecord};
use tokio::time::sleep;

use crate::bench::{Bench, delivering, operations, orders, records};

#[tokio::test(start_paused = true)]
async fn a_paused_type_accepts_records_and_sends_none_until_it_is_resumed() {
    let bench = Bench::start(&operations(100), orders(), delivering()).await;
    assert!(bench.forwarder.set_mode("orders", LaneMode::Paused));
    bench.enqueue(records(50, 1)).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.target.arrivals().len(), 0);
    let forecast = bench.forwarder.status("orders").await.unwrap().unwrap().forecast;
    assert_eq!(forecast.summary, "stalled (paused)");
    bench.forwarder.set_mode("orders", LaneMode::Running);
    bench.drain(Duration::from_secs(10)).await;
    assert_eq!(bench.target.arrivals().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_draining_type_sends_and_accepts_nothing() {
    let bench = Bench::start(&operations(100), orders(), delivering()).await;
    bench.enqueue(records(50, 1)).await;
    bench.forwarder.set_mode("orders", LaneMode::Draining);
    let refused = bench.forwarder.enqueue("orders", records(1, 1)).await;
    assert_eq!(refused, Err(AcceptError::Draining("orders".to_owned())));
    bench.drain(Duration::from_secs(10)).await;
    assert_eq!(bench.target.arrivals().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_forwarder_that_stops_returns_what_it_has_not_sent() {
    let bench = Bench::start(&operations(100), orders(), delivering()).await;
    let queue = bench.forwarder.queue("orders").unwrap();
    bench.enqueue(records(1_000, 1)).await;
    sleep(Duration::from_secs(3)).await;
    bench.forwarder.stop(Duration::from_secs(5)).await;
    let sent = bench.target.arrivals().len() as u64;
    let stats = queue.stats().await.unwrap();
    assert!(sent > 100, "{sent}");
    assert_eq!((stats.live().records, stats.in_flight), (1_000 - sent, 0));
    // All of them can be claimed at once.
    let rest = queue.claim(ClaimBudget::records(1_000, Duration::from_secs(1))).await.unwrap();
    assert_eq!(rest.deliveries.len() as u64, 1_000 - sent);
    let document = bench.forwarder.leases().document("service").await.unwrap().unwrap();
    assert_eq!(document.holders().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_no_lease_can_pay_for_is_refused_at_the_enqueue() {
    let bench = Bench::start(
        &crate::bench::limits(
            vec![tidegate_capacity::TargetLimit::per_second(
                tidegate_capacity::Dimension::Units,
                10,
            )],
            10,
        ),
        orders(),
        delivering(),
    )
    .await;
    let refused = bench.forwarder.enqueue("orders", records(1, 1_000)).await;
    assert_eq!(refused, Err(AcceptError::CostTooHigh { index: 0 }));
    let refused = bench.forwarder.enqueue("parcels", records(1, 1)).await;
    assert_eq!(refused, Err(AcceptError::UnknownType("parcels".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn the_forecast_of_a_job_is_within_five_percent() {
    let bench = Bench::start(&operations(1_000), orders(), delivering()).await;
    let of_job = |record: NewRecord| NewRecord { job: Some("import".to_owned()), ..record };
    bench.enqueue(records(10_000, 1).into_iter().map(of_job).collect()).await;
    sleep(Duration::from_secs(3)).await;
    let early = bench.forwarder.job("import", None).await.unwrap().unwrap();
    let asked_at = bench.began.elapsed();
    let took = bench.drain(Duration::from_secs(60)).await;
    let truth = (took - asked_at).as_secs_f64();
    let expected = early.forecast.seconds.unwrap();
    assert!((expected - truth).abs() / truth < 0.05, "expected {expected}, took {truth}");
    let [low, high] = early.forecast.between.unwrap();
    assert!(low <= truth && truth <= high, "{truth} outside of {low} to {high}");
    assert_eq!(early.forecast.cause, "limit");
    let done = bench.forwarder.job("import", None).await.unwrap().unwrap();
    assert_eq!((done.accepted, done.delivered, done.finished), (10_000, 10_000, true));
    assert_eq!(done.forecast.state, "done");
    assert_eq!(bench.forwarder.job("import", Some("another tenant")).await.unwrap(), None);
}
