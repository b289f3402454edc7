//! The trait of all stores.

use std::time::Duration;

use tidegate_algorithms::{Holder, Period};

use crate::batch::{Answers, Batch, Key};

/// Keeps counters and decides next to them.
pub trait CounterStore: Send + Sync + 'static {
    /// Decides all checks of the batch atomically, and pushes one answer for each.
    ///
    /// # Errors
    /// If the store could not decide. A refusal is not an error.
    fn apply(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The lease of slots that this process [holds](Self::hold); `None` if slots cannot outlive the
    /// process.
    fn slot_lease(&self) -> Option<Period> {
        None
    }

    /// Keeps the slots of these checks alive until they are given back, if they would expire.
    fn hold(&self, batch: &Batch<'_>) {
        let _ = batch;
    }

    /// Gives back slots that were taken [as held](tidegate_algorithms::Tenure::Held), which only the
    /// store in memory supports.
    fn release(&self, key: Key, holder: Holder, count: u64) {
        let _ = (key, holder, count);
    }

    /// Gives back what the batch charged, without a result: immediately if the store is local, else in
    /// the background.
    fn give_back(&self, batch: &Batch<'_>);
}

/// Why a store could not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer in time.
    #[error("the store did not answer within {waited:?}")]
    Timeout {
        /// The time until the deadline.
        waited: Duration,
    },
    /// The store cannot be reached, or its answer cannot be used.
    #[error("the store cannot be used: {reason}")]
    Unavailable {
        /// The kind of failure, for metrics.
        kind: FailureKind,
        /// The reason, for operators.
        reason: String,
    },
}

impl StoreError {
    /// The kind of failure.
    pub const fn kind(&self) -> FailureKind {
        match self {
            StoreError::Timeout { .. } => FailureKind::Timeout,
            StoreError::Unavailable { kind, .. } => *kind,
        }
    }

    /// Whether the store may have executed the request nevertheless. Then a retry could charge twice.
    pub const fn may_have_run(&self) -> bool {
        match self {
            StoreError::Timeout { .. } => true,
            StoreError::Unavailable { kind, .. } => {
                matches!(kind, FailureKind::Lost | FailureKind::Protocol | FailureKind::Other)
            }
        }
    }
}

/// The kinds of failures, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// No answer in time.
    Timeout,
    /// The server does not listen, or closed the connection.
    Refused,
    /// The connection was lost during the request.
    Lost,
    /// The queue of this process is full.
    Overloaded,
    /// The store has no memory left.
    Full,
    /// The store is a replica and refuses writes.
    ReadOnly,
    /// The store is loading its data.
    Loading,
    /// Authentication failed, or a permission is missing.
    Auth,
    /// The nodes of the cluster disagree about the owner of a key.
    Cluster,
    /// The answer is malformed.
    Protocol,
    /// Anything else.
    Other,
}

impl FailureKind {
    /// All kinds, in the order of their [`FailureKind::index`].
    pub const ALL: [FailureKind; 11] = [
        FailureKind::Timeout,
        FailureKind::Refused,
        FailureKind::Lost,
        FailureKind::Overloaded,
        FailureKind::Full,
        FailureKind::ReadOnly,
        FailureKind::Loading,
        FailureKind::Auth,
        FailureKind::Cluster,
        FailureKind::Protocol,
        FailureKind::Other,
    ];

    /// The kind's index in [`FailureKind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The kind as a label.
    pub const fn word(self) -> &'static str {
        match self {
            FailureKind::Timeout => "timeout",
            FailureKind::Refused => "refused",
            FailureKind::Lost => "lost",
            FailureKind::Overloaded => "overloaded",
            FailureKind::Full => "full",
            FailureKind::ReadOnly => "readonly",
            FailureKind::Loading => "loading",
            FailureKind::Auth => "auth",
            FailureKind::Cluster => "cluster",
            FailureKind::Protocol => "protocol",
            FailureKind::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FailureKind, StoreError};

    #[test]
    fn a_request_that_was_rejected_or_not_sent_has_not_run() {
        let unavailable = |kind| StoreError::Unavailable { kind, reason: String::new() };
        for kind in [FailureKind::Refused, FailureKind::Overloaded, FailureKind::ReadOnly] {
            assert!(!unavailable(kind).may_have_run(), "{}", kind.word());
        }
        assert!(unavailable(FailureKind::Lost).may_have_run());
        assert!(StoreError::Timeout { waited: Duration::ZERO }.may_have_run());
    }

    #[test]
    fn every_kind_is_at_its_index() {
        for (index, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index, "{}", kind.word());
        }
    }
}
