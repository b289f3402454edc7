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
use crate::decision::{Decision, Retry};
use crate::period::Period;
use crate::tick::{
    INSTANT_MAX, Scale, Ticks, capacity_within, interval, nanos_ceil, ticks_at, ticks_for, ticks_in,
};
use crate::time::Timestamp;

/// A bucket that holds `burst` and refills at `amount` per `period`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    amount: u64,
    period: Period,
    burst: u64,
    /// Ticks that one token takes to refill.
    interval: Ticks,
    /// Ticks that an empty bucket takes to fill.
    capacity: Ticks,
    /// The most that a late reading of the clock can find owed.
    debt_max: Ticks,
    scale: Scale,
}

/// What the two bucket algorithms remember of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketState {
    /// In ticks of 2⁻¹⁴ ns since the epoch: when nothing will be owed any more.
    full_at: Ticks,
    scale: Scale,
}

impl BucketState {
    #[inline]
    pub(crate) fn owing(debt: Ticks, scale: Scale, now: Timestamp) -> Self {
        let full_at = ticks_at(now);
        BucketState { full_at, scale }.later(debt)
    }

    /// What is still owed at `now`, in ticks of the interval it was written under.
    #[inline]
    pub(crate) fn owed(self, now: Timestamp) -> Ticks {
        self.full_at.saturating_sub(ticks_at(now))
    }

    /// What is still owed at `now`, in ticks of the interval given.
    #[inline]
    pub(crate) fn debt(self, scale: Scale, interval: Ticks, now: Timestamp) -> Ticks {
        let owed = self.owed(now);
        if self.scale == scale {
            owed
        } else {
            self.scale.rescale(owed, interval)
        }
    }

    /// The state with more owed.
    #[inline]
    pub(crate) fn later(self, ticks: Ticks) -> Self {
        BucketState {
            full_at: self.full_at.saturating_add(ticks).min(INSTANT_MAX),
            ..self
        }
    }

    /// When the state stops mattering.
    pub fn idle_at(self) -> Timestamp {
        Timestamp::from_nanos(nanos_ceil(self.full_at).get())
    }

    /// The state as plain numbers: ticks of 2⁻¹⁴ ns since the epoch, and the
    /// scale. Both fit in 128 bits together.
    pub const fn to_parts(self) -> (u128, Scale) {
        (self.full_at, self.scale)
    }

    /// The state from its plain numbers.
    pub const fn from_parts(full_at: u128, scale: Scale) -> Self {
        BucketState { full_at, scale }
    }
}

impl TokenBucket {
    /// A bucket of `burst` that refills at `amount` per `period`.
    ///
    /// An amount or a burst of zero refuses every cost. A burst that would take
    /// more than a trillion years to refill is cut to one that does not.
    pub fn new(amount: u64, period: Period, burst: u64) -> Self {
        let interval = interval(amount, period);
        let burst = match amount {
            0 => 0,
            _ => capacity_within(burst, interval),
        };
        let capacity = ticks_for(burst, interval);
        TokenBucket {
            amount,
            period,
            burst,
            interval,
            capacity,
            debt_max: capacity + ticks_in(period.lag_max()),
            scale: Scale::of(interval),
        }
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
        self.burst
    }

    /// The same rate with another burst.
    pub(crate) fn with_burst(&self, burst: u64) -> Self {
        TokenBucket::new(self.amount, self.period, burst)
    }

    /// The state in line with these parameters and this instant.
    ///
    /// Usage kept under another rate is read back as an amount. More than an
    /// empty bucket owes is believed only as far as a late reading of the clock
    /// explains it: a larger debt comes from a smaller limit or from a clock
    /// that stepped back, and would freeze the key.
    #[inline]
    pub(crate) fn settle(&self, state: Option<BucketState>, now: Timestamp) -> BucketState {
        let debt = state.map_or(0, |state| state.debt(self.scale, self.interval, now));
        let debt = if debt <= self.debt_max {
            debt
        } else {
            self.capacity
        };
        BucketState::owing(debt, self.scale, now)
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub(crate) fn decide(&self, state: BucketState, ask: Ask) -> Decision {
        let debt = state.owed(ask.now);
        let cost = ticks_for(ask.cost, self.interval);
        let after = debt + cost;
        if after <= self.capacity {
            let left = self.tokens(self.capacity - after);
            return Decision::admitted(self.burst, ask.cost, left, nanos_ceil(after));
        }
        if ask.cost == 0 {
            return Decision::admitted(self.burst, 0, 0, nanos_ceil(debt));
        }
        let retry = if cost > self.capacity {
            Retry::Never
        } else {
            Retry::After(nanos_ceil(after - self.capacity))
        };
        Decision::refused(
            self.burst,
            self.available(state, ask.now),
            retry,
            nanos_ceil(debt),
        )
    }

    /// The settled state after `cost` more.
    #[inline]
    pub(crate) fn charge(&self, state: BucketState, cost: u64) -> BucketState {
        state.later(ticks_for(cost, self.interval))
    }

    /// The settled state after `cost` is given back.
    pub(crate) fn refund(&self, state: BucketState, ask: Ask) -> BucketState {
        let debt = state
            .owed(ask.now)
            .saturating_sub(ticks_for(ask.cost, self.interval));
        BucketState::owing(debt, self.scale, ask.now)
    }

    /// How much could be used at once.
    #[inline]
    pub(crate) fn available(&self, state: BucketState, now: Timestamp) -> u64 {
        self.tokens(self.capacity.saturating_sub(state.owed(now)))
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "never more than the burst, which is a u64"
    )]
    fn tokens(&self, ticks: Ticks) -> u64 {
        (ticks / self.interval) as u64
    }
}

#[cfg(test)]
mod tests;
