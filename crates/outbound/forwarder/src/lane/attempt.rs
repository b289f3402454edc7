//! One attempt, and what its outcome means for the claim, the pace and the health of the target.

use std::sync::Arc;

use tidegate_capacity::{Cost, TargetAnswer};
use tidegate_delivery::{Attempt, AttemptOutcome, AttemptResult};
use tidegate_queue::{AttemptCharge, Receipt, Settlement};
use tokio::time::timeout;

use super::send::Permit;
use super::{Lane, add, cost_of};
use crate::retry::{AmbiguousRule, RetryDecision};

/// Settles the claims of an attempt. If it is dropped before, by a panic or the end of the process, their outcome is
/// ambiguous.
pub(super) struct AttemptGuard {
    lane: Arc<Lane>,
    receipts: Vec<(Receipt, u32)>,
}

impl AttemptGuard {
    pub(super) const fn new(lane: Arc<Lane>, receipts: Vec<(Receipt, u32)>) -> Self {
        AttemptGuard { lane, receipts }
    }
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        for (receipt, number) in self.receipts.drain(..) {
            let detail = "the attempt was abandoned".to_owned();
            self.lane.settle(receipt, number, AttemptOutcome::Ambiguous { detail });
        }
        self.lane.leave_flight();
    }
}

pub(super) async fn attempt(mut guard: AttemptGuard, records: Vec<Attempt>, permit: Permit) {
    let lane = Arc::clone(&guard.lane);
    if !permit.is_leased() {
        // The process was frozen since the turn: another one may have the slots by now.
        lane.return_unsent(guard.receipts.drain(..).map(|(receipt, _)| receipt));
        return;
    }
    let began = lane.clock.now();
    let processed = timeout(lane.settings.attempt_timeout, lane.processor.process(&records)).await;
    let took = lane.clock.now().since(began);
    let results = processed.unwrap_or_else(|_| {
        let detail = format!("no answer within {:?}", lane.settings.attempt_timeout);
        let lost = AttemptOutcome::Ambiguous { detail };
        records.iter().map(|_| AttemptResult::new(lost.clone())).collect()
    });
    permit.finish(target_answer(&results), real_cost(&records, &results));
    lane.judge_health(&results);
    let succeeded =
        results.iter().any(|result| matches!(result.outcome, AttemptOutcome::Delivered));
    lane.measurements.lock().finish(took, succeeded);
    // A processor that returns too few results leaves the rest ambiguous.
    let settled = guard.receipts.len().min(results.len());
    for ((receipt, number), result) in guard.receipts.drain(..settled).zip(results) {
        lane.settle(receipt, number, result.outcome);
    }
}

/// The answer as far as the target's capacity is concerned: throttled if any record was.
fn target_answer(results: &[AttemptResult]) -> TargetAnswer {
    let mut answer = TargetAnswer::Accepted;
    for result in results {
        if let AttemptOutcome::Throttled { hold } = result.outcome {
            let longest = match answer {
                TargetAnswer::Throttled { retry_after } => retry_after,
                TargetAnswer::Accepted => None,
            };
            answer = TargetAnswer::Throttled { retry_after: longest.max(hold.map(Into::into)) };
        }
    }
    answer
}

/// The real cost, if the target reported units for any record.
fn real_cost(records: &[Attempt], results: &[AttemptResult]) -> Option<Cost> {
    results.iter().any(|result| result.real_cost.is_some()).then(|| {
        let none = Cost { operations: 0, bytes: 0, units: 0 };
        let sum = records.iter().zip(results).fold(none, |sum, (attempt, result)| {
            let counted = cost_of(&attempt.record);
            sum.plus(Cost { units: result.real_cost.unwrap_or(counted.units), ..counted })
        });
        Cost { operations: 1, ..sum }
    })
}

impl Lane {
    /// Returns records to the queue that were not sent.
    fn return_unsent(&self, receipts: impl Iterator<Item = Receipt>) {
        for receipt in receipts {
            add(&self.counts.stale, 1);
            let not_before = self.clock.now();
            self.settle_later(
                receipt,
                Settlement::Nack { not_before, charge: AttemptCharge::Free },
            );
        }
    }

    fn judge_health(&self, results: &[AttemptResult]) {
        let mut health = self.health.lock();
        let failed = |result: &AttemptResult| {
            matches!(
                result.outcome,
                AttemptOutcome::Failed { .. } | AttemptOutcome::Ambiguous { .. }
            )
        };
        if results.iter().all(failed) {
            health.fail(self.clock.now());
        } else {
            health.succeed();
        }
    }

    /// Decides what becomes of a record after attempt `number`.
    fn settle(&self, receipt: Receipt, number: u32, outcome: AttemptOutcome) {
        let now = self.clock.now();
        let settlement = match outcome {
            AttemptOutcome::Delivered => {
                add(&self.counts.delivered, 1);
                Settlement::Ack
            }
            AttemptOutcome::Throttled { .. } => {
                add(&self.counts.throttled, 1);
                let not_before = self.settings.retry.throttled_until(self.next_random(), now);
                Settlement::Nack { not_before, charge: AttemptCharge::Free }
            }
            AttemptOutcome::Failed { detail } => {
                add(&self.counts.failed, 1);
                self.retry(number, &detail)
            }
            AttemptOutcome::Ambiguous { detail } => {
                add(&self.counts.ambiguous, 1);
                match self.settings.on_ambiguous {
                    AmbiguousRule::Retry => self.retry(number, &detail),
                    AmbiguousRule::Hold if number < self.settings.retry.attempts_max => {
                        let not_before = now.after(self.settings.ambiguous_wait.into());
                        Settlement::Nack { not_before, charge: AttemptCharge::Failed }
                    }
                    AmbiguousRule::Hold | AmbiguousRule::Bury => {
                        add(&self.counts.dead, 1);
                        let detail = format!("the answer was lost: {detail}");
                        Settlement::DeadLetter { detail }
                    }
                }
            }
            AttemptOutcome::Rejected { detail } => {
                add(&self.counts.rejected, 1);
                add(&self.counts.dead, 1);
                Settlement::DeadLetter { detail }
            }
        };
        self.settle_later(receipt, settlement);
    }

    fn retry(&self, number: u32, detail: &str) -> Settlement {
        match self.settings.retry.decide(number, self.next_random(), self.clock.now()) {
            RetryDecision::At(not_before) => {
                Settlement::Nack { not_before, charge: AttemptCharge::Failed }
            }
            RetryDecision::GiveUp => {
                add(&self.counts.dead, 1);
                Settlement::DeadLetter { detail: format!("after {number} attempts: {detail}") }
            }
        }
    }
}
