//! Decides a check by its failure policy, when the remote could not.

use tidegate_algorithms::{CheckInput, Decision, Timestamp};

use super::{ProvisionalAnswer, Undo, consistency_of};
use crate::batch::{Answer, Basis, Check, Consistency, OnStoreError, Role, Verb};
use crate::counter_store::StoreError;
use crate::shared::SharedStore;
use crate::shared::lease_terms::LeaseTerms;
use crate::shared::metrics::count;
use crate::shared::node_share::admit_without_store;
use crate::shared::outage::DebtPolicy;
use crate::shared::remote::Remote;

impl<R: Remote> SharedStore<R> {
    /// Decides a check by its failure policy.
    pub(super) fn fall_back(
        &self,
        verb: Verb,
        check: &Check<'_>,
        now: Timestamp,
        error: StoreError,
    ) -> Result<ProvisionalAnswer, StoreError> {
        let policy = match check.policy.on_store_error {
            // A check that only observes must not fail the request.
            OnStoreError::Deny if check.role == Role::Observed => OnStoreError::Allow,
            policy => policy,
        };
        match policy {
            OnStoreError::Deny => {
                count(&self.counters.deny);
                Err(error)
            }
            OnStoreError::Allow => {
                count(&self.counters.allow);
                let ask = CheckInput { holder: check.holder, ..CheckInput::new(check.cost, now) };
                let decision = admit_without_store(check.limit, ask);
                let answer = Answer { decision, basis: Basis::Unasked };
                Ok(ProvisionalAnswer { answer, undo: Undo::Nothing })
            }
            OnStoreError::Local => {
                count(&self.counters.local);
                let decision = self.decide_by_share(verb, check, now, &error);
                let undo = if decision.taken > 0 { Undo::Share } else { Undo::Nothing };
                Ok(ProvisionalAnswer { answer: Answer { decision, basis: Basis::Local }, undo })
            }
        }
    }

    /// Applies a verb to this node's share of a limit.
    fn decide_by_share(
        &self,
        verb: Verb,
        check: &Check<'_>,
        now: Timestamp,
        error: &StoreError,
    ) -> Decision {
        let debt_policy = if error.may_have_run() { DebtPolicy::Skip } else { DebtPolicy::Record };
        let (now, nodes) = (self.remote.remote_time(now), self.nodes.live());
        match consistency_of(check) {
            Consistency::Leased => {
                let terms = LeaseTerms::of(check.limit);
                let limit = terms.as_ref().map_or(check.limit, |terms| &terms.tightened);
                let check = Check { limit, ..*check };
                self.outage.apply(verb, &check, None, nodes, now, debt_policy)
            }
            Consistency::Eventual => {
                let state = self.tallies.state(check.key.fingerprint);
                self.outage.apply(verb, check, state, nodes, now, debt_policy)
            }
            Consistency::Exact => self.outage.apply(verb, check, None, nodes, now, debt_policy),
        }
    }

    /// Like [`Self::fall_back`], for verbs other than check.
    pub(in crate::shared) fn fall_back_verb(
        &self,
        verb: Verb,
        check: &Check<'_>,
        now: Timestamp,
        error: StoreError,
    ) -> Result<Answer, StoreError> {
        self.fall_back(verb, check, now, error).map(|settled| settled.answer)
    }
}
