//! Computes the decisions from the states that the script reported.
//!
//! The script decides and charges, but does not compute what remains or when to retry. The pure functions run once more
//! on the states that it found, at its instant, and return the whole decision. Both count exactly, so they agree; a
//! disagreement is reported as an error.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate_algorithms::{CheckInput, Decision, Limit, State, Timestamp};

use super::codec::{ScriptVerb, reported_state};
use super::rounded_limit::{COUNT_MAX, rounded_period};
use crate::batch::{Check, Verb};
use crate::check_all::{ChargeMode, Decisions, KeyCheck, check_all};
use crate::fingerprint::Fingerprint;

/// The checks of one script call, at the instant at which it was decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay<'a> {
    pub(super) verb: ScriptVerb,
    pub(super) checks: &'a [Check<'a>],
    pub(super) limits: &'a [Cow<'a, Limit>],
    pub(super) now: Timestamp,
}

/// The states of a request's keys, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct States {
    keys: SmallVec<[Fingerprint; 2]>,
    states: SmallVec<[State; 2]>,
}

impl States {
    /// The index of a key.
    fn find(&self, key: Fingerprint) -> Option<usize> {
        self.keys.iter().position(|known| *known == key)
    }

    /// The state of a key, which is added if it is not known.
    fn of(&mut self, key: Fingerprint) -> &mut State {
        let index = self.find(key).unwrap_or_else(|| {
            self.insert(key, State::Unused);
            self.states.len() - 1
        });
        &mut self.states[index]
    }

    /// The state of a key, if it is known.
    pub(super) fn get(&self, key: Fingerprint) -> Option<&State> {
        self.states.get(self.find(key)?)
    }

    /// Adds a key that is not known yet.
    pub(super) fn insert(&mut self, key: Fingerprint, state: State) {
        self.keys.push(key);
        self.states.push(state);
    }

    /// Every key with its state.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Fingerprint, &State)> {
        self.keys.iter().zip(&self.states)
    }
}

impl Replay<'_> {
    /// The decisions, and whether they charge; `None` if a reported state is malformed.
    pub(super) fn decisions(&self, reported: &[&[u8]]) -> Option<(Decisions, bool)> {
        if self.verb == ScriptVerb::Reset {
            return Some(self.judge(States::default()).0);
        }
        if reported.len() != self.checks.len() {
            return None;
        }
        if self.verb == ScriptVerb::Refund {
            return self.refunds(reported);
        }
        Some(self.judge(self.states(reported)?).0)
    }

    /// The reported states, by key; the first for each.
    pub(super) fn states(&self, reported: &[&[u8]]) -> Option<States> {
        let mut states = States::default();
        for ((check, limit), bytes) in self.checks.iter().zip(self.limits).zip(reported) {
            let key = check.key.fingerprint;
            if states.find(key).is_none() {
                states.insert(key, reported_state(bytes, limit)?);
            }
        }
        Some(states)
    }

    /// Decides on these states: decisions, whether they charge, and the states after.
    pub(super) fn judge(&self, mut states: States) -> ((Decisions, bool), States) {
        let mode = match self.verb {
            ScriptVerb::All => ChargeMode::IfPassed,
            ScriptVerb::Always => ChargeMode::Always,
            ScriptVerb::ChargeNone => ChargeMode::Refusals,
            ScriptVerb::Read => ChargeMode::Nothing,
            _ => {
                let keys = self.checks.iter().map(|check| check.key.fingerprint).enumerate();
                let decisions = keys.map(|(index, key)| self.apply(index, states.of(key)));
                return ((decisions.collect(), true), states);
            }
        };
        let key_check = |(index, check): (usize, &Check<'_>)| KeyCheck {
            limit: &self.limits[index],
            input: self.input(index),
            role: check.role,
            state: states.find(check.key.fingerprint).unwrap_or(0),
            uncounted: None,
        };
        let checks: SmallVec<[KeyCheck<'_>; 2]> =
            self.checks.iter().enumerate().map(key_check).collect();
        (check_all(&checks, &mut states.states, mode), states)
    }

    /// Applies a verb that concerns each check by itself.
    fn apply(&self, index: usize, state: &mut State) -> Decision {
        let verb = match self.verb {
            ScriptVerb::Take => Verb::Take,
            ScriptVerb::Refund => Verb::Refund,
            ScriptVerb::Charge => Verb::Charge,
            ScriptVerb::Reset => Verb::Reset,
            _ => Verb::Peek,
        };
        verb.apply(&self.limits[index], state, self.input(index))
    }

    /// The script reports a sorted set after each refund, and a string before the first.
    fn refunds(&self, reported: &[&[u8]]) -> Option<(Decisions, bool)> {
        let mut states = States::default();
        let mut decisions = Decisions::new();
        for (index, (check, bytes)) in self.checks.iter().zip(reported).enumerate() {
            let (key, limit) = (check.key.fingerprint, &self.limits[index]);
            if is_list(limit) {
                let mut state = reported_state(bytes, limit)?;
                decisions.push(limit.peek(&mut state, self.input(index).with_cost(0)));
                continue;
            }
            if states.find(key).is_none() {
                states.insert(key, reported_state(bytes, limit)?);
            }
            decisions.push(self.apply(index, states.of(key)));
        }
        Some((decisions, true))
    }

    fn input(&self, index: usize) -> CheckInput {
        let check = &self.checks[index];
        let lease = check.tenure.lease().map(rounded_period);
        let cost = check.cost.min(COUNT_MAX);
        CheckInput { cost, tenure: lease.into(), ..check.input(self.now) }
    }
}

/// Whether the limit's state is a sorted set.
pub(super) fn is_list(limit: &Limit) -> bool {
    limit.algorithm().is_list()
}
