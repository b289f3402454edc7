//! Leaky bucket as a queue: admitted requests leave at a constant pace.
//!
//! Each admitted request is given a delay; a caller that waits it out leaves
//! exactly one interval after the one before. The queue holds a bounded number
//! of waiting requests and refuses beyond. The state is that of a token bucket:
//! the instant at which the last admitted request has left.
//!
//! There is no refund: a place in a constant outflow cannot be handed back
//! without moving everyone behind it.

use crate::ask::Ask;
use crate::decision::Decision;
use crate::pace::{BucketState, BucketTerms, Debt, Pace};
use crate::period::Period;
use crate::time::Nanos;

/// An outflow of `amount` per `period` with room for `queue` waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    amount: u64,
    period: Period,
    /// Holds the one leaving and those waiting.
    pace: Pace,
}

impl LeakyBucket {
    /// An outflow of `amount` per `period`; `queue` more may wait their turn.
    ///
    /// An amount of zero refuses every cost. A queue of zero admits only what
    /// can leave at once. A queue longer than 146 years is cut to that.
    pub fn new(amount: u64, period: Period, queue: u64) -> Self {
        let pace = Pace::new(amount, period, queue.saturating_add(1));
        LeakyBucket { amount, period, pace }
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
        self.pace.units().saturating_sub(1)
    }

    /// The same outflow with room for `capacity`, the one leaving included.
    pub(crate) fn with_capacity(&self, capacity: u64) -> Self {
        LeakyBucket::new(self.amount, self.period, capacity.saturating_sub(1))
    }

    /// The same bucket, counting as `other` does, which keeps the state.
    pub(crate) fn counting_like(&self, other: &LeakyBucket) -> Self {
        let pace = self.pace.in_ticks_of(&other.pace, self.amount, self.period);
        LeakyBucket { pace, ..self.clone() }
    }

    /// The plain numbers that it counts by.
    pub const fn terms(&self) -> BucketTerms {
        self.pace.terms()
    }

    pub(crate) const fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub(crate) fn decide(&self, state: BucketState, ask: Ask) -> Decision {
        delayed(self.pace.decide(state, ask), self.pace.wait(state, ask.now))
    }

    /// The whole decision.
    #[inline(always)]
    pub(crate) fn tell(&self, debt: Debt, ask: Ask) -> Decision {
        delayed(self.pace.tell(debt, ask), self.pace.wait_for(debt))
    }
}

/// An admitted request waits until those before it have left.
#[inline]
fn delayed(decision: Decision, wait: Nanos) -> Decision {
    if decision.is_admitted() { Decision { delay: wait, ..decision } } else { decision }
}

#[cfg(test)]
mod tests;
