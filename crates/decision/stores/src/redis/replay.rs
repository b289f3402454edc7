//! Computes the decisions from the states that the script reported.
//!
//! The script decides and charges, but does not compute what remains or when to retry. The pure functions run once more
//! on the states that it found, at its instant, and return the whole decision. Both count exactly, so they agree; a
//! disagreement is reported as an error.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate_algorithms::{CheckInput, Decision, Limit, State, Timestamp};

use super::codec::{ScriptVerb, reported_state};
use super::rounded_limit::{COUNT_MAX, rounded_lease};
use crate::batch::{Check, Role, passes};
use crate::fingerprint::Fingerprint;

/// The decisions of a script call.
pub(super) type Decisions = SmallVec<[Decision; 2]>;

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
    by_key: SmallVec<[(Fingerprint, State); 2]>,
}

impl States {
    fn of(&mut self, key: Fingerprint) -> &mut State {
        let found = self.by_key.iter().position(|(known, _)| *known == key);
        let index = found.unwrap_or_else(|| {
            self.by_key.push((key, State::Unused));
            self.by_key.len() - 1
        });
        &mut self.by_key[index].1
    }

    /// The state of a key, if it is known.
    pub(super) fn get(&self, key: Fingerprint) -> Option<&State> {
        self.by_key.iter().find(|(known, _)| *known == key).map(|(_, state)| state)
    }

    /// Sets the state of a key.
    pub(super) fn insert(&mut self, key: Fingerprint, state: State) {
        *self.of(key) = state;
    }

    /// Every key with its state.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Fingerprint, State)> {
        self.by_key.iter()
    }
}

impl<'a> Replay<'a> {
    /// The decisions, and whether they charge; `None` if a reported state is malformed.
    pub(super) fn decisions(&self, reported: &[&[u8]]) -> Option<(Decisions, bool)> {
        if self.verb == ScriptVerb::Reset {
            return Some((self.each(|replay, index| replay.remaining(index, State::Unused)), true));
        }
        if reported.len() != self.checks.len() {
            return None;
        }
        if self.verb == ScriptVerb::Refund {
            return self.refunds(reported);
        }
        let states = self.states(reported)?;
        if self.checks.len() == 1 {
            return Some(self.check_one(states));
        }
        Some(self.judge(states).0)
    }

    /// The reported states, by key; the first for each.
    pub(super) fn states(&self, reported: &[&[u8]]) -> Option<States> {
        let mut states = States::default();
        for ((check, limit), bytes) in self.checks.iter().zip(self.limits).zip(reported) {
            let key = check.key.fingerprint;
            if !states.by_key.iter().any(|(known, _)| *known == key) {
                states.by_key.push((key, reported_state(bytes, limit)?));
            }
        }
        Some(states)
    }

    /// Decides on these states: decisions, whether they charge, and the states after.
    pub(super) fn judge(&self, mut states: States) -> ((Decisions, bool), States) {
        match self.verb {
            ScriptVerb::All | ScriptVerb::Always | ScriptVerb::Read | ScriptVerb::ChargeNone => {
                self.check_all(states)
            }
            _ => {
                let decisions = self.each(|replay, index| {
                    let state = states.of(replay.checks[index].key.fingerprint);
                    replay.apply(index, state)
                });
                ((decisions, true), states)
            }
        }
    }

    /// Decides a request of one check, without a copy of the state.
    fn check_one(&self, mut states: States) -> (Decisions, bool) {
        let admits = |decision: &Decision| decision.is_admitted();
        let observed = self.checks.first().is_some_and(|check| check.role == Role::Observed);
        match self.verb {
            ScriptVerb::All | ScriptVerb::Always => {
                let decisions = self.each(|replay, index| {
                    let state = states.of(replay.checks[index].key.fingerprint);
                    replay.limits[index].check(state, replay.ask(index))
                });
                let passes = observed || self.verb == ScriptVerb::Always;
                let charged = passes || decisions.iter().all(admits);
                (decisions, charged)
            }
            _ => self.judge(states).0,
        }
    }

    /// Checks one after the other on a copy of the states; returns the copy if the request is charged.
    fn check_all(&self, mut states: States) -> ((Decisions, bool), States) {
        let mut tried = states.clone();
        let checked = self.each(|replay, index| {
            let state = tried.of(replay.checks[index].key.fingerprint);
            replay.limits[index].check(state, replay.ask(index))
        });
        let decisions = self.checks.iter().zip(&checked);
        let pass = passes(decisions.map(|(check, decision)| (check.role, decision.is_admitted())));
        if self.verb == ScriptVerb::Always || (self.verb == ScriptVerb::All && pass) {
            return ((checked, true), tried);
        }
        let counts_refusals = self.verb != ScriptVerb::Read;
        let decisions = self.each(|replay, index| {
            let (limit, ask) = (&replay.limits[index], replay.ask(index));
            let state = states.of(replay.checks[index].key.fingerprint);
            limit.settle(state, replay.now);
            if counts_refusals && !checked[index].is_admitted() {
                limit.refuse(state, ask);
                return checked[index];
            }
            limit.uncharged(state, ask, checked[index])
        });
        ((decisions, false), states)
    }

    /// Applies a verb that concerns each check by itself.
    fn apply(&self, index: usize, state: &mut State) -> Decision {
        let (limit, ask) = (&self.limits[index], self.ask(index));
        match self.verb {
            ScriptVerb::Take => limit.take(state, ask),
            ScriptVerb::Refund => limit.refund(state, ask),
            ScriptVerb::Charge => limit.overcharge(state, ask),
            ScriptVerb::Reset => limit.peek(state, ask.with_cost(0)),
            _ => limit.peek(state, ask),
        }
    }

    /// The script reports a sorted set after each refund, and a string before the first.
    fn refunds(&self, reported: &[&[u8]]) -> Option<(Decisions, bool)> {
        let mut states = States::default();
        let mut decisions = Decisions::new();
        for (index, bytes) in reported.iter().enumerate() {
            let limit = &self.limits[index];
            if is_list(limit) {
                decisions.push(self.remaining(index, reported_state(bytes, limit)?));
                continue;
            }
            let key = self.checks[index].key.fingerprint;
            if !states.by_key.iter().any(|(known, _)| *known == key) {
                states.by_key.push((key, reported_state(bytes, limit)?));
            }
            decisions.push(self.apply(index, states.of(key)));
        }
        Some((decisions, true))
    }

    /// What remains in this state.
    fn remaining(&self, index: usize, mut state: State) -> Decision {
        self.limits[index].peek(&mut state, self.ask(index).with_cost(0))
    }

    fn ask(&self, index: usize) -> CheckInput {
        let check = &self.checks[index];
        let (cost, lease) = (check.cost.min(COUNT_MAX), check.tenure.lease().map(rounded_lease));
        CheckInput { cost, now: self.now, holder: check.holder, tenure: lease.into() }
    }

    fn each(&self, mut decide: impl FnMut(&Self, usize) -> Decision) -> Decisions {
        (0..self.checks.len()).map(|index| decide(self, index)).collect()
    }
}

/// Whether the limit's state is a sorted set.
pub(super) fn is_list(limit: &Limit) -> bool {
    limit.algorithm().is_list()
}
