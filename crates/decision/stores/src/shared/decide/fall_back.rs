//! Decides a check by its failure policy, when the remote could not.

use tidegate_algorithms::{CheckInput, Decision, Tenure, Timestamp};

use super::{ProvisionalAnswer, Undo, consistency_of};
use crate::batch::{Basis, Check, Consistency, OnStoreError, Role, Verb};
use crate::counter_store::StoreError;
use crate::shared::lease_terms::LeaseTerms;
use crate::shared::metrics::count;
use crate::shared::node_share::admit_without_store;
use crate::shared::outage::DebtPolicy;
use crate::shared::remote::Remote;
use crate::shared::{SharedStore, StoreErrors};

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
            OnStoreError::Deny if self.settings.errors == StoreErrors::Upstream => {
                count(&self.counters.deny);
                Err(error.in_upstream_words())
            }
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
        let is_eventual = consistency_of(check) == Consistency::Eventual;
        // The counts of an eventual key are reported to all regions; those of other keys are a debt to this one.
        let is_reported = is_eventual && !error.may_have_run() && self.tallies.ensure(check);
        let skips_debt = error.may_have_run() || is_reported;
        let debt_policy = if skips_debt { DebtPolicy::Skip } else { DebtPolicy::Record };
        let terms = LeaseTerms::of_check(check);
        let limit = terms.as_ref().map_or(check.limit, |terms| &terms.tightened);
        let state = is_eventual.then(|| self.tallies.state(check.key.fingerprint)).flatten();
        let (now, nodes) = (self.remote.remote_time(now), self.nodes.live());
        let check = Check { limit, ..*check };
        let decision = self.outage.apply(verb, &check, state.as_ref(), nodes, now, debt_policy);
        match verb {
            Verb::Check | Verb::Take | Verb::Charge if is_reported && decision.taken > 0 => {
                let check = Check { cost: decision.taken, ..check };
                let _ = self.tallies.apply(Verb::Charge, &check, now);
            }
            Verb::Refund if is_reported => self.tallies.uncharge(&check, now),
            Verb::Reset => self.tallies.forget(check.key.fingerprint),
            Verb::Check | Verb::Take | Verb::Charge | Verb::Peek | Verb::Refund => {}
        }
        decision
    }
}
