//! Settles finished claims in batches: everything that finished while the last batch was written is the next batch.

use std::sync::Arc;
use std::time::Duration;

use tidegate_queue::{QueueError, SettleOutcome};
use tokio::time::sleep;

use super::{Lane, add};

/// How long the task waits at most, so that a missed event costs little.
const LOOK: Duration = Duration::from_secs(1);
/// The pause after a failed settlement.
const ERROR_PAUSE: Duration = Duration::from_millis(500);
/// How often the last settlements of a lane that stops are tried.
const FLUSH_ATTEMPTS_MAX: u32 = 5;

pub(super) async fn run(lane: Arc<Lane>) {
    loop {
        if settle_batch(&lane).await.is_err() {
            sleep(ERROR_PAUSE).await;
        } else if lane.settlements.lock().is_empty() {
            // Not `wait`: attempts finish while the lane stops.
            let _ = tokio::time::timeout(LOOK, lane.finished.notified()).await;
        }
    }
}

/// Settles what is left. Claims that cannot be settled are delivered again when their leases end.
pub(super) async fn flush(lane: &Lane) {
    for _ in 0..FLUSH_ATTEMPTS_MAX {
        if settle_batch(lane).await.is_ok() {
            return;
        }
        sleep(ERROR_PAUSE).await;
    }
}

async fn settle_batch(lane: &Lane) -> Result<(), QueueError> {
    let batch = lane.settlements.lock().clone();
    if batch.is_empty() {
        return Ok(());
    }
    let count = batch.len();
    match lane.queue.settle(batch).await {
        Ok(outcomes) => {
            // Later settlements were added at the end meanwhile.
            lane.settlements.lock().drain(..count);
            let stale = outcomes.iter().filter(|one| **one == SettleOutcome::StaleReceipt).count();
            add(&lane.counts.stale, stale as u64);
            lane.work.notify_one();
            Ok(())
        }
        Err(error) => {
            add(&lane.counts.queue_errors, 1);
            let record_type = &lane.settings.record_type;
            tracing::warn!(record_type, %error, "{count} settlements failed and are repeated");
            Err(error)
        }
    }
}
