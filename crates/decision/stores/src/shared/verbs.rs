//! The verbs beside check: peek, take, refund, reset and charge.
//!
//! They are seldom, so they go to the remote directly, whatever the mode; only
//! a peek at an eventual key is answered here. What this node holds of the key
//! follows what the remote said.

use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Outcome, Retry, Timestamp};
use tokio::time::Instant;

use super::SharedStore;
use super::decide::mode;
use super::remote::Remote;
use super::terms::Terms;
use crate::batch::{Answer, Answers, Basis, Batch, Check, Consistency, Verb};
use crate::counter_store::StoreError;

impl<R: Remote> SharedStore<R> {
    /// Applies a verb other than check.
    pub(super) async fn act(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
    ) -> Result<(), StoreError> {
        if batch.verb == Verb::Peek && self.peek_here(batch, answers) {
            return Ok(());
        }
        let terms: SmallVec<[Option<Terms>; 2]> = batch
            .checks
            .iter()
            .map(|check| match mode(check) {
                Consistency::Leased => Terms::of(check.limit),
                Consistency::Exact | Consistency::Eventual => None,
            })
            .collect();
        let checks: SmallVec<[Check<'_>; 2]> = batch
            .checks
            .iter()
            .zip(&terms)
            .map(|(check, terms)| {
                let limit = terms.as_ref().map_or(check.limit, |terms| &terms.tightened);
                Check { limit, ..*check }
            })
            .collect();
        let deadline = Instant::now() + batch.within.unwrap_or(self.settings.within);
        let asked = Batch { checks: &checks, ..*batch };
        let mut told = Answers::new();
        let result = self.gates.apply(&self.remote, &asked, &mut told, deadline, &self.counters);
        if let Err(error) = result.await {
            for check in batch.checks {
                answers.push(self.fall_back_acting(batch.verb, check, batch.now, error.clone())?);
            }
            return Ok(());
        }
        for (check, answer) in batch.checks.iter().zip(told) {
            answers.push(self.follow(batch.verb, check, answer, batch.now));
        }
        Ok(())
    }

    /// Peeks at keys that are all counted here; says whether they were.
    fn peek_here(&self, batch: &Batch<'_>, answers: &mut Answers) -> bool {
        if batch.checks.iter().any(|check| self.is_shut(check)) {
            return false;
        }
        let there = self.remote.there(batch.now);
        let peek = |check: &Check<'_>| match mode(check) {
            Consistency::Eventual => self.tallies.peek(check, there),
            Consistency::Exact | Consistency::Leased => None,
        };
        let known: Option<SmallVec<[Decision; 2]>> = batch.checks.iter().map(peek).collect();
        let Some(known) = known else { return false };
        let told = known.into_iter().map(|decision| Answer { decision, basis: Basis::Eventual });
        answers.extend(told);
        true
    }

    /// Brings what this node holds in line with what the remote did.
    fn follow(&self, verb: Verb, check: &Check<'_>, told: Answer, now: Timestamp) -> Answer {
        let key = check.key.fingerprint;
        if verb != Verb::Peek {
            self.over_limit.forget(key);
        }
        if verb == Verb::Reset {
            self.outage.forget(key);
        }
        match mode(check) {
            Consistency::Exact => told,
            Consistency::Eventual => {
                self.tallies.follow(verb, check, &told.decision, self.remote.there(now));
                told
            }
            Consistency::Leased if verb == Verb::Reset => {
                self.leases.forget(key);
                told
            }
            Consistency::Leased => {
                let held = self.leases.units(check, now);
                Answer { decision: with_held(told.decision, check.cost, held), ..told }
            }
        }
    }
}

/// What the remote has left, and what this node holds of it.
fn with_held(told: Decision, cost: u64, held: u64) -> Decision {
    let remaining = told.remaining.saturating_add(held).min(told.limit);
    if told.is_admitted() || held < cost {
        return Decision { remaining, ..told };
    }
    Decision { outcome: Outcome::Admitted, retry: Retry::Now, remaining, ..told }
}
