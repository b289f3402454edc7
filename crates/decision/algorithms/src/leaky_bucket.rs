//! Leaky bucket as a queue: admitted requests leave at a constant pace.
//!
//! Each admitted request gets a delay; a caller that waits for it leaves exactly one interval after
//! the previous one. The queue holds a bounded number of waiting requests and refuses more. The
//! state is that of a token bucket: the instant at which the last admitted request leaves.
//!
//! There is no refund: giving back a turn would move every later turn.

use crate::bucket::{BucketMeter, BucketState, BucketTerms, Debt};
use crate::check_input::CheckInput;
use crate::decision::Decision;
use crate::period::Period;
use crate::time::Nanos;

/// An outflow of `amount` per `period` with room for `queue` waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    amount: u64,
    period: Period,
    /// Holds the request that leaves and those that wait.
    meter: BucketMeter,
}

impl LeakyBucket {
    /// An outflow of `amount` per `period`; `queue` more may wait for their turn.
    ///
    /// An amount of zero refuses every cost. A queue of zero admits only what can leave at once. A
    /// queue is cut to 146 years.
    pub fn new(amount: u64, period: Period, queue: u64) -> Self {
        let meter = BucketMeter::new(amount, period, queue.saturating_add(1));
        LeakyBucket { amount, period, meter }
    }

    /// How much leaves per period.
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// The period in which the amount leaves.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// How much may wait.
    pub const fn queue(&self) -> u64 {
        self.meter.units().saturating_sub(1)
    }

    /// The same outflow with room for `capacity`, including the request that leaves.
    pub(crate) fn with_capacity(&self, capacity: u64) -> Self {
        LeakyBucket::new(self.amount, self.period, capacity.saturating_sub(1))
    }

    /// The same bucket in the ticks of `other`, which keeps the state.
    pub(crate) fn counting_like(&self, other: &LeakyBucket) -> Self {
        let meter = self.meter.in_ticks_of(&other.meter, self.amount, self.period);
        LeakyBucket { meter, ..self.clone() }
    }

    /// The numbers that it calculates with.
    pub const fn terms(&self) -> BucketTerms {
        self.meter.terms()
    }

    pub(crate) const fn meter(&self) -> &BucketMeter {
        &self.meter
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub(crate) fn decide(&self, state: BucketState, input: CheckInput) -> Decision {
        delayed(self.meter.decide(state, input), self.meter.wait(state, input.now))
    }

    /// The decision on a cost at this debt.
    #[inline(always)]
    pub(crate) fn decision(&self, debt: Debt, input: CheckInput) -> Decision {
        delayed(self.meter.decision(debt, input), self.meter.wait_for(debt))
    }
}

/// An admitted request waits until the earlier ones have left.
#[inline]
fn delayed(decision: Decision, wait: Nanos) -> Decision {
    if decision.is_admitted() { Decision { delay: wait, ..decision } } else { decision }
}

#[cfg(test)]
mod tests;
