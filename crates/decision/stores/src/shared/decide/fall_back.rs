//! A check that the remote could not be asked about, by its own policy.

use tidegate_algorithms::{CheckInput, Decision, Timestamp};

use super::{Settled, Undo, mode};
use crate::batch::{Answer, Basis, Check, Consistency, OnStoreError, Role, Verb};
use crate::counter_store::StoreError;
use crate::shared::SharedStore;
use crate::shared::known::unasked;
use crate::shared::metrics::count;
use crate::shared::outage::Afterwards;
use crate::shared::remote::Remote;
use crate::shared::terms::Terms;

impl<R: Remote> SharedStore<R> {
    /// Decides a check that the remote could not be asked about.
    pub(super) fn fall_back(
        &self,
        verb: Verb,
        check: &Check<'_>,
        now: Timestamp,
        error: StoreError,
    ) -> Result<Settled, StoreError> {
        let policy = match check.policy.on_store_error {
            // What only observes must not keep a request from being decided.
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
                let decision = unasked(check.limit, ask);
                let answer = Answer { decision, basis: Basis::Unasked };
                Ok(Settled { answer, undo: Undo::Nothing })
            }
            OnStoreError::Local => {
                count(&self.counters.local);
                let decision = self.decide_by_share(verb, check, now, &error);
                let undo = if decision.taken > 0 { Undo::Share } else { Undo::Nothing };
                Ok(Settled { answer: Answer { decision, basis: Basis::Local }, undo })
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
        let afterwards = if error.may_have_run() { Afterwards::Leave } else { Afterwards::Charge };
        let (now, nodes) = (self.remote.there(now), self.nodes.live());
        match mode(check) {
            Consistency::Leased => {
                let terms = Terms::of(check.limit);
                let limit = terms.as_ref().map_or(check.limit, |terms| &terms.tightened);
                let check = Check { limit, ..*check };
                self.outage.apply(verb, &check, None, nodes, now, afterwards)
            }
            Consistency::Eventual => {
                let known = self.tallies.state(check.key.fingerprint);
                self.outage.apply(verb, check, known, nodes, now, afterwards)
            }
            Consistency::Exact => self.outage.apply(verb, check, None, nodes, now, afterwards),
        }
    }

    /// The verbs other than check: an answer, or what its policy says.
    pub(in crate::shared) fn fall_back_acting(
        &self,
        verb: Verb,
        check: &Check<'_>,
        now: Timestamp,
        error: StoreError,
    ) -> Result<Answer, StoreError> {
        self.fall_back(verb, check, now, error).map(|settled| settled.answer)
    }
}
