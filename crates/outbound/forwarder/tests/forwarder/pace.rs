//! The scenes of the pattern's text, with its numbers.

use std::collections::HashSet;
use std::time::Duration;

use tidegate_capacity::{Dimension, TargetLimit};
use tidegate_delivery::Processor;
use tidegate_forwarder::TypeSettings;
use tidegate_queue::{NewRecord, Payload};

use crate::bench::{Bench, delivering, limits, most_in, orders, pool, records};
use std::sync::Arc;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn ten_thousand_records_of_ten_units_take_five_seconds_and_ten_thousand_sends() {
    let target = limits(vec![TargetLimit::per_second(Dimension::Units, 20_000)], 100);
    let bench = Bench::start(&target, orders(), delivering()).await;
    bench.enqueue(records(10_000, 10)).await;
    let took = bench.drain(Duration::from_secs(10)).await;
    let arrivals = bench.target.arrivals();
    assert_eq!(arrivals.len(), 10_000);
    let bodies: HashSet<&str> = arrivals.iter().map(|arrival| arrival.body.as_str()).collect();
    assert_eq!(bodies.len(), 10_000);
    assert!(most_in(&arrivals, SECOND, |arrival| arrival.units) <= 20_000);
    // 10,000 records at 98 % of 2,000 a second take 5.1 s. The paused clock advances while SQLite's thread works, so that
    // an upper bound would measure the machine; `drain` has a generous one.
    assert!(took >= Duration::from_secs(5), "{took:?}");
    assert_eq!(bench.counts().await.throttled, 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_wants_four_of_twenty_partitions_and_gets_two_finishes_in_two_seconds() {
    // 500 a second as 20 partitions of 25: 100 requests want 4 partitions, and the pool leaves 2, 50 a second.
    let mut target = limits(vec![TargetLimit::per_second(Dimension::Operations, 500)], 20);
    target.pools = vec![pool("small", 2)];
    let settings = TypeSettings { pool: "small".to_owned(), ..orders() };
    let bench = Bench::start(&target, settings, delivering()).await;
    bench.enqueue(records(100, 1)).await;
    let took = bench.drain(Duration::from_secs(5)).await;
    let arrivals = bench.target.arrivals();
    assert_eq!(arrivals.len(), 100);
    assert!(most_in(&arrivals, SECOND, |_| 1) <= 50);
    let first = arrivals[0].at;
    let span = (took - first).as_secs_f64();
    assert!((1.9..2.2).contains(&span), "{span}");
    // It releases its partitions long before the lease of 15 s ends.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let document = bench.forwarder.leases().document("service").await.unwrap().unwrap();
    assert_eq!(document.holders().map(|holder| holder.slots).sum::<usize>(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_target_keeps_limits_of_operations_bytes_and_units_at_once() {
    let kept = [
        TargetLimit::per_second(Dimension::Operations, 20),
        TargetLimit::per_minute(Dimension::Bytes, 2 << 30),
        TargetLimit::per_second(Dimension::Units, 20_000),
    ];
    let target = limits(kept.to_vec(), 10);
    let bench = Bench::start(&target, orders(), delivering()).await;
    // Costly in units, large, and small ones.
    let record = |number: usize| NewRecord {
        cost: [3_000, 10, 10][number % 3],
        ..NewRecord::new(Payload::from_body(vec![b'x'; [10, 4 << 20, 10][number % 3]]))
    };
    let batch: Vec<NewRecord> = (0..150).map(record).collect();
    bench.enqueue(batch).await;
    bench.drain(Duration::from_secs(60)).await;
    let arrivals = bench.target.arrivals();
    assert_eq!(arrivals.len(), 150);
    assert!(most_in(&arrivals, SECOND, |_| 1) <= 20);
    assert!(most_in(&arrivals, SECOND, |arrival| arrival.units) <= 20_000);
    let minute = Duration::from_secs(60);
    assert!(most_in(&arrivals, minute, |arrival| arrival.bytes) <= 2 << 30);
}

#[tokio::test(start_paused = true)]
async fn types_of_one_target_share_its_capacity() {
    let target = limits(vec![TargetLimit::per_second(Dimension::Operations, 100)], 20);
    let answers = delivering();
    let bench = Bench::start(&target, orders(), Arc::clone(&answers)).await;
    let invoices = TypeSettings::new("invoices");
    let processor = Arc::clone(&answers) as Arc<dyn Processor>;
    bench.forwarder.add(&target, invoices, processor).await.unwrap();
    bench.enqueue(records(1_000, 1)).await;
    bench.forwarder.enqueue("invoices", records(1_000, 1)).await.unwrap();
    let took = bench.drain(Duration::from_secs(30)).await;
    let left = bench.forwarder.status("invoices").await.unwrap().unwrap().waiting;
    // The first type has all slots for its first five seconds.
    assert!(left < 600, "{left} invoices wait after {took:?}");
    assert!(most_in(&answers.arrivals(), SECOND, |_| 1) <= 100);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_in_five_seconds_sends_one_in_five_seconds() {
    let slow = TargetLimit { dimension: Dimension::Operations, amount: 1, window_ms: 5_000 };
    let bench = Bench::start(&limits(vec![slow], 1), orders(), delivering()).await;
    bench.enqueue(records(5, 1)).await;
    let took = bench.drain(Duration::from_secs(60)).await;
    let arrivals = bench.target.arrivals();
    assert_eq!(arrivals.len(), 5);
    assert!(most_in(&arrivals, Duration::from_secs(5), |_| 1) <= 1);
    assert!(took < Duration::from_secs(30), "{took:?}");
}
