//! Decides a check by its failure policy, when the remote could not.

use tidegate_algorithms::{CheckInput, Decision, Tenure, Timestamp};

use super::{ProvisionalAnswer, Undo, consistency_of};
use crate::batch::{Basis, Check, Consistency, OnStoreError, Role, Verb};
use crate::counter_store::StoreError;
use crate::shared::SharedStore;
use crate::shared::lease_terms::LeaseTerms;
use crate::shared::metrics::count;
use crate::shared::node_share::admit_without_store;
use crate::shared::outage::DebtPolicy;
use crate::shared::remote::Remote;

impl<R: Remote> SharedStore<R> {
    /// Decides a check by its failure policy.
    pub(in crate::shared) fn fall_back(
        &self,
        verb: Verb,
        check: &Check<'_>,
        now: Timestamp,
        error: StoreError,
    ) -> Result<ProvisionalAnswer, StoreError> {
        match check.policy.on_store_error {
            // A check that only observes must not fail the request.
            OnStoreError::Deny if check.role != Role::Observed => {
                count(&self.counters.deny);
                Err(error)
            }
            OnStoreError::Allow | OnStoreError::Deny => {
                count(&self.counters.allow);
                let input = CheckInput { tenure: Tenure::TimeToLive, ..check.input(now) };
                let decision = admit_without_store(check.limit, input);
                Ok(ProvisionalAnswer::new(decision, Basis::Unasked, Undo::Nothing))
            }
            OnStoreError::Local => {
                count(&self.counters.local);
                let decision = self.decide_by_share(verb, check, now, &error);
                Ok(ProvisionalAnswer::new(decision, Basis::Local, Undo::Share))
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
        let terms = LeaseTerms::of_check(check);
        let limit = terms.as_ref().map_or(check.limit, |terms| &terms.tightened);
        let state = match consistency_of(check) {
            Consistency::Eventual => self.tallies.state(check.key.fingerprint),
            Consistency::Exact | Consistency::Leased => None,
        };
        let (now, nodes) = (self.remote.remote_time(now), self.nodes.live());
        let check = Check { limit, ..*check };
        self.outage.apply(verb, &check, state.as_ref(), nodes, now, debt_policy)
    }
}
