//! The one trait of a store.

use std::time::Duration;

use tidegate_algorithms::Period;

use crate::batch::{Answers, Batch};
use crate::memory::MemoryStore;

/// Keeps counters and decides next to them.
pub trait CounterStore: Send + Sync + 'static {
    /// Decides all checks of the batch, in one step for everyone else, and
    /// pushes one answer for each.
    ///
    /// # Errors
    /// When the store could not decide. A refusal is not an error.
    fn apply(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// For how long slots are to be taken that this process will
    /// [hold](Self::hold). Nothing where slots cannot outlive the process that
    /// holds them.
    fn slot_lease(&self) -> Option<Period> {
        None
    }

    /// Somebody holds the slots of these checks until they are given back. A
    /// store whose slots expire while they are held keeps them alive from now on.
    fn hold(&self, batch: &Batch<'_>) {
        let _ = batch;
    }

    /// The store as one in memory of this process, if it is one: then callers can decide without a future.
    #[inline]
    fn local(&self) -> Option<&MemoryStore> {
        None
    }

    /// Gives back what the batch charged, without being waited for: at once
    /// where that is possible, soon where it is not.
    fn give_back(&self, batch: &Batch<'_>);
}

/// Why a store could not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer in time.
    #[error("the store did not answer within {waited:?}")]
    Timeout {
        /// How long was waited.
        waited: Duration,
    },
    /// The store cannot be reached, or answered what makes no sense.
    #[error("the store cannot be used: {reason}")]
    Unavailable {
        /// Which kind of failure, for those who count them.
        kind: FailureKind,
        /// In words that say what to do about it.
        reason: String,
    },
}

impl StoreError {
    /// Which kind of failure it is.
    pub const fn kind(&self) -> FailureKind {
        match self {
            StoreError::Timeout { .. } => FailureKind::Timeout,
            StoreError::Unavailable { kind, .. } => *kind,
        }
    }

    /// Whether the store may have done what it was asked all the same. If so,
    /// asking again could charge twice.
    pub const fn may_have_run(&self) -> bool {
        match self {
            StoreError::Timeout { .. } => true,
            StoreError::Unavailable { kind, .. } => {
                matches!(kind, FailureKind::Lost | FailureKind::Protocol | FailureKind::Other)
            }
        }
    }
}

/// What went wrong, as few words as a metric needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// No answer in time.
    Timeout,
    /// Nobody listens, or the connection was cut.
    Refused,
    /// The connection was cut while the store was asked.
    Lost,
    /// More checks wait in this process than it lets wait.
    Overloaded,
    /// The store has no memory left.
    Full,
    /// The store takes no writes: it is a replica.
    ReadOnly,
    /// The store reads its data and does not answer yet.
    Loading,
    /// The store does not accept who we are, or what we may do.
    Auth,
    /// The cluster does not agree on who has the key.
    Cluster,
    /// The answer is not one that such a store gives.
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

    /// The kind's place in [`FailureKind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The kind in one word, for labels.
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
    fn what_was_not_sent_or_was_turned_down_has_not_run() {
        let unavailable = |kind| StoreError::Unavailable { kind, reason: String::new() };
        for kind in [FailureKind::Refused, FailureKind::Overloaded, FailureKind::ReadOnly] {
            assert!(!unavailable(kind).may_have_run(), "{}", kind.word());
        }
        assert!(unavailable(FailureKind::Lost).may_have_run());
        assert!(StoreError::Timeout { waited: Duration::ZERO }.may_have_run());
    }

    #[test]
    fn every_kind_stands_at_its_index() {
        for (index, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index, "{}", kind.word());
        }
    }
}
