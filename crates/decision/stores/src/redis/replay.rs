//! The answers, from what the script told.
//!
//! The script decides and charges; it does not explain. Here the pure functions
//! run once more on the states that it found, at its instant, and say what is
//! left, when to come again, and the rest of a decision. Both come to the same
//! result because both count exactly; should they not, it is said so.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate_algorithms::{CheckInput, Decision, Limit, State, Timestamp};

use super::codec::{Order, told_state};
use super::kept::{COUNT_MAX, kept_lease};
use crate::batch::{Check, Role, passes};
use crate::fingerprint::Fingerprint;

/// The decisions of a parcel.
pub(super) type Decisions = SmallVec<[Decision; 2]>;

/// What one parcel asks, at the instant at which it was decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay<'a> {
    pub(super) order: Order,
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
        let place = found.unwrap_or_else(|| {
            self.by_key.push((key, State::Unused));
            self.by_key.len() - 1
        });
        &mut self.by_key[place].1
    }

    /// The state of a key, if it is known.
    pub(super) fn get(&self, key: Fingerprint) -> Option<&State> {
        self.by_key.iter().find(|(known, _)| *known == key).map(|(_, state)| state)
    }

    /// Makes a state known.
    pub(super) fn insert(&mut self, key: Fingerprint, state: State) {
        *self.of(key) = state;
    }

    /// Every key with its state.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Fingerprint, State)> {
        self.by_key.iter()
    }
}

impl<'a> Replay<'a> {
    /// The decisions, and whether they charge; `None` when what was told makes no sense.
    pub(super) fn decisions(&self, told: &[&[u8]]) -> Option<(Decisions, bool)> {
        if self.order == Order::Reset {
            return Some((self.each(|replay, at| replay.after(at, State::Unused)), true));
        }
        if told.len() != self.checks.len() {
            return None;
        }
        if self.order == Order::Refund {
            return self.refunds(told);
        }
        let states = self.states(told)?;
        if self.checks.len() == 1 {
            return Some(self.alone(states));
        }
        Some(self.judge(states).0)
    }

    /// The states that were told, each key's first.
    pub(super) fn states(&self, told: &[&[u8]]) -> Option<States> {
        let mut states = States::default();
        for ((check, limit), told) in self.checks.iter().zip(self.limits).zip(told) {
            let key = check.key.fingerprint;
            if !states.by_key.iter().any(|(known, _)| *known == key) {
                states.by_key.push((key, told_state(told, limit)?));
            }
        }
        Some(states)
    }

    /// Decides on these states: decisions, whether they charge, and the states after.
    pub(super) fn judge(&self, mut states: States) -> ((Decisions, bool), States) {
        match self.order {
            Order::All | Order::Always | Order::Read | Order::Nobody => self.together(states),
            _ => {
                let decisions = self.each(|replay, at| {
                    let state = states.of(replay.checks[at].key.fingerprint);
                    replay.one(at, state)
                });
                ((decisions, true), states)
            }
        }
    }

    /// One check, which passes or refuses by itself.
    fn alone(&self, mut states: States) -> (Decisions, bool) {
        let admits = |decision: &Decision| decision.is_admitted();
        let observed = self.checks.first().is_some_and(|check| check.role == Role::Observed);
        match self.order {
            Order::All | Order::Always => {
                let decisions = self.each(|replay, at| {
                    let state = states.of(replay.checks[at].key.fingerprint);
                    replay.limits[at].check(state, replay.ask(at))
                });
                let passes = observed || self.order == Order::Always;
                let charged = passes || decisions.iter().all(admits);
                (decisions, charged)
            }
            _ => self.judge(states).0,
        }
    }

    /// Checks one after the other on a copy; keeps the copy if the request passes.
    fn together(&self, mut states: States) -> ((Decisions, bool), States) {
        let mut tried = states.clone();
        let told = self.each(|replay, at| {
            let state = tried.of(replay.checks[at].key.fingerprint);
            replay.limits[at].check(state, replay.ask(at))
        });
        let said = self.checks.iter().zip(&told);
        let pass = passes(said.map(|(check, decision)| (check.role, decision.is_admitted())));
        if self.order == Order::Always || (self.order == Order::All && pass) {
            return ((told, true), tried);
        }
        let counted = self.order != Order::Read;
        let decisions = self.each(|replay, at| {
            let (limit, ask) = (&replay.limits[at], replay.ask(at));
            let state = states.of(replay.checks[at].key.fingerprint);
            limit.settle(state, replay.now);
            if counted && !told[at].is_admitted() {
                limit.refuse(state, ask);
                return told[at];
            }
            limit.uncharged(state, ask, told[at])
        });
        ((decisions, false), states)
    }

    /// A verb that looks at each check by itself.
    fn one(&self, at: usize, state: &mut State) -> Decision {
        let (limit, ask) = (&self.limits[at], self.ask(at));
        match self.order {
            Order::Take => limit.take(state, ask),
            Order::Refund => limit.refund(state, ask),
            Order::Charge => limit.overcharge(state, ask),
            Order::Reset => limit.peek(state, ask.with_cost(0)),
            _ => limit.peek(state, ask),
        }
    }

    /// A sorted set is told as it is after the refund, each time anew.
    fn refunds(&self, told: &[&[u8]]) -> Option<(Decisions, bool)> {
        let mut states = States::default();
        let mut decisions = Decisions::new();
        for (at, told) in told.iter().enumerate() {
            let limit = &self.limits[at];
            if is_list(limit) {
                decisions.push(self.after(at, told_state(told, limit)?));
                continue;
            }
            let key = self.checks[at].key.fingerprint;
            if !states.by_key.iter().any(|(known, _)| *known == key) {
                states.by_key.push((key, told_state(told, limit)?));
            }
            decisions.push(self.one(at, states.of(key)));
        }
        Some((decisions, true))
    }

    /// What is left of a state that is as the server has it now.
    fn after(&self, at: usize, mut state: State) -> Decision {
        self.limits[at].peek(&mut state, self.ask(at).with_cost(0))
    }

    fn ask(&self, at: usize) -> CheckInput {
        let check = &self.checks[at];
        let (cost, lease) = (check.cost.min(COUNT_MAX), check.tenure.lease().map(kept_lease));
        CheckInput { cost, now: self.now, holder: check.holder, tenure: lease.into() }
    }

    fn each(&self, mut decide: impl FnMut(&Self, usize) -> Decision) -> Decisions {
        (0..self.checks.len()).map(|at| decide(self, at)).collect()
    }
}

/// Whether the limit's state is a sorted set.
pub(super) fn is_list(limit: &Limit) -> bool {
    limit.algorithm().is_list()
}
