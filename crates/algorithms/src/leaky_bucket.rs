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
use crate::decision::{Decision, Retry};
use crate::period::Period;
use crate::tick::{Scale, Ticks, capacity_within, interval, nanos_ceil, ticks_for, ticks_in};
use crate::time::Timestamp;
use crate::token_bucket::BucketState;

/// An outflow of `amount` per `period` with room for `queue` waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    amount: u64,
    period: Period,
    queue: u64,
    /// Ticks between two departures.
    interval: Ticks,
    /// How much the bucket holds: one leaving, the others waiting.
    capacity: u64,
    /// Ticks until everything has left when no more fits.
    full: Ticks,
    /// The most that a late reading of the clock can find waiting.
    debt_max: Ticks,
    scale: Scale,
}

impl LeakyBucket {
    /// An outflow of `amount` per `period`; `queue` more may wait their turn.
    ///
    /// An amount of zero refuses every cost. A queue of zero admits only what
    /// can leave at once.
    pub fn new(amount: u64, period: Period, queue: u64) -> Self {
        let interval = interval(amount, period);
        let capacity = match amount {
            0 => 0,
            _ => capacity_within(queue.saturating_add(1), interval),
        };
        let full = ticks_for(capacity, interval);
        LeakyBucket {
            amount,
            period,
            queue,
            interval,
            capacity,
            full,
            debt_max: full + ticks_in(period.lag_max()),
            scale: Scale::of(interval),
        }
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
        self.queue
    }

    /// How much the bucket holds: one leaving, the others waiting.
    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The same outflow with room for `capacity`, the one leaving included.
    pub(crate) fn with_capacity(&self, capacity: u64) -> Self {
        LeakyBucket::new(self.amount, self.period, capacity.saturating_sub(1))
    }

    /// The state in line with these parameters and this instant; see
    /// [`TokenBucket`](crate::TokenBucket) for why the debt is bounded.
    #[inline]
    pub(crate) fn settle(&self, state: Option<BucketState>, now: Timestamp) -> BucketState {
        let debt = state.map_or(0, |state| state.debt(self.scale, self.interval, now));
        let debt = if debt <= self.debt_max {
            debt
        } else {
            self.full
        };
        BucketState::owing(debt, self.scale, now)
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub(crate) fn decide(&self, state: BucketState, ask: Ask) -> Decision {
        let wait = state.owed(ask.now);
        let cost = ticks_for(ask.cost, self.interval);
        let after = wait + cost;
        if after <= self.full || ask.cost == 0 {
            let left = self.places(self.full.saturating_sub(after));
            let admitted = Decision::admitted(self.capacity, ask.cost, left, nanos_ceil(after));
            return Decision {
                delay: nanos_ceil(wait),
                ..admitted
            };
        }
        let retry = if cost > self.full {
            Retry::Never
        } else {
            Retry::After(nanos_ceil(after - self.full))
        };
        Decision::refused(
            self.capacity,
            self.available(state, ask.now),
            retry,
            nanos_ceil(wait),
        )
    }

    /// The settled state after `cost` more.
    #[inline]
    pub(crate) fn charge(&self, state: BucketState, cost: u64) -> BucketState {
        state.later(ticks_for(cost, self.interval))
    }

    /// How much could be admitted at once.
    #[inline]
    pub(crate) fn available(&self, state: BucketState, now: Timestamp) -> u64 {
        self.places(self.full.saturating_sub(state.owed(now)))
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "never more than the capacity, which is a u64"
    )]
    fn places(&self, ticks: Ticks) -> u64 {
        (ticks / self.interval) as u64
    }
}

#[cfg(test)]
mod tests;
