//! A batch import with progress: 500 records to a service that takes 250 a second.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tidegate::capacity::{Dimension, MemoryCapacityStore, Target, TargetLimit, TargetLimits};
use tidegate::delivery::{Attempt, AttemptOutcome, AttemptResult, Processor, ProcessorFuture};
use tidegate::forwarder::{Forwarder, ForwarderParts, LeaseStore, TypeSettings};
use tidegate::queue::{NewRecord, Payload, SqliteStore};

/// Stands for your call of the service.
struct Import;

impl Processor for Import {
    fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a> {
        let delivered = |_: &Attempt| AttemptResult::new(AttemptOutcome::Delivered);
        Box::pin(async move { batch.iter().map(delivered).collect() })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let data_dir = tempfile::tempdir()?;
    let queues = Arc::new(SqliteStore::open(&data_dir.path().join("data"))?);
    let leases = LeaseStore::new(MemoryCapacityStore::default());
    let forwarder = Forwarder::new(ForwarderParts::new(queues, leases, "importer"));
    let limits = TargetLimits::new(vec![TargetLimit::per_second(Dimension::Operations, 250)])?;
    let target = Target::new("service", limits);
    forwarder.add(&target, TypeSettings::new("orders"), Arc::new(Import)).await?;

    let record = |number: u32| NewRecord {
        job: Some("import".to_owned()),
        ..NewRecord::new(Payload::from_body(format!("order {number}")))
    };
    forwarder.enqueue("orders", (0..500).map(record).collect()).await?;
    while let Some(job) = forwarder.job("import", None).await? {
        println!("{} of {}: {}", job.delivered, job.accepted, job.forecast.summary);
        if job.finished {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    forwarder.stop(Duration::from_secs(5)).await;
    Ok(())
}
