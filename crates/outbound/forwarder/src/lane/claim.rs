//! Claims what the next moments can send: at least the next 200 ms, at most 400 ms ahead.
//!
//! Records beyond that stay in the queue, where other processes can take them and a crash does not delay them.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::{Cost, MemberStatus};
use tidegate_queue::{AttemptCharge, Capability, Claim, ClaimBudget, Delivery, Settlement};

use super::{HeldClaim, Lane, add};

/// Records are claimed when fewer are held than this long needs.
const QUANTUM: Duration = Duration::from_millis(200);
/// The longest that is held ahead.
const AHEAD_MAX: Duration = Duration::from_millis(400);
/// The most records of a claim.
const CLAIM_MAX: u64 = 1_000;
/// How often a queue is looked at that only this process fills.
const LOOK_OWN: Duration = Duration::from_secs(1);
/// How often a shared queue is looked at.
const LOOK_SHARED: Duration = Duration::from_millis(250);
/// How often a lane without slots looks again, unless it gets some: after the store was lost, it may send without.
const LOOK_SLOTS: Duration = Duration::from_millis(250);
/// The pause after a failed claim.
const ERROR_PAUSE: Duration = Duration::from_millis(500);

pub(super) async fn run(lane: Arc<Lane>) {
    let shared = lane.queue.capabilities().contains(&Capability::Shared);
    let look = if shared { LOOK_SHARED } else { LOOK_OWN };
    while !lane.is_stopping() {
        if !lane.sends() {
            lane.wait(&lane.work, look).await;
            continue;
        }
        let status = lane.status();
        if status.slots == 0 {
            lane.wait_for_slots(LOOK_SLOTS).await;
            continue;
        }
        let Some(budget) = lane.claim_budget(&status) else {
            lane.pause(QUANTUM / 4).await;
            continue;
        };
        match lane.queue.claim(budget).await {
            Ok(claim) => lane.take_claim(claim, budget, look).await,
            Err(error) => {
                add(&lane.counts.queue_errors, 1);
                tracing::warn!(record_type = lane.settings.record_type, %error, "a claim failed");
                lane.wait(&lane.work, ERROR_PAUSE).await;
            }
        }
    }
}

impl Lane {
    /// The budget of the next claim; `None` while enough is held.
    fn claim_budget(&self, status: &MemberStatus) -> Option<ClaimBudget> {
        let (held, len) = {
            let buffer = self.buffer.lock();
            (buffer.cost(), buffer.len())
        };
        let soon = status.allowance(QUANTUM);
        // A share of less than one record in 200 ms claims one record at a time.
        let enough = |held: u64, soon: u64| soon < u64::MAX && held >= soon;
        if len > 0
            && (enough(held.operations, soon.operations)
                || enough(held.bytes, soon.bytes)
                || enough(held.units, soon.units))
        {
            return None;
        }
        let in_flight_max = u64::from(self.settings.in_flight_max);
        let records_max = CLAIM_MAX.min(in_flight_max.saturating_mul(4)).max(1);
        let held_records = len as u64;
        if held_records >= records_max {
            return None;
        }
        let ahead = status.allowance(AHEAD_MAX);
        let room = |ahead: u64, held: u64| ahead.saturating_sub(held);
        let records = room(ahead.operations, held.operations).min(records_max - held_records);
        let lease = self.settings.claim_lease();
        let (units, bytes) = (room(ahead.units, held.units), room(ahead.bytes, held.bytes));
        if len == 0 && (records == 0 || units == 0 || bytes == 0) {
            return Some(ClaimBudget::records(1, lease));
        }
        let records = usize::try_from(records).unwrap_or(1);
        (records > 0).then_some(ClaimBudget { records, cost: units, bytes, lease })
    }

    async fn take_claim(&self, claim: Claim, budget: ClaimBudget, look: Duration) {
        let taken = claim.deliveries.len();
        let none = taken == 0 && claim.withheld.is_none();
        let idle_until = none.then(|| claim.next_due.unwrap_or(Timestamp::MAX));
        self.measurements.lock().set_idle(idle_until);
        let fresh = claim.deliveries.iter().any(|one| one.record.attempts == 0);
        let fresh_waits = self.measurements.lock().see_fresh(fresh, self.clock.now());
        for delivery in claim.deliveries {
            self.accept(delivery, fresh_waits);
        }
        if taken > 0 {
            self.sendable.notify_one();
        } else if claim.withheld.is_some() && self.buffer.lock().is_empty() {
            // The next record costs more than the next moments allow: take it alone.
            self.claim_alone(budget.lease).await;
        }
        if taken < budget.records {
            let now = self.clock.now();
            let due = claim.next_due.map(|due| Duration::from(due.since(now)));
            let pause = if claim.withheld.is_some() { QUANTUM / 4 } else { look };
            let pause = due.map_or(pause, |due| due.min(pause)).max(Duration::from_millis(1));
            self.wait(&self.work, pause).await;
        }
    }

    async fn claim_alone(&self, lease: Duration) {
        match self.queue.claim(ClaimBudget::records(1, lease)).await {
            Ok(claim) => {
                for delivery in claim.deliveries {
                    self.accept(delivery, false);
                }
                self.sendable.notify_one();
            }
            Err(_) => add(&self.counts.queue_errors, 1),
        }
    }

    /// Puts a record into the buffer; a retry beyond the budget goes back while fresh records wait.
    fn accept(&self, delivery: Delivery, fresh_waits: bool) {
        let mut budget = self.budget.lock();
        if delivery.record.attempts == 0 {
            budget.earn();
        } else if !budget.spend() && fresh_waits {
            drop(budget);
            let not_before = self.retry_later();
            let settlement = Settlement::Nack { not_before, charge: AttemptCharge::Free };
            self.settle_later(delivery.receipt, settlement);
            return;
        }
        drop(budget);
        let claim = HeldClaim { receipt: delivery.receipt.clone(), ends: delivery.lease_ends };
        self.claims.lock().push(claim);
        self.buffer.lock().push(delivery);
    }

    /// Between two and ten seconds: a claim costs more than a wait, and there may be many of them.
    fn retry_later(&self) -> Timestamp {
        let wait = Nanos::from_secs(2).get() + self.next_random() % Nanos::from_secs(8).get();
        self.clock.now().after(Nanos::new(wait))
    }

    /// The cost of all records that this lane could send now.
    pub(super) fn backlog(&self, live: Cost) -> Cost {
        let held = self.buffer.lock().cost();
        if self.measurements.lock().is_idle(self.clock.now()) { held } else { live }
    }
}
