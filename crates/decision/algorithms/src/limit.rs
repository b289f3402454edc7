//! One algorithm with its parameters, ready to judge a key's state.

use crate::algorithm::Algorithm;
use crate::ask::Ask;
use crate::concurrency::CONCURRENCY_MAX;
use crate::decision::Decision;
use crate::sliding_log::SLIDING_LOG_MAX;
use crate::sliding_window::SLICES_MAX;
use crate::small::Small;
use crate::soft::{Soft, SoftState, Stretch};
use crate::state::State;
use crate::time::Timestamp;

/// One algorithm with its parameters, hard or soft.
///
/// Every verb first settles the state: brings it in line with the present
/// parameters and instant. What that means for usage kept under other
/// parameters is said at each algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    algorithm: Algorithm,
    stretch: Option<Box<Stretch>>,
}

/// Parameters that an algorithm cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The log would take too much memory.
    #[error(
        "a sliding log remembers each request and goes up to {SLIDING_LOG_MAX}, not {limit}; \
         use sliding_window"
    )]
    SlidingLogTooLarge {
        /// The limit asked for.
        limit: u64,
    },
    /// Too few or too many slices.
    #[error("a sliding window has between 1 and {SLICES_MAX} buckets, not {slices}")]
    Slices {
        /// The number asked for.
        slices: u16,
    },
    /// The list of holders would take too much memory.
    #[error("a concurrency limit goes up to {CONCURRENCY_MAX} slots, not {limit}")]
    ConcurrencyTooLarge {
        /// The limit asked for.
        limit: u64,
    },
}

impl Limit {
    /// A hard limit.
    pub fn new(algorithm: impl Into<Algorithm>) -> Self {
        Limit { algorithm: algorithm.into(), stretch: None }
    }

    /// The same limit with a soft allowance.
    #[must_use]
    pub fn with_soft(self, soft: Soft) -> Self {
        let stretch = Stretch::new(soft, &self.algorithm);
        let algorithm = self.algorithm.counting_like(&stretch.stretched);
        Limit { algorithm, stretch: Some(Box::new(stretch)) }
    }

    /// The algorithm and its parameters.
    pub const fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// By how much and for how long the limit may be exceeded, if at all.
    pub fn soft(&self) -> Option<Soft> {
        self.stretch.as_ref().map(|stretch| stretch.soft)
    }

    /// The algorithm that keeps the state: a soft limit's own with its limit raised.
    pub fn kept_by(&self) -> &Algorithm {
        self.stretch.as_ref().map_or(&self.algorithm, |stretch| &stretch.stretched)
    }

    /// Admits and charges the whole cost, or refuses and charges nothing.
    #[inline]
    pub fn check(&self, state: &mut State, ask: Ask) -> Decision {
        self.settle(state, ask.now);
        let decision = self.decide(state, ask);
        if decision.is_admitted() {
            self.charge(state, ask, &decision);
        } else {
            self.refuse(state, ask);
        }
        decision
    }

    /// The limit as one whose state is one small value, if it is.
    #[inline(always)]
    pub fn small(&self) -> Option<Small<'_>> {
        if self.stretch.is_some() {
            return None;
        }
        match &self.algorithm {
            Algorithm::TokenBucket(bucket) => Some(Small::TokenBucket(bucket)),
            Algorithm::LeakyBucket(bucket) => Some(Small::LeakyBucket(bucket)),
            Algorithm::FixedWindow(window) => Some(Small::FixedWindow(window)),
            Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_) | Algorithm::Concurrency(_) => {
                None
            }
        }
    }

    /// Says whether [`Limit::check`] would admit, and what is left; charges nothing.
    pub fn peek(&self, state: &mut State, ask: Ask) -> Decision {
        self.settle(state, ask.now);
        let decision = self.decide(state, ask);
        self.uncharged(state, ask, decision)
    }

    /// A decision on a settled state that is not charged after all: what is
    /// left, and for how long, is then what it was before.
    pub fn uncharged(&self, state: &State, ask: Ask, decision: Decision) -> Decision {
        let unchanged = self.decide(state, ask.with_cost(0));
        Decision {
            taken: 0,
            remaining: unchanged.remaining,
            reset_after: unchanged.reset_after,
            ..decision
        }
    }

    /// Charges what is left, up to the cost. When nothing is left it refuses, and says when one
    /// unit will be; such a refusal is not counted.
    pub fn take(&self, state: &mut State, ask: Ask) -> Decision {
        self.settle(state, ask.now);
        let left = self.decide(state, ask.with_cost(0)).remaining;
        let ask = ask.with_cost(ask.cost.min(left.max(1)));
        let decision = self.decide(state, ask);
        if decision.is_admitted() {
            self.charge(state, ask, &decision);
        }
        decision
    }

    /// Gives back up to the cost. A leaky bucket keeps its places: see [`LeakyBucket`](crate::LeakyBucket).
    pub fn refund(&self, state: &mut State, ask: Ask) -> Decision {
        self.give_back(state, ask);
        self.peek(state, ask.with_cost(0))
    }

    /// The same as [`Limit::refund`] for those who do not ask what is left.
    pub fn give_back(&self, state: &mut State, ask: Ask) {
        self.settle(state, ask.now);
        match (&self.stretch, &mut *state) {
            (Some(_), State::Soft(soft)) => self.algorithm.refund(&mut soft.inner, ask),
            _ => self.algorithm.refund(state, ask),
        }
    }

    /// Charges the whole cost, also beyond the limit: it was admitted
    /// elsewhere. Says what is left after that.
    pub fn overcharge(&self, state: &mut State, ask: Ask) -> Decision {
        self.settle(state, ask.now);
        let decision = self.decide(state, ask);
        self.charge(state, ask, &decision);
        Decision { taken: ask.cost, ..self.peek(state, ask.with_cost(0)) }
    }

    /// Brings a state in line with these parameters and this instant; charges nothing.
    #[inline]
    pub fn settle(&self, state: &mut State, now: Timestamp) {
        let Some(stretch) = &self.stretch else {
            if let State::Soft(soft) = state {
                *state = std::mem::take(&mut soft.inner);
            }
            return self.algorithm.settle(state, now);
        };
        if !matches!(state, State::Soft(_)) {
            let inner = std::mem::take(state);
            *state = State::Soft(Box::new(SoftState::around(inner)));
        }
        if let State::Soft(soft) = state {
            stretch.settle(soft, now);
        }
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub fn decide(&self, state: &State, ask: Ask) -> Decision {
        match (&self.stretch, state) {
            (Some(stretch), State::Soft(soft)) => stretch.decide(&self.algorithm, soft, ask),
            _ => self.algorithm.decide(state, ask),
        }
    }

    /// Charges a settled state for an admitted decision.
    #[inline]
    pub fn charge(&self, state: &mut State, ask: Ask, decision: &Decision) {
        match (&self.stretch, &mut *state) {
            (Some(stretch), State::Soft(soft)) => stretch.charge(soft, ask, decision),
            _ => self.algorithm.charge(state, ask),
        }
    }

    /// Notes a refusal in a settled state, where the limit counts refused costs.
    #[inline]
    pub fn refuse(&self, state: &mut State, ask: Ask) {
        match (&self.stretch, &mut *state) {
            // What the stretched limit still tells apart must not be forgotten.
            (Some(stretch), State::Soft(soft)) => stretch.stretched.refuse(&mut soft.inner, ask),
            _ => self.algorithm.refuse(state, ask),
        }
    }
}

#[cfg(test)]
mod tests;
