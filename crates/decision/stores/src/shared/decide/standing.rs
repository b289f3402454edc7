//! How a request stands while some of its checks are still open.

use super::{Positions, Progress};
use crate::batch::{Batch, Charge, Role, Verb};

/// How a request stands after some of its checks.
pub(super) struct Standing {
    refused: bool,
    alternatives: bool,
    alternative_admits: bool,
}

impl Standing {
    /// Of the checks that are settled.
    pub(super) fn of(batch: &Batch<'_>, progress: &Progress) -> Self {
        let mut standing =
            Standing { refused: false, alternatives: false, alternative_admits: false };
        for (check, settled) in batch.checks.iter().zip(progress) {
            let Some(settled) = settled else { continue };
            let admitted = settled.answer.decision.is_admitted();
            match check.role {
                Role::Required => standing.refused |= !admitted,
                Role::Alternative => {
                    standing.alternatives = true;
                    standing.alternative_admits |= admitted;
                }
                Role::Observed => {}
            }
        }
        standing
    }

    /// What to do with the checks that are left, and what alternatives among
    /// them mean: nothing once another one has admitted.
    pub(super) fn for_the_rest(&self, batch: &Batch<'_>, rest: &Positions) -> (Verb, Role) {
        let has_alternative = rest
            .iter()
            .filter_map(|at| batch.checks.get(*at))
            .any(|check| check.role == Role::Alternative);
        let none_left = self.alternatives && !self.alternative_admits && !has_alternative;
        let doomed = batch.charge == Charge::AllOrNothing && (self.refused || none_left);
        let role = if self.alternative_admits { Role::Observed } else { Role::Alternative };
        (if doomed { Verb::Peek } else { Verb::Check }, role)
    }
}
