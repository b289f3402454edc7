//! The verbs other than check: peek, take, refund, reset and charge.
//!
//! They are rare, so they go to the remote in every mode; only a peek at an eventual key is answered locally. The local
//! state of the key is updated from the remote's answer.

use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Outcome, Retry, Timestamp};
use tokio::time::Instant;

use super::SharedStore;
use super::decide::consistency_of;
use super::lease_terms::LeaseTerms;
use super::remote::Remote;
use crate::batch::{Answer, Answers, Basis, Batch, Check, Consistency, Verb};
use crate::counter_store::StoreError;

impl<R: Remote> SharedStore<R> {
    /// Applies a verb other than check.
    pub(super) async fn act(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
    ) -> Result<(), StoreError> {
        if batch.verb == Verb::Peek && self.peek_locally(batch, answers) {
            return Ok(());
        }
        let terms: SmallVec<[Option<LeaseTerms>; 2]> =
            batch.checks.iter().map(LeaseTerms::of_check).collect();
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
        let call = Batch { checks: &checks, ..*batch };
        let mut replies = Answers::new();
        let result = self.breakers.apply(&self.remote, &call, &mut replies, deadline).await;
        if let Err(error) = result {
            for check in batch.checks {
                let fallback = self.fall_back(batch.verb, check, batch.now, error.clone())?;
                answers.push(fallback.answer);
            }
            return Ok(());
        }
        for (check, answer) in batch.checks.iter().zip(replies) {
            answers.push(self.follow(batch.verb, check, answer, batch.now));
        }
        Ok(())
    }

    /// Peeks at eventual keys without a call, if all are known; returns whether it did.
    fn peek_locally(&self, batch: &Batch<'_>, answers: &mut Answers) -> bool {
        if batch.checks.iter().any(|check| self.is_unreachable(check)) {
            return false;
        }
        let remote_now = self.remote.remote_time(batch.now);
        let peek = |check: &Check<'_>| match consistency_of(check) {
            Consistency::Eventual => self.tallies.peek(check, remote_now),
            Consistency::Exact | Consistency::Leased => None,
        };
        let known: Option<SmallVec<[Decision; 2]>> = batch.checks.iter().map(peek).collect();
        let Some(known) = known else { return false };
        let peeked = known.into_iter().map(|decision| Answer { decision, basis: Basis::Eventual });
        answers.extend(peeked);
        true
    }

    /// Updates the local state of a key after the remote applied a verb.
    fn follow(&self, verb: Verb, check: &Check<'_>, answer: Answer, now: Timestamp) -> Answer {
        let key = check.key.fingerprint;
        if verb != Verb::Peek {
            self.refusal_cache.remove(key);
        }
        if verb == Verb::Reset {
            self.outage.forget(key);
            self.tallies.forget(key);
            self.leases.forget(key);
            return answer;
        }
        match consistency_of(check) {
            Consistency::Exact => answer,
            Consistency::Eventual => {
                self.tallies.learn(key, &answer.decision, self.remote.remote_time(now));
                answer
            }
            Consistency::Leased => {
                let held = self.leases.units(check, now);
                Answer { decision: with_held(answer.decision, check.cost, held), ..answer }
            }
        }
    }
}

/// The remote's decision, with the units that this node holds counted as remaining.
fn with_held(decision: Decision, cost: u64, held: u64) -> Decision {
    let remaining = decision.remaining.saturating_add(held).min(decision.limit);
    if decision.is_admitted() || held < cost {
        return Decision { remaining, ..decision };
    }
    Decision { outcome: Outcome::Admitted, retry: Retry::Now, remaining, ..decision }
}
