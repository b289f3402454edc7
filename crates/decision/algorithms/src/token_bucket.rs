//! Token bucket as GCRA: one instant per key decides admission.
//!
//! A bucket of `burst` tokens refills at `amount` per `period`. The state is not a token count but
//! the instant at which the bucket will be full again: the time until then is what is missing. One
//! number suffices, no background refill is needed, and the instant is when the key may be dropped.
//!
//! Promise: in any span t no more than burst + amount × t / period is admitted.

use crate::bucket::{BucketMeter, BucketState, BucketTerms, UnitOutcome};
use crate::check_input::CheckInput;
use crate::decision::Decision;
use crate::period::Period;
use crate::time::Timestamp;

/// A bucket that holds `burst` and refills at `amount` per `period`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    amount: u64,
    period: Period,
    meter: BucketMeter,
}

impl TokenBucket {
    /// A bucket of `burst` that refills at `amount` per `period`.
    ///
    /// An amount or a burst of zero refuses every cost. A burst is cut to what refills in 146
    /// years.
    pub fn new(amount: u64, period: Period, burst: u64) -> Self {
        TokenBucket { amount, period, meter: BucketMeter::new(amount, period, burst) }
    }

    /// How much refills per period.
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// The period in which the amount refills.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// How much a full bucket admits at once.
    pub const fn burst(&self) -> u64 {
        self.meter.units()
    }

    /// The same rate with another burst.
    pub(crate) fn with_burst(&self, burst: u64) -> Self {
        TokenBucket::new(self.amount, self.period, burst)
    }

    /// The same bucket in the ticks of `other`, which keeps the state.
    pub(crate) fn counting_like(&self, other: &TokenBucket) -> Self {
        let meter = self.meter.in_ticks_of(&other.meter, self.amount, self.period);
        TokenBucket { meter, ..self.clone() }
    }

    /// The numbers that it calculates with.
    pub const fn terms(&self) -> BucketTerms {
        self.meter.terms()
    }

    pub(crate) const fn meter(&self) -> &BucketMeter {
        &self.meter
    }

    /// Takes one unit: the most frequent check, in few instructions. `None` if the state needs the
    /// general arithmetic of [`Limit`](crate::Limit).
    #[inline(always)]
    pub fn take_unit(&self, state: BucketState, now: Timestamp) -> Option<UnitOutcome> {
        self.meter.take_unit(state, now)
    }

    /// The decision on a unit that [`TokenBucket::take_unit`] took at `now`; `after` is the state
    /// after it.
    #[inline(always)]
    pub fn unit_admission(&self, after: BucketState, now: Timestamp) -> Decision {
        self.meter.unit_admission(after, now)
    }

    /// The decision on a unit that [`TokenBucket::take_unit`] refused at `now`.
    #[inline(always)]
    pub fn unit_refusal(&self, state: BucketState, now: Timestamp) -> Decision {
        self.meter.unit_refusal(state, now)
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub(crate) fn decide(&self, state: BucketState, input: CheckInput) -> Decision {
        self.meter.decide(state, input)
    }

    /// The settled state after `cost` is refunded.
    pub(crate) fn refund(&self, state: BucketState, cost: u64, now: Timestamp) -> BucketState {
        self.meter.refund(state, cost, now)
    }
}

#[cfg(test)]
mod tests;
