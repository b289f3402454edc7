//! The outcome of a request that the engine could not decide.

use tidegate_algorithms::Outcome;
use tidegate_rules::OnStoreError;
use tidegate_stores::StoreError;

use crate::containment::panic_text;
use crate::prepare::DESCRIPTORS_MAX;

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Code panicked; the request was not counted, or only in part.
    #[error("the engine failed inside: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The request has too many descriptors.
    #[error("a request may have up to {DESCRIPTORS_MAX} descriptors, not {descriptors}")]
    TooManyDescriptors {
        /// Their number.
        descriptors: usize,
    },
}

impl Undecided {
    /// From the payload of a panic.
    pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let message = panic_text(payload).to_owned();
        Undecided::Panicked { message }
    }
}

/// The outcome when there is no decision and no rule says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureMode {
    /// Admit the request: a broken limiter must not take the service down.
    #[default]
    Admit,
    /// Refuse it.
    Refuse,
}

impl FailureMode {
    /// The outcome, given the `on_store_error` of the request's enforced limits: one `deny` refuses, `allow` admits
    /// only if all say so.
    pub(crate) fn outcome(self, rules: &[OnStoreError]) -> Outcome {
        let all_allow = !rules.is_empty() && rules.iter().all(|rule| *rule == OnStoreError::Allow);
        match self {
            _ if rules.contains(&OnStoreError::Deny) => Outcome::Refused,
            FailureMode::Refuse if !all_allow => Outcome::Refused,
            FailureMode::Admit | FailureMode::Refuse => Outcome::Admitted,
        }
    }
}
