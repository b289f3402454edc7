//! One algorithm with its parameters, ready to judge a key's state.

use crate::ask::Ask;
use crate::concurrency::{CONCURRENCY_MAX, Concurrency};
use crate::decision::Decision;
use crate::fixed_window::FixedWindow;
use crate::leaky_bucket::LeakyBucket;
use crate::pace::BucketState;
use crate::sliding_log::{SLIDING_LOG_MAX, SlidingLog};
use crate::sliding_window::{SLICES_MAX, SlidingWindow};
use crate::small::Small;
use crate::soft::{Soft, SoftState, Stretch};
use crate::state::State;
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;
use crate::window::Window;

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

/// The six ways to limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Burst apart from rate; see [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// Constant outflow with a queue; see [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// One count per window; see [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// Exact in any window; see [`SlidingLog`].
    SlidingLog(SlidingLog),
    /// Weighted counts; see [`SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// In flight; see [`Concurrency`].
    Concurrency(Concurrency),
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

    /// Gives back up to the cost. A leaky bucket keeps its places: see [`LeakyBucket`].
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

impl Algorithm {
    /// The name that rules and metrics use.
    pub const fn name(&self) -> &'static str {
        match self {
            Algorithm::TokenBucket(_) => "token_bucket",
            Algorithm::LeakyBucket(_) => "leaky_bucket",
            Algorithm::FixedWindow(_) => "fixed_window",
            Algorithm::SlidingLog(_) => "sliding_log",
            Algorithm::SlidingWindow(_) => "sliding_window",
            Algorithm::Concurrency(_) => "concurrency",
        }
    }

    /// The amount that the rule writer gave: per period, or slots.
    pub const fn quota(&self) -> u64 {
        match self {
            Algorithm::TokenBucket(bucket) => bucket.amount(),
            Algorithm::LeakyBucket(bucket) => bucket.amount(),
            Algorithm::FixedWindow(window) => window.limit(),
            Algorithm::SlidingLog(log) => log.limit(),
            Algorithm::SlidingWindow(window) => window.limit(),
            Algorithm::Concurrency(slots) => slots.limit(),
        }
    }

    /// The period of the quota; for calendar windows their usual length, for
    /// concurrency the time to live of a slot.
    pub fn period(&self) -> Nanos {
        match self {
            Algorithm::TokenBucket(bucket) => bucket.period().as_span(),
            Algorithm::LeakyBucket(bucket) => bucket.period().as_span(),
            Algorithm::FixedWindow(window) => match window.window() {
                Window::Every(period) => period.as_span(),
                Window::Calendar(unit, _) => unit.nominal(),
            },
            Algorithm::SlidingLog(log) => log.period().as_span(),
            Algorithm::SlidingWindow(window) => window.period().as_span(),
            Algorithm::Concurrency(slots) => slots.time_to_live().as_span(),
        }
    }

    /// What can be used at once when nothing is used.
    pub const fn capacity(&self) -> u64 {
        match self {
            Algorithm::TokenBucket(bucket) => bucket.burst(),
            Algorithm::LeakyBucket(bucket) => bucket.pace().units(),
            _ => self.quota(),
        }
    }

    /// Whether costs that it refuses count as used.
    pub const fn counts_refused(&self) -> bool {
        match self {
            Algorithm::FixedWindow(window) => window.counts_refused(),
            Algorithm::SlidingLog(log) => log.counts_refused(),
            Algorithm::SlidingWindow(window) => window.counts_refused(),
            Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_) => {
                false
            }
        }
    }

    pub(crate) fn with_capacity(&self, capacity: u64) -> Self {
        match self {
            Algorithm::TokenBucket(bucket) => bucket.with_burst(capacity).into(),
            Algorithm::LeakyBucket(bucket) => bucket.with_capacity(capacity).into(),
            Algorithm::FixedWindow(window) => window.with_limit(capacity).into(),
            Algorithm::SlidingLog(log) => log.with_limit(capacity).into(),
            Algorithm::SlidingWindow(window) => window.with_limit(capacity).into(),
            Algorithm::Concurrency(slots) => slots.with_limit(capacity).into(),
        }
    }

    /// The same, counting as `other` does, which keeps the state of both.
    fn counting_like(self, other: &Algorithm) -> Self {
        match (&self, other) {
            (Algorithm::TokenBucket(bucket), Algorithm::TokenBucket(other)) => {
                bucket.counting_like(other).into()
            }
            (Algorithm::LeakyBucket(bucket), Algorithm::LeakyBucket(other)) => {
                bucket.counting_like(other).into()
            }
            _ => self,
        }
    }

    /// The same without counting refused costs, if it counts them.
    pub(crate) fn not_counting_refused(&self) -> Option<Self> {
        let silent: Algorithm = match self {
            Algorithm::FixedWindow(window) => window.clone().counting_refused(false).into(),
            Algorithm::SlidingLog(log) => log.clone().counting_refused(false).into(),
            Algorithm::SlidingWindow(window) => window.clone().counting_refused(false).into(),
            Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_) => {
                return None;
            }
        };
        (silent != *self).then_some(silent)
    }

    #[inline]
    pub(crate) fn settle(&self, state: &mut State, now: Timestamp) {
        match self {
            Algorithm::TokenBucket(bucket) => {
                *state = State::Bucket(bucket.pace().settle(bucket_of(state), now));
            }
            Algorithm::LeakyBucket(bucket) => {
                *state = State::Bucket(bucket.pace().settle(bucket_of(state), now));
            }
            Algorithm::FixedWindow(window) => {
                let known = if let State::Window(known) = state { Some(*known) } else { None };
                *state = State::Window(window.settle(known, now));
            }
            Algorithm::SlidingWindow(window) => {
                let known = match std::mem::take(state) {
                    State::Slices(known) => Some(known),
                    _ => None,
                };
                *state = State::Slices(window.settle(known, now));
            }
            Algorithm::SlidingLog(log) => {
                if !matches!(state, State::Log(_)) {
                    *state = State::Log(Default::default());
                }
                if let State::Log(entries) = state {
                    log.settle(entries, now);
                }
            }
            Algorithm::Concurrency(limit) => {
                if !matches!(state, State::Slots(_)) {
                    *state = State::Slots(Default::default());
                }
                if let State::Slots(slots) = state {
                    limit.settle(slots, now);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn decide(&self, state: &State, ask: Ask) -> Decision {
        match (self, state) {
            (Algorithm::TokenBucket(bucket), State::Bucket(state)) => bucket.decide(*state, ask),
            (Algorithm::LeakyBucket(bucket), State::Bucket(state)) => bucket.decide(*state, ask),
            (Algorithm::FixedWindow(window), State::Window(state)) => window.decide(*state, ask),
            (Algorithm::SlidingWindow(window), State::Slices(state)) => window.decide(state, ask),
            (Algorithm::SlidingLog(log), State::Log(state)) => log.decide(state, ask),
            (Algorithm::Concurrency(slots), State::Slots(state)) => slots.decide(state, ask),
            _ => self.decide_unused(ask),
        }
    }

    /// A state of another kind says nothing about this limit.
    #[cold]
    fn decide_unused(&self, ask: Ask) -> Decision {
        let mut state = State::Unused;
        self.settle(&mut state, ask.now);
        self.decide(&state, ask)
    }

    #[inline]
    pub(crate) fn charge(&self, state: &mut State, ask: Ask) {
        match (self, state) {
            (Algorithm::TokenBucket(bucket), State::Bucket(state)) => {
                *state = bucket.pace().charge(*state, ask.cost, ask.now);
            }
            (Algorithm::LeakyBucket(bucket), State::Bucket(state)) => {
                *state = bucket.pace().charge(*state, ask.cost, ask.now);
            }
            (Algorithm::FixedWindow(_), State::Window(state)) => {
                *state = FixedWindow::charge(*state, ask.cost);
            }
            (Algorithm::SlidingWindow(_), State::Slices(state)) => {
                SlidingWindow::charge(state, ask.cost);
            }
            (Algorithm::SlidingLog(log), State::Log(state)) => {
                log.charge(state, ask.cost, ask.now);
            }
            (Algorithm::Concurrency(slots), State::Slots(state)) => slots.charge(state, ask),
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn refuse(&self, state: &mut State, ask: Ask) {
        match (self, state) {
            (Algorithm::FixedWindow(window), State::Window(state)) => {
                *state = window.refuse(*state, ask.cost);
            }
            (Algorithm::SlidingWindow(window), State::Slices(state)) => {
                window.refuse(state, ask.cost);
            }
            (Algorithm::SlidingLog(log), State::Log(state)) => {
                log.refuse(state, ask.cost, ask.now);
            }
            _ => {}
        }
    }

    fn refund(&self, state: &mut State, ask: Ask) {
        match (self, state) {
            (Algorithm::TokenBucket(bucket), State::Bucket(state)) => {
                *state = bucket.refund(*state, ask.cost, ask.now);
            }
            (Algorithm::FixedWindow(_), State::Window(state)) => {
                *state = FixedWindow::refund(*state, ask.cost);
            }
            (Algorithm::SlidingWindow(_), State::Slices(state)) => {
                SlidingWindow::refund(state, ask.cost);
            }
            (Algorithm::SlidingLog(log), State::Log(state)) => {
                log.refund(state, ask.cost, ask.now);
            }
            (Algorithm::Concurrency(_), State::Slots(state)) => Concurrency::refund(state, ask),
            _ => {}
        }
    }
}

#[inline]
fn bucket_of(state: &State) -> Option<BucketState> {
    if let State::Bucket(state) = state { Some(*state) } else { None }
}

macro_rules! from_algorithm {
    ($($name:ident),*) => {$(
        impl From<$name> for Algorithm {
            fn from(parameters: $name) -> Self {
                Algorithm::$name(parameters)
            }
        }
    )*};
}

from_algorithm!(TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindow, Concurrency);

#[cfg(test)]
mod tests;
