//! Sends records one by one, each at its turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_capacity::{Cost, LeaseStore, SendPermit};
use tidegate_delivery::{Attempt, SlotEpoch};
use tidegate_queue::{AttemptCharge, Delivery, Settlement};
use tokio::task::JoinSet;

use super::attempt::{AttemptGuard, attempt};
use super::{Lane, SharedClock, add, cost_of};

/// How long a sender without work waits at most.
const LOOK: Duration = Duration::from_secs(1);

pub(super) type Permit = SendPermit<LeaseStore, SharedClock>;

pub(super) async fn run(lane: Arc<Lane>) {
    let mut attempts = JoinSet::new();
    let mut stopping = lane.stopping.subscribe();
    while !lane.is_stopping() {
        while attempts.try_join_next().is_some() {}
        let wait = lane.wait_before_send();
        if !wait.is_zero() {
            lane.wait(&lane.sendable, wait).await;
            continue;
        }
        let batch = lane.next_batch();
        let Some(cost) = batch_cost(&batch) else { continue };
        // The turn may take long: a hold, no slots, a paused lane. Then the batch goes back.
        let turn = tokio::select! {
            turn = lane.member.turn(cost) => turn,
            _ = stopping.wait_for(|stopping| *stopping) => {
                lane.give_back(batch);
                break;
            }
            () = lane.interrupted() => {
                lane.give_back(batch);
                continue;
            }
        };
        let Ok(permit) = turn else {
            lane.reject_costly(batch);
            continue;
        };
        lane.depart(batch, permit, &mut attempts);
    }
    lane.give_back(lane.buffer.lock().take(usize::MAX));
    while attempts.join_next().await.is_some() {}
}

/// One operation, all bytes and units; `None` for no record.
fn batch_cost(batch: &[Delivery]) -> Option<Cost> {
    let sum = batch.iter().map(|delivery| cost_of(&delivery.record)).reduce(Cost::plus)?;
    Some(Cost { operations: 1, ..sum })
}

impl Lane {
    /// How long until the next record may leave, apart from its turn; zero if it may.
    fn wait_before_send(&self) -> Duration {
        if !self.sends() || self.buffer.lock().is_empty() {
            return LOOK;
        }
        let limit = self.measurements.lock().concurrency();
        let full = self.in_flight() >= limit;
        self.measurements.lock().set_full(full);
        if full {
            return LOOK;
        }
        let now = self.clock.now();
        self.health.lock().wait(now).into()
    }

    /// The next records whose leases still hold.
    fn next_batch(&self) -> Vec<Delivery> {
        let most = self.processor.batch_max().max(1);
        let now = self.clock.now();
        let mut batch = self.buffer.lock().take(most);
        batch.retain(|delivery| {
            let holds = delivery.lease_ends > now;
            if !holds {
                // Another process may have it by now.
                let id = delivery.record.id;
                self.claims.lock().retain(|claim| claim.receipt.record() != id);
                add(&self.counts.stale, 1);
            }
            holds
        });
        batch
    }

    /// Ends when the lane is paused.
    async fn interrupted(&self) {
        let mut mode = self.mode.subscribe();
        // An error means that the lane is gone.
        let _ = mode.wait_for(|mode| *mode == super::LaneMode::Paused).await;
    }

    /// Returns unsent records to the queue.
    pub(super) fn give_back(&self, batch: Vec<Delivery>) {
        let now = self.clock.now();
        for delivery in batch {
            let settlement = Settlement::Nack { not_before: now, charge: AttemptCharge::Free };
            self.settle_later(delivery.receipt, settlement);
        }
    }

    /// A change of limits can make a record too costly that was accepted before.
    fn reject_costly(&self, batch: Vec<Delivery>) {
        for delivery in batch {
            add(&self.counts.rejected, 1);
            add(&self.counts.dead, 1);
            let detail = "it costs more than the target allows within one lease".to_owned();
            self.settle_later(delivery.receipt, Settlement::DeadLetter { detail });
        }
    }

    fn depart(self: &Arc<Self>, batch: Vec<Delivery>, permit: Permit, attempts: &mut JoinSet<()>) {
        let now = self.clock.now();
        self.health.lock().depart(now);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let lease = permit.lease();
        let departed = permit.departed();
        let slot = Some(SlotEpoch { slot: lease.slot, epoch: lease.epoch });
        let (mut records, mut receipts) = (Vec::new(), Vec::new());
        for delivery in batch {
            add(&self.counts.attempts, 1);
            if delivery.record.attempts > 0 {
                add(&self.counts.retries, 1);
            }
            let number = delivery.record.attempts.saturating_add(1);
            receipts.push((delivery.receipt, number));
            records.push(Attempt { record: delivery.record, number, slot, departed });
        }
        let guard = AttemptGuard::new(Arc::clone(self), receipts);
        attempts.spawn(attempt(guard, records, permit));
    }
}
