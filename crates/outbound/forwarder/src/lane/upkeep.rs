//! What a lane does from time to time: extend leases, report its backlog, measure.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::Timestamp;
use tidegate_capacity::Cost;
use tidegate_queue::{SettleOutcome, Settlement};

use super::{HeldClaim, Lane, add};

/// How often the backlog is reported.
const INTERVAL: Duration = Duration::from_millis(200);
/// How long a lane without work keeps its slots.
const KEEP_SLOTS: Duration = Duration::from_secs(1);

pub(super) async fn run(lane: Arc<Lane>) {
    let mut idle_since: Option<Timestamp> = None;
    while !lane.is_stopping() {
        let now = lane.clock.now();
        if let Ok(stats) = lane.queue.stats().await {
            let live = stats.live();
            let left = Cost { operations: live.records, bytes: live.bytes, units: live.cost };
            lane.measurements.lock().look(&lane, left, now);
            let wanted = if lane.sends() { lane.backlog(left) } else { Cost::units(0) };
            let idle = !lane.sends() || wanted.operations == 0;
            let since = idle_since.filter(|_| idle).unwrap_or(now);
            idle_since = idle.then_some(since);
            if !idle {
                lane.member.set_backlog(wanted);
            } else if Duration::from(now.since(since)) >= KEEP_SLOTS {
                lane.member.set_backlog(Cost { operations: 0, bytes: 0, units: 0 });
            }
        } else {
            add(&lane.counts.queue_errors, 1);
        }
        extend_leases(&lane, now).await;
        lane.wait(&lane.arrived, INTERVAL).await;
    }
    // Attempts may still run: their leases outlast any of them.
}

/// Extends the leases that have passed half of their time.
async fn extend_leases(lane: &Lane, now: Timestamp) {
    let lease = lane.settings.claim_lease();
    let soon = now.after((lease / 2).into());
    let due: Vec<HeldClaim> =
        lane.claims.lock().iter().filter(|claim| claim.ends <= soon).cloned().collect();
    if due.is_empty() {
        return;
    }
    let extensions = due.iter().map(|claim| (claim.receipt.clone(), Settlement::Extend { lease }));
    let Ok(outcomes) = lane.queue.settle(extensions.collect()).await else {
        add(&lane.counts.queue_errors, 1);
        return;
    };
    let ends = now.after(lease.into());
    for (claim, outcome) in due.iter().zip(outcomes) {
        let record = claim.receipt.record();
        match outcome {
            SettleOutcome::Applied => {
                let mut claims = lane.claims.lock();
                if let Some(held) = claims.iter_mut().find(|held| held.receipt == claim.receipt) {
                    held.ends = ends;
                }
                drop(claims);
                lane.buffer.lock().extend(record, ends);
            }
            SettleOutcome::StaleReceipt => {
                lane.claims.lock().retain(|held| held.receipt != claim.receipt);
                if lane.buffer.lock().remove(record).is_some() {
                    add(&lane.counts.stale, 1);
                }
            }
        }
    }
}
