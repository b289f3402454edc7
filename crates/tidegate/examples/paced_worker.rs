//! A paced worker: start it three times, and the processes share 30 operations a second through one Redis.
//!
//! `cargo run -p tidegate --features forwarder,redis --example paced_worker -- redis://localhost A`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tidegate::capacity::{
    Dimension, RedisCapacityStore, RedisSettings, Target, TargetLimit, TargetLimits,
};
use tidegate::delivery::{Attempt, AttemptOutcome, AttemptResult, Processor, ProcessorFuture};
use tidegate::forwarder::{Forwarder, ForwarderParts, LeaseStore, TypeSettings};
use tidegate::queue::{NewRecord, Payload, SqliteStore};

/// Stands for your call of the service.
struct Work;

impl Processor for Work {
    fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a> {
        let delivered = |_: &Attempt| AttemptResult::new(AttemptOutcome::Delivered);
        Box::pin(async move { batch.iter().map(delivered).collect() })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(name)) = (arguments.next(), arguments.next()) else {
        println!("usage: paced_worker REDIS_URL NAME");
        return Ok(());
    };
    // Each process has its own queue; the capacity is shared.
    let data_dir = tempfile::tempdir()?;
    let queues = Arc::new(SqliteStore::open(&data_dir.path().join("data"))?);
    let leases = LeaseStore::new(RedisCapacityStore::connect(RedisSettings::parse(&url)?)?);
    let forwarder = Forwarder::new(ForwarderParts::new(queues, leases, name.clone()));
    let limit = TargetLimit::per_second(Dimension::Operations, 30);
    let target = Target::new("service", TargetLimits::with_slots(vec![limit], 30)?);
    forwarder.add(&target, TypeSettings::new("work"), Arc::new(Work)).await?;
    let record = |number: u32| NewRecord::new(Payload::from_body(format!("{name} {number}")));
    forwarder.enqueue("work", (0..300).map(record).collect()).await?;
    while let Some(status) = forwarder.status("work").await? {
        let [held, all] = status.slots;
        println!(
            "{name}: {} wait, {held} of {all} slots, {}",
            status.waiting, status.forecast.summary
        );
        if status.waiting == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    forwarder.stop(Duration::from_secs(5)).await;
    Ok(())
}
