//! A store that is obviously right: a map of states and the pure functions.

use std::collections::HashMap;

use tidegate_algorithms::{CheckInput, Decision, State};
use tidegate_stores::{Batch, Charge, Check, Fingerprint, Verb, passes};

#[derive(Default)]
pub(crate) struct Model {
    states: HashMap<Fingerprint, State>,
}

impl Model {
    /// One that has seen requests before.
    #[cfg(feature = "redis")]
    pub(crate) const fn of(states: HashMap<Fingerprint, State>) -> Self {
        Model { states }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn state(&self, key: Fingerprint) -> State {
        self.states.get(&key).cloned().unwrap_or_default()
    }

    /// The decision on each check of the batch.
    pub(crate) fn apply(&mut self, batch: &Batch<'_>) -> Vec<Decision> {
        match batch.verb {
            Verb::Check | Verb::Peek => self.together(batch),
            verb => batch.checks.iter().map(|check| self.alone(verb, check, batch)).collect(),
        }
    }

    fn alone(&mut self, verb: Verb, check: &Check<'_>, batch: &Batch<'_>) -> Decision {
        let state = self.states.entry(check.key.fingerprint).or_default();
        let ask = ask(check, batch);
        match verb {
            Verb::Take => check.limit.take(state, ask),
            Verb::Refund => check.limit.refund(state, ask),
            Verb::Reset => {
                *state = State::Unused;
                check.limit.peek(state, ask.with_cost(0))
            }
            Verb::Check => check.limit.check(state, ask),
            Verb::Peek => check.limit.peek(state, ask),
            Verb::Charge => check.limit.overcharge(state, ask),
        }
    }

    /// Checks one after the other on a copy; keeps the copy if the request passes.
    fn together(&mut self, batch: &Batch<'_>) -> Vec<Decision> {
        let mut tried = Model { states: self.states.clone() };
        let decided: Vec<Decision> =
            batch.checks.iter().map(|check| tried.alone(Verb::Check, check, batch)).collect();
        let checked = batch.checks.iter().zip(&decided);
        let pass = passes(checked.map(|(check, decision)| (check.role, decision.is_admitted())));
        if batch.verb == Verb::Check && (pass || batch.charge == Charge::Always) {
            self.states = tried.states;
            return decided;
        }
        let uncharged = batch.checks.iter().zip(&decided).map(|(check, decision)| {
            if batch.verb == Verb::Check && !decision.is_admitted() {
                self.refuse(check, batch);
                return *decision;
            }
            let state = self.states.entry(check.key.fingerprint).or_default();
            check.limit.settle(state, batch.now);
            check.limit.uncharged(state, ask(check, batch), *decision)
        });
        uncharged.collect()
    }

    fn refuse(&mut self, check: &Check<'_>, batch: &Batch<'_>) {
        let state = self.states.entry(check.key.fingerprint).or_default();
        check.limit.settle(state, batch.now);
        check.limit.refuse(state, ask(check, batch));
    }
}

fn ask(check: &Check<'_>, batch: &Batch<'_>) -> CheckInput {
    CheckInput { cost: check.cost, now: batch.now, holder: check.holder, tenure: check.tenure }
}
