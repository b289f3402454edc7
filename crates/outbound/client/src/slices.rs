//! Slices: units of a limit that are taken ahead from a decision service.
//!
//! Processes that do not know each other share a limit without refusals: each takes as many units as it sends calls in
//! the next moments, and spends one for each call. [`SliceState`] is the arithmetic; it takes the time as an argument.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tidegate_algorithms::{Nanos, Timestamp};

/// For how long a slice should last at the present pace: few calls ask for units, and little is lost when a process
/// crashes. While a limit is used up, units are asked for no more often, so that an exchange brings several.
const TARGET_SPAN: Nanos = Nanos::from_millis(200);
/// The first slice.
const UNITS_FIRST: u64 = 2;
/// For how long a decision service is not asked again after it did not answer.
const PAUSE: Nanos = Nanos::from_secs(1);
/// The largest slice.
const UNITS_MAX: u64 = 10_000;

/// Exchanges slices with a decision service.
pub trait SliceSource: Send + Sync + 'static {
    /// Gives back what is left of a slice, and takes units for a new one.
    fn exchange(&self, exchange: SliceExchange) -> ExchangeFuture<'_>;
}

/// The answer of a decision service, to come.
pub type ExchangeFuture<'a> =
    Pin<Box<dyn Future<Output = Result<SliceAnswer, SliceError>> + Send + 'a>>;

/// What is asked of a decision service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceExchange {
    /// The name of the target whose limit it is.
    pub target: String,
    /// The units to take; zero takes none.
    pub units: u64,
    /// The slice to give back, with its units that were not spent.
    pub returned: Option<(String, u64)>,
}

/// The answer of a decision service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceAnswer {
    /// Units were taken.
    Taken {
        /// What gives them back; none if the service keeps no more slices.
        slice: Option<String>,
        /// How many.
        units: u64,
        /// How long they may be spent, from when they were asked for.
        life: Duration,
    },
    /// None are left.
    Refused {
        /// When there will be.
        retry_after: Duration,
    },
}

/// A decision service did not answer. The call goes on without a unit: the service that is called enforces its limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no slice from the decision service: {0}")]
pub struct SliceError(pub String);

/// The slice of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceState {
    slice: Option<String>,
    units: u64,
    taken: u64,
    taken_at: Timestamp,
    expires: Timestamp,
    /// The size of the next slice.
    wanted: u64,
    /// When the decision service may be asked again after it did not answer.
    asks_at: Timestamp,
    /// When units are worth asking for.
    due: Timestamp,
}

impl Default for SliceState {
    fn default() -> Self {
        SliceState {
            slice: None,
            units: 0,
            taken: 0,
            taken_at: Timestamp::EPOCH,
            expires: Timestamp::EPOCH,
            wanted: UNITS_FIRST,
            asks_at: Timestamp::EPOCH,
            due: Timestamp::EPOCH,
        }
    }
}

impl SliceState {
    /// Spends one unit, if there is one.
    pub fn spend(&mut self, now: Timestamp) -> bool {
        let spends = self.units > 0 && now < self.expires;
        self.units -= u64::from(spends);
        spends
    }

    /// The exchange that is due when no unit can be spent; none shortly after the decision service did not answer. A
    /// slice that has ended gives nothing back.
    pub fn exchange(&mut self, target: &str, now: Timestamp) -> Option<SliceExchange> {
        if now < self.asks_at {
            return None;
        }
        self.resize(now);
        self.slice = None;
        (self.taken, self.units) = (0, 0);
        Some(SliceExchange { target: target.to_owned(), units: self.wanted, returned: None })
    }

    /// How long to wait before the next exchange.
    pub fn wait(&self, now: Timestamp) -> Nanos {
        self.due.since(now)
    }

    /// Remembers that nothing is left for so long.
    pub fn refuse(&mut self, retry_after: Duration, now: Timestamp) {
        self.due = now.after(Nanos::from(retry_after).max(TARGET_SPAN));
    }

    /// Remembers that the decision service did not answer.
    pub fn fail(&mut self, now: Timestamp) {
        self.asks_at = now.after(PAUSE);
    }

    /// The exchange that gives everything back, if there is something to give.
    pub fn give_back(&mut self, target: &str, now: Timestamp) -> Option<SliceExchange> {
        let units = std::mem::take(&mut self.units);
        let slice = self.slice.take().filter(|_| units > 0 && now < self.expires)?;
        let returned = Some((slice, units));
        Some(SliceExchange { target: target.to_owned(), units: 0, returned })
    }

    /// Keeps units that were asked for at this instant.
    pub fn keep(&mut self, slice: Option<String>, units: u64, life: Duration, asked: Timestamp) {
        // Fewer units than wanted: the limit is nearly used up.
        let due = if units < self.wanted { asked.after(TARGET_SPAN) } else { asked };
        let expires = asked.after(life.into());
        *self = SliceState {
            slice,
            units,
            taken: units,
            taken_at: asked,
            expires,
            due,
            ..self.clone()
        };
    }

    /// Fits the next slice to the pace of this one: at most doubled.
    fn resize(&mut self, now: Timestamp) {
        let spent = self.taken - self.units;
        if self.taken == 0 {
            return;
        }
        let passed = now.since(self.taken_at).get().max(1);
        let fitting = u128::from(spent) * u128::from(TARGET_SPAN.get()) / u128::from(passed);
        let fitting = u64::try_from(fitting).unwrap_or(UNITS_MAX);
        self.wanted = fitting.clamp(1, UNITS_MAX).min(self.wanted.saturating_mul(2));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000);
    const LIFE: Duration = Duration::from_secs(1);

    fn taken(units: u64) -> SliceState {
        let mut state = SliceState { wanted: units.max(1), ..SliceState::default() };
        state.keep(Some("slice".to_owned()), units, LIFE, START);
        state
    }

    #[test]
    fn a_slice_is_spent_once_and_not_after_its_life() {
        let mut state = taken(2);
        assert!(state.spend(START) && state.spend(START));
        assert!(!state.spend(START));
        let mut state = taken(2);
        assert!(!state.spend(START.after(LIFE.into())));
        assert_eq!(state.give_back("api", START.after(LIFE.into())), None);
    }

    #[test]
    fn what_is_left_is_given_back_once() {
        let mut state = taken(3);
        assert!(state.spend(START));
        let back = state.give_back("api", START).unwrap();
        assert_eq!((back.units, back.returned), (0, Some(("slice".to_owned(), 2))));
        assert_eq!(state.give_back("api", START), None);
        assert!(!state.spend(START));
    }

    #[test]
    fn slices_grow_with_the_pace_and_shrink_with_it() {
        let mut state = taken(10);
        (0..10).for_each(|_| assert!(state.spend(START)));
        assert_eq!(state.exchange("api", START.after(Nanos::from_millis(10))).unwrap().units, 20);
        let mut state = taken(100);
        (0..10).for_each(|_| assert!(state.spend(START)));
        assert_eq!(state.exchange("api", START.after(LIFE.into())).unwrap().units, 2);
    }

    #[test]
    fn a_decision_service_that_does_not_answer_is_asked_once_a_second() {
        let mut state = SliceState::default();
        assert!(state.exchange("api", START).is_some());
        state.fail(START);
        assert_eq!(state.exchange("api", START), None);
        assert!(state.exchange("api", START.after(PAUSE)).is_some());
    }

    proptest! {
        #[test]
        fn no_more_units_are_spent_than_were_taken(
            units in 0..50_u64,
            spends in prop::collection::vec(0..40_u64, 0..100),
        ) {
            let mut state = taken(units);
            let mut now = START;
            let mut spent = 0;
            for wait in spends {
                now = now.after(Nanos::from_millis(wait));
                spent += u64::from(state.spend(now));
            }
            prop_assert!(spent <= units);
            let wanted = state.exchange("api", now).unwrap().units;
            prop_assert!((1..=UNITS_MAX).contains(&wanted));
            prop_assert!(!state.spend(now));
        }
    }
}
