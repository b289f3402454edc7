//! Token bucket as GCRA: one instant per key decides admission.
//!
//! A bucket of `burst` tokens refills at `amount` per `period`. The state is not a token count but
//! the instant at which the bucket will be full again: the time until then is what is missing. One
//! number suffices, no background refill is needed, and the instant is when the key may be dropped.
//!
//! Promise: in any span t no more than burst + amount × t / period is admitted.

use crate::bucket::{BucketMeter, BucketState, UnitOutcome};
use crate::check_input::CheckInput;
use crate::decision::Decision;
use crate::period::Period;
use crate::time::Timestamp;

/// A bucket that holds `burst` and refills at `amount` per `period`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    pub(crate) meter: BucketMeter,
}

impl TokenBucket {
    /// A bucket of `burst` that refills at `amount` per `period`.
    ///
    /// An amount or a burst of zero refuses every cost. A burst is cut to what refills in 146
    /// years.
    pub fn new(amount: u64, period: Period, burst: u64) -> Self {
        TokenBucket { meter: BucketMeter::new(amount, period, burst) }
    }

    /// How much refills per period.
    pub const fn amount(&self) -> u64 {
        self.meter.amount
    }

    /// The period in which the amount refills.
    pub const fn period(&self) -> Period {
        self.meter.period
    }

    /// How much a full bucket admits at once.
    pub const fn burst(&self) -> u64 {
        self.meter.units
    }

    /// Takes one unit: the most frequent check, in few instructions. `None` if the state needs the
    /// general arithmetic of [`Limit`](crate::Limit).
    #[inline(always)]
    pub fn take_unit(&self, state: BucketState, now: Timestamp) -> Option<UnitOutcome> {
        self.meter.unit.take(state, now)
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
        self.meter.decision(self.meter.settled_debt(state, now), CheckInput::new(1, now))
    }
}

#[cfg(test)]
mod tests;
