//! What happens when the engine could not decide. Applied here and nowhere else.

use tidegate_algorithms::Outcome;
use tidegate_rules::OnStoreError;
use tidegate_stores::StoreError;

use crate::gather::DESCRIPTORS_MAX;

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something panicked; the request was not counted, or only in part.
    #[error("the engine failed inside: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// More than a request may have.
    #[error("a request may have up to {DESCRIPTORS_MAX} descriptors, not {descriptors}")]
    TooManyDescriptors {
        /// How many there were.
        descriptors: usize,
    },
}

impl Undecided {
    /// From what a panic left behind.
    pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .map(|message| (*message).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        Undecided::Panicked { message }
    }
}

/// What to answer when there is no decision and no rule says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureMode {
    /// Let the request through: a broken limiter must not take the service down.
    #[default]
    Admit,
    /// Refuse it.
    Refuse,
}

impl FailureMode {
    /// The outcome, given what the enforced limits of the request say of a
    /// failing store: one that denies is enough to refuse, and only when all
    /// of them allow does that settle it.
    pub(crate) fn outcome(self, rules: &[OnStoreError]) -> Outcome {
        let all_allow = !rules.is_empty() && rules.iter().all(|rule| *rule == OnStoreError::Allow);
        match self {
            _ if rules.contains(&OnStoreError::Deny) => Outcome::Refused,
            FailureMode::Refuse if !all_allow => Outcome::Refused,
            FailureMode::Admit | FailureMode::Refuse => Outcome::Admitted,
        }
    }
}
