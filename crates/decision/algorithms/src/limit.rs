//! One algorithm with its parameters, ready to judge a key's state.

use crate::algorithm::Algorithm;
use crate::check_input::CheckInput;
use crate::concurrency::CONCURRENCY_MAX;
use crate::decision::Decision;
use crate::sliding_log::SLIDING_LOG_MAX;
use crate::sliding_window::SLICES_MAX;
use crate::soft::{Soft, SoftLimit, SoftState};
use crate::state::State;
use crate::time::Timestamp;
use crate::two_step::SmallLimit;

/// One algorithm with its parameters, hard or soft.
///
/// Every verb first settles the state: converts it to the present parameters and instant. Each
/// algorithm says how it converts use under other parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    algorithm: Algorithm,
    soft_limit: Option<Box<SoftLimit>>,
}

/// Parameters that an algorithm does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The log would take too much memory.
    #[error(
        "a sliding log remembers each request and goes up to {SLIDING_LOG_MAX}, not {limit}; \
         use sliding_window"
    )]
    SlidingLogTooLarge {
        /// The rejected limit.
        limit: u64,
    },
    /// Too few or too many slices.
    #[error("a sliding window has between 1 and {SLICES_MAX} buckets, not {slices}")]
    Slices {
        /// The rejected number.
        slices: u16,
    },
    /// The list of holders would take too much memory.
    #[error("a concurrency limit goes up to {CONCURRENCY_MAX} slots, not {limit}")]
    ConcurrencyTooLarge {
        /// The rejected limit.
        limit: u64,
    },
}

impl Limit {
    /// A hard limit.
    pub fn new(algorithm: impl Into<Algorithm>) -> Self {
        Limit { algorithm: algorithm.into(), soft_limit: None }
    }

    /// The same limit with a soft allowance.
    #[must_use]
    pub fn with_soft(self, soft: Soft) -> Self {
        let soft_limit = SoftLimit::new(soft, &self.algorithm);
        let algorithm = self.algorithm.counting_like(&soft_limit.raised);
        Limit { algorithm, soft_limit: Some(Box::new(soft_limit)) }
    }

    /// The algorithm and its parameters.
    pub const fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// The soft allowance, if there is one.
    pub fn soft(&self) -> Option<Soft> {
        self.soft_limit.as_ref().map(|soft_limit| soft_limit.soft)
    }

    /// The algorithm that the state is kept for: that of a soft limit with its limit raised.
    pub fn kept_by(&self) -> &Algorithm {
        self.soft_limit.as_ref().map_or(&self.algorithm, |soft_limit| &soft_limit.raised)
    }

    /// Admits and charges the whole cost, or refuses and charges nothing.
    #[inline]
    pub fn check(&self, state: &mut State, input: CheckInput) -> Decision {
        self.settle(state, input.now);
        let decision = self.decide(state, input);
        if decision.is_admitted() {
            self.charge(state, input, &decision);
        } else {
            self.refuse(state, input);
        }
        decision
    }

    /// The limit as one with a small state, if its state is one small value.
    #[inline(always)]
    pub fn small(&self) -> Option<SmallLimit<'_>> {
        if self.soft_limit.is_some() {
            return None;
        }
        self.algorithm.small()
    }

    /// The decision of [`Limit::check`], without charging.
    pub fn peek(&self, state: &mut State, input: CheckInput) -> Decision {
        self.settle(state, input.now);
        let decision = self.decide(state, input);
        self.uncharged(state, input, decision)
    }

    /// Corrects a decision on a settled state that is not charged after all: what remains is what
    /// remained before.
    pub fn uncharged(&self, state: &State, input: CheckInput, decision: Decision) -> Decision {
        let unchanged = self.decide(state, input.with_cost(0));
        Decision {
            taken: 0,
            remaining: unchanged.remaining,
            reset_after: unchanged.reset_after,
            ..decision
        }
    }

    /// Charges what is left, up to the cost. If nothing is left, it refuses with the time until one
    /// unit is; such a refusal is not counted.
    pub fn take(&self, state: &mut State, input: CheckInput) -> Decision {
        self.settle(state, input.now);
        let left = self.decide(state, input.with_cost(0)).remaining;
        let input = input.with_cost(input.cost.min(left.max(1)));
        let decision = self.decide(state, input);
        if decision.is_admitted() {
            self.charge(state, input, &decision);
        }
        decision
    }

    /// Gives back up to the cost. A leaky bucket keeps its turns: see
    /// [`LeakyBucket`](crate::LeakyBucket).
    pub fn refund(&self, state: &mut State, input: CheckInput) -> Decision {
        self.give_back(state, input);
        self.peek(state, input.with_cost(0))
    }

    /// Like [`Limit::refund`], without a decision.
    pub fn give_back(&self, state: &mut State, input: CheckInput) {
        self.settle(state, input.now);
        match (&self.soft_limit, &mut *state) {
            (Some(_), State::Soft(soft)) => self.algorithm.refund(&mut soft.inner, input),
            _ => self.algorithm.refund(state, input),
        }
    }

    /// Charges the whole cost, also beyond the limit: it was admitted elsewhere. The decision says
    /// what is left after that.
    pub fn overcharge(&self, state: &mut State, input: CheckInput) -> Decision {
        self.settle(state, input.now);
        let decision = self.decide(state, input);
        self.charge(state, input, &decision);
        Decision { taken: input.cost, ..self.peek(state, input.with_cost(0)) }
    }

    /// Converts a state to these parameters and this instant; charges nothing.
    #[inline]
    pub fn settle(&self, state: &mut State, now: Timestamp) {
        let Some(soft_limit) = &self.soft_limit else {
            if let State::Soft(soft) = state {
                *state = std::mem::take(&mut soft.inner);
            }
            return self.algorithm.settle(state, now);
        };
        if !matches!(state, State::Soft(_)) {
            let inner = std::mem::take(state);
            *state = State::Soft(Box::new(SoftState { inner, allowance: None }));
        }
        if let State::Soft(soft) = state {
            soft_limit.settle(soft, now);
        }
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub fn decide(&self, state: &State, input: CheckInput) -> Decision {
        match (&self.soft_limit, state) {
            (Some(soft_limit), State::Soft(soft)) => {
                soft_limit.decide(&self.algorithm, soft, input)
            }
            _ => self.algorithm.decide(state, input),
        }
    }

    /// Charges a settled state for an admitted decision.
    #[inline]
    pub fn charge(&self, state: &mut State, input: CheckInput, decision: &Decision) {
        match (&self.soft_limit, &mut *state) {
            (Some(soft_limit), State::Soft(soft)) => soft_limit.charge(soft, input, decision),
            _ => self.algorithm.charge(state, input),
        }
    }

    /// Counts a refused cost in a settled state, if the limit counts refused costs.
    #[inline]
    pub fn refuse(&self, state: &mut State, input: CheckInput) {
        match (&self.soft_limit, &mut *state) {
            // The raised limit keeps the state, so it has to count.
            (Some(soft_limit), State::Soft(soft)) => {
                soft_limit.raised.refuse(&mut soft.inner, input)
            }
            _ => self.algorithm.refuse(state, input),
        }
    }
}

#[cfg(test)]
mod tests;
