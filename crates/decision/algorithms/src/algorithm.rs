//! The algorithms as one type, with everything that other crates need to know of them.
//!
//! Every method matches on all variants, so that the compiler leads a new algorithm to each of
//! them. Other crates call a method here instead of matching on one variant.

use crate::bucket::BucketTerms;
use crate::check_input::CheckInput;
use crate::concurrency::Concurrency;
use crate::decision::Decision;
use crate::fixed_window::FixedWindow;
use crate::leaky_bucket::LeakyBucket;
use crate::limit::ParameterError;
use crate::period::Period;
use crate::sliding_log::SlidingLog;
use crate::sliding_window::SlidingWindow;
use crate::state::State;
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;
use crate::two_step::SmallLimit;
use crate::window::Window;

macro_rules! algorithms {
    ($($(#[$about:meta])* $variant:ident = $name:literal,)+) => {
        /// One of the algorithms, with its parameters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Algorithm {
            $($(#[$about])* $variant($variant),)+
        }

        impl Algorithm {
            /// The names of all algorithms.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name that rules and metrics use.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Algorithm::$variant(_) => $name,)+
                }
            }
        }

        $(impl From<$variant> for Algorithm {
            fn from(parameters: $variant) -> Self {
                Algorithm::$variant(parameters)
            }
        })+
    };
}

algorithms! {
    /// Burst apart from rate; see [`TokenBucket`].
    TokenBucket = "token_bucket",
    /// Constant outflow with a queue; see [`LeakyBucket`].
    LeakyBucket = "leaky_bucket",
    /// One count per window; see [`FixedWindow`].
    FixedWindow = "fixed_window",
    /// Exact in any window; see [`SlidingLog`].
    SlidingLog = "sliding_log",
    /// Weighted counts; see [`SlidingWindow`].
    SlidingWindow = "sliding_window",
    /// In flight; see [`Concurrency`].
    Concurrency = "concurrency",
}

impl Algorithm {
    /// The amount in the rule: per period, or slots.
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

    /// Units that can be used at once when none are used.
    pub const fn capacity(&self) -> u64 {
        match self {
            Algorithm::TokenBucket(bucket) => bucket.burst(),
            Algorithm::LeakyBucket(bucket) => bucket.meter.units,
            Algorithm::FixedWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::Concurrency(_) => self.quota(),
        }
    }

    /// Whether refused costs count as used.
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

    /// Whether it counts requests in flight, whose slots come back when their holders are done.
    pub const fn holds_slots(&self) -> bool {
        self.slot_time_to_live().is_some()
    }

    /// After how long a slot that was never given back is free again, if it holds slots.
    pub const fn slot_time_to_live(&self) -> Option<Period> {
        match self {
            Algorithm::Concurrency(slots) => Some(slots.time_to_live()),
            Algorithm::TokenBucket(_)
            | Algorithm::LeakyBucket(_)
            | Algorithm::FixedWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::SlidingWindow(_) => None,
        }
    }

    /// Whether units can be given back. A leaky bucket's turns cannot: see [`LeakyBucket`].
    pub const fn is_refundable(&self) -> bool {
        match self {
            Algorithm::LeakyBucket(_) => false,
            Algorithm::TokenBucket(_)
            | Algorithm::FixedWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::Concurrency(_) => true,
        }
    }

    /// Whether its state is nothing but the units that were admitted, so that several processes
    /// can count in parts and add them up: no turns, no slots.
    pub const fn is_counter(&self) -> bool {
        self.is_refundable() && !self.holds_slots()
    }

    /// Whether its state is a list that grows with use.
    pub const fn is_list(&self) -> bool {
        match self {
            Algorithm::SlidingLog(_) | Algorithm::Concurrency(_) => true,
            Algorithm::TokenBucket(_)
            | Algorithm::LeakyBucket(_)
            | Algorithm::FixedWindow(_)
            | Algorithm::SlidingWindow(_) => false,
        }
    }

    /// The algorithm as one with a small state, if its state is one small value.
    #[inline(always)]
    pub(crate) const fn small(&self) -> Option<SmallLimit<'_>> {
        match self {
            Algorithm::TokenBucket(bucket) => Some(SmallLimit::TokenBucket(bucket)),
            Algorithm::LeakyBucket(bucket) => Some(SmallLimit::LeakyBucket(bucket)),
            Algorithm::FixedWindow(window) => Some(SmallLimit::FixedWindow(window)),
            Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_) | Algorithm::Concurrency(_) => {
                None
            }
        }
    }

    /// The numbers that it calculates with, if its state is [`State::Bucket`].
    pub const fn bucket_terms(&self) -> Option<BucketTerms> {
        match self {
            Algorithm::TokenBucket(TokenBucket { meter })
            | Algorithm::LeakyBucket(LeakyBucket { meter }) => Some(meter.terms()),
            Algorithm::FixedWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::Concurrency(_) => None,
        }
    }

    /// Whether all of the quota comes back at one instant, the end of a window.
    pub const fn resets_at_once(&self) -> bool {
        match self {
            Algorithm::FixedWindow(_) => true,
            Algorithm::TokenBucket(_)
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::Concurrency(_) => false,
        }
    }

    /// The parameter that only this algorithm has, by its key in rule files.
    pub fn own_parameter(&self) -> Option<(&'static str, u64)> {
        match self {
            Algorithm::TokenBucket(bucket) => Some(("burst", bucket.burst())),
            Algorithm::LeakyBucket(bucket) => Some(("queue", bucket.queue())),
            Algorithm::SlidingWindow(window) => Some(("buckets", window.slices().into())),
            Algorithm::FixedWindow(_) | Algorithm::SlidingLog(_) | Algorithm::Concurrency(_) => {
                None
            }
        }
    }

    /// One of `parts` equal parts of the limit: at least one unit, unless the limit has none.
    #[must_use]
    pub fn part(&self, parts: u64) -> Self {
        let parts = parts.max(1);
        let part = |whole: u64| if whole == 0 { 0 } else { (whole / parts).max(1) };
        match self {
            Algorithm::TokenBucket(bucket) => {
                let (amount, period) = slower(bucket.amount(), bucket.period(), parts);
                TokenBucket::new(amount, period, part(bucket.burst())).into()
            }
            Algorithm::LeakyBucket(bucket) => {
                let (amount, period) = slower(bucket.amount(), bucket.period(), parts);
                LeakyBucket::new(amount, period, bucket.queue() / parts).into()
            }
            Algorithm::FixedWindow(window) => window.with_limit(part(window.limit())).into(),
            Algorithm::SlidingLog(log) => log.with_limit(part(log.limit())).into(),
            Algorithm::SlidingWindow(window) => window.with_limit(part(window.limit())).into(),
            Algorithm::Concurrency(slots) => slots.with_limit(part(slots.limit())).into(),
        }
    }

    /// The same algorithm with another amount. `own` is the burst or the queue, if it has one; without it they change in
    /// the same proportion.
    ///
    /// # Errors
    /// When the amount is larger than the algorithm allows.
    pub fn with_amount(&self, amount: u64, own: Option<u64>) -> Result<Self, ParameterError> {
        let scaled = |part: u64| own.unwrap_or_else(|| in_proportion(part, self.quota(), amount));
        Ok(match self {
            Algorithm::TokenBucket(bucket) => {
                TokenBucket::new(amount, bucket.period(), scaled(bucket.burst())).into()
            }
            Algorithm::LeakyBucket(bucket) => {
                LeakyBucket::new(amount, bucket.period(), scaled(bucket.queue())).into()
            }
            Algorithm::FixedWindow(window) => window.with_limit(amount).into(),
            Algorithm::SlidingLog(log) => {
                SlidingLog::new(amount, log.period())?.counting_refused(log.counts_refused()).into()
            }
            Algorithm::SlidingWindow(window) => window.with_limit(amount).into(),
            Algorithm::Concurrency(slots) => Concurrency::new(amount, slots.time_to_live())?.into(),
        })
    }

    /// The same algorithm with another period; a calendar window stays as it is.
    #[must_use]
    pub fn with_period(&self, period: Period) -> Self {
        match self {
            Algorithm::TokenBucket(bucket) => {
                TokenBucket::new(bucket.amount(), period, bucket.burst()).into()
            }
            Algorithm::LeakyBucket(bucket) => {
                LeakyBucket::new(bucket.amount(), period, bucket.queue()).into()
            }
            Algorithm::FixedWindow(window) => match window.window() {
                Window::Every(_) => window.clone().with_window(Window::Every(period)).into(),
                Window::Calendar(..) => self.clone(),
            },
            Algorithm::SlidingLog(log) => log.with_period(period).into(),
            Algorithm::SlidingWindow(window) => window.with_period(period).into(),
            Algorithm::Concurrency(slots) => slots.with_time_to_live(period).into(),
        }
    }

    /// The same algorithm with another capacity, up to its maximum.
    #[must_use]
    pub fn with_capacity(&self, capacity: u64) -> Self {
        match self {
            Algorithm::TokenBucket(bucket) => {
                TokenBucket::new(bucket.amount(), bucket.period(), capacity).into()
            }
            Algorithm::LeakyBucket(bucket) => {
                LeakyBucket::new(bucket.amount(), bucket.period(), capacity.saturating_sub(1))
                    .into()
            }
            Algorithm::FixedWindow(window) => window.with_limit(capacity).into(),
            Algorithm::SlidingLog(log) => log.with_limit(capacity).into(),
            Algorithm::SlidingWindow(window) => window.with_limit(capacity).into(),
            Algorithm::Concurrency(slots) => slots.with_limit(capacity).into(),
        }
    }

    /// The same algorithm in the ticks of `other`, which keeps the state of both.
    pub(crate) fn counting_like(mut self, other: &Algorithm) -> Self {
        match (&mut self, other) {
            (
                Algorithm::TokenBucket(TokenBucket { meter }),
                Algorithm::TokenBucket(TokenBucket { meter: other }),
            )
            | (
                Algorithm::LeakyBucket(LeakyBucket { meter }),
                Algorithm::LeakyBucket(LeakyBucket { meter: other }),
            ) => *meter = meter.in_ticks_of(other),
            (
                Algorithm::TokenBucket(_)
                | Algorithm::LeakyBucket(_)
                | Algorithm::FixedWindow(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::SlidingWindow(_)
                | Algorithm::Concurrency(_),
                _,
            ) => {}
        }
        self
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
            Algorithm::TokenBucket(TokenBucket { meter })
            | Algorithm::LeakyBucket(LeakyBucket { meter }) => {
                let known = if let State::Bucket(known) = state { Some(*known) } else { None };
                *state = State::Bucket(meter.settle(known, now));
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
    pub(crate) fn decide(&self, state: &State, input: CheckInput) -> Decision {
        match (self, state) {
            (Algorithm::TokenBucket(TokenBucket { meter }), State::Bucket(state)) => {
                meter.decision(meter.settled_debt(*state, input.now), input)
            }
            (Algorithm::LeakyBucket(bucket), State::Bucket(state)) => {
                bucket.decision(bucket.meter.settled_debt(*state, input.now), input)
            }
            (Algorithm::FixedWindow(window), State::Window(state)) => window.decide(*state, input),
            (Algorithm::SlidingWindow(window), State::Slices(state)) => window.decide(state, input),
            (Algorithm::SlidingLog(log), State::Log(state)) => log.decide(state, input),
            (Algorithm::Concurrency(slots), State::Slots(state)) => slots.decide(state, input),
            (
                Algorithm::TokenBucket(_)
                | Algorithm::LeakyBucket(_)
                | Algorithm::FixedWindow(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::SlidingWindow(_)
                | Algorithm::Concurrency(_),
                _,
            ) => self.decide_unused(input),
        }
    }

    /// Decides for an unused key: the state is of another algorithm.
    #[cold]
    fn decide_unused(&self, input: CheckInput) -> Decision {
        let mut state = State::Unused;
        self.settle(&mut state, input.now);
        self.decide(&state, input)
    }

    #[inline]
    pub(crate) fn charge(&self, state: &mut State, input: CheckInput) {
        match (self, state) {
            (
                Algorithm::TokenBucket(TokenBucket { meter })
                | Algorithm::LeakyBucket(LeakyBucket { meter }),
                State::Bucket(state),
            ) => *state = meter.charge(*state, input.cost, input.now),
            (Algorithm::FixedWindow(_), State::Window(state)) => {
                *state = FixedWindow::charge(*state, input.cost);
            }
            (Algorithm::SlidingWindow(_), State::Slices(state)) => {
                SlidingWindow::charge(state, input.cost);
            }
            (Algorithm::SlidingLog(log), State::Log(state)) => {
                log.charge(state, input.cost, input.now);
            }
            (Algorithm::Concurrency(slots), State::Slots(state)) => slots.charge(state, input),
            (
                Algorithm::TokenBucket(_)
                | Algorithm::LeakyBucket(_)
                | Algorithm::FixedWindow(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::SlidingWindow(_)
                | Algorithm::Concurrency(_),
                _,
            ) => {}
        }
    }

    #[inline]
    pub(crate) fn refuse(&self, state: &mut State, input: CheckInput) {
        if self.counts_refused() {
            self.charge(state, input);
        }
    }

    pub(crate) fn refund(&self, state: &mut State, input: CheckInput) {
        match (self, state) {
            (Algorithm::TokenBucket(bucket), State::Bucket(state)) => {
                *state = bucket.meter.refund(*state, input.cost, input.now);
            }
            (Algorithm::FixedWindow(_), State::Window(state)) => {
                *state = FixedWindow::refund(*state, input.cost);
            }
            (Algorithm::SlidingWindow(_), State::Slices(state)) => {
                SlidingWindow::refund(state, input.cost);
            }
            (Algorithm::SlidingLog(log), State::Log(state)) => {
                log.refund(state, input.cost, input.now);
            }
            (Algorithm::Concurrency(_), State::Slots(state)) => Concurrency::refund(state, input),
            (
                Algorithm::TokenBucket(_)
                | Algorithm::LeakyBucket(_)
                | Algorithm::FixedWindow(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::SlidingWindow(_)
                | Algorithm::Concurrency(_),
                _,
            ) => {}
        }
    }
}

/// `part` as large beside `amount` as it is beside `whole`.
fn in_proportion(part: u64, whole: u64, amount: u64) -> u64 {
    if whole == 0 || part == whole {
        return amount;
    }
    let scaled = u128::from(part) * u128::from(amount) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The rate of one of `parts`: exact where the period can be made longer.
fn slower(amount: u64, period: Period, parts: u64) -> (u64, Period) {
    let nanos = period.as_nanos().saturating_mul(parts);
    match Period::new(std::time::Duration::from_nanos(nanos)) {
        Ok(period) => (amount, period),
        Err(_) => ((amount / parts).max(amount.min(1)), period),
    }
}
