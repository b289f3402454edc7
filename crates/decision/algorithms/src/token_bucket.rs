//! Token bucket as GCRA: one instant per key decides admission.
//!
//! A bucket of `burst` tokens refills at `amount` per `period`. Instead of a
//! token count the state keeps the instant at which the bucket will be full
//! again; what is missing from the bucket is the time until then. One number
//! suffices, it needs no background refill, and it says by itself when the key
//! may be forgotten.
//!
//! Promise: in any span t no more than burst + amount × t / period is admitted.

use crate::ask::Ask;
use crate::decision::Decision;
use crate::pace::{BucketState, BucketTerms, Pace, Taken};
use crate::period::Period;
use crate::time::Timestamp;

/// A bucket that holds `burst` and refills at `amount` per `period`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    amount: u64,
    period: Period,
    pace: Pace,
}

impl TokenBucket {
    /// A bucket of `burst` that refills at `amount` per `period`.
    ///
    /// An amount or a burst of zero refuses every cost. A burst of more than
    /// refills in 146 years is cut to that.
    pub fn new(amount: u64, period: Period, burst: u64) -> Self {
        TokenBucket { amount, period, pace: Pace::new(amount, period, burst) }
    }

    /// How much refills per period.
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// The period in which the amount refills.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// How much can be used at once from a full bucket.
    pub const fn burst(&self) -> u64 {
        self.pace.units()
    }

    /// The same rate with another burst.
    pub(crate) fn with_burst(&self, burst: u64) -> Self {
        TokenBucket::new(self.amount, self.period, burst)
    }

    /// The same bucket, counting as `other` does, which keeps the state.
    pub(crate) fn counting_like(&self, other: &TokenBucket) -> Self {
        let pace = self.pace.in_ticks_of(&other.pace, self.amount, self.period);
        TokenBucket { pace, ..self.clone() }
    }

    /// The plain numbers that it counts by.
    pub const fn terms(&self) -> BucketTerms {
        self.pace.terms()
    }

    pub(crate) const fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Takes one unit in one go: the commonest check by the shortest way. `None`, and nothing
    /// said, where it takes more thought; the verbs of [`Limit`](crate::Limit) decide then.
    #[inline(always)]
    pub fn take_unit(&self, state: BucketState, now: Timestamp) -> Option<Taken> {
        self.pace.take_unit(state, now)
    }

    /// The decision on a unit that [`TokenBucket::take_unit`] took at that instant; `after` is
    /// the state after it.
    #[inline(always)]
    pub fn tell_taken(&self, after: BucketState, now: Timestamp) -> Decision {
        self.pace.tell_taken(after, now)
    }

    /// The decision on a unit that [`TokenBucket::take_unit`] refused at that instant.
    #[inline(always)]
    pub fn tell_refused(&self, state: BucketState, now: Timestamp) -> Decision {
        self.pace.tell_refused_unit(state, now)
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub(crate) fn decide(&self, state: BucketState, ask: Ask) -> Decision {
        self.pace.decide(state, ask)
    }

    /// The settled state after `cost` is given back.
    pub(crate) fn refund(&self, state: BucketState, cost: u64, now: Timestamp) -> BucketState {
        self.pace.refund(state, cost, now)
    }
}

#[cfg(test)]
mod tests;
