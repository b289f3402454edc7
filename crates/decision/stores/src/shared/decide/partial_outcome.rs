//! The outcome of a request after some of its checks.

use super::{Indexes, Progress};
use crate::batch::{Batch, Charge, Role, Verb};

/// The outcome of a request after some of its checks.
pub(super) struct PartialOutcome {
    refused: bool,
    alternatives: bool,
    alternative_admits: bool,
}

impl PartialOutcome {
    /// The outcome of the answered checks.
    pub(super) fn of(batch: &Batch<'_>, progress: &Progress) -> Self {
        let mut outcome =
            PartialOutcome { refused: false, alternatives: false, alternative_admits: false };
        for (check, settled) in batch.checks.iter().zip(progress) {
            let Some(settled) = settled else { continue };
            let admitted = settled.answer.decision.is_admitted();
            match check.role {
                Role::Required => outcome.refused |= !admitted,
                Role::Alternative => {
                    outcome.alternatives = true;
                    outcome.alternative_admits |= admitted;
                }
                Role::Observed => {}
            }
        }
        outcome
    }

    /// The verb for the remaining checks, and the role of alternatives among them: [`Role::Observed`] once another
    /// alternative has admitted.
    pub(super) fn remaining_verb(&self, batch: &Batch<'_>, rest: &Indexes) -> (Verb, Role) {
        let has_alternative = rest
            .iter()
            .filter_map(|index| batch.checks.get(*index))
            .any(|check| check.role == Role::Alternative);
        let no_alternative = self.alternatives && !self.alternative_admits && !has_alternative;
        let is_refused = batch.charge == Charge::AllOrNothing && (self.refused || no_alternative);
        let role = if self.alternative_admits { Role::Observed } else { Role::Alternative };
        (if is_refused { Verb::Peek } else { Verb::Check }, role)
    }
}
