//! The trait of all stores.

use std::time::Duration;

use tidegate_algorithms::{Period, Timestamp};
use tidegate_metrics::Exposition;
pub use tidegate_words::FailureKind;

use crate::batch::{Answers, Batch};
use crate::memory::MemoryStore;

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

    /// The store as one in memory of this process, if it is one: then callers can decide without a future.
    #[inline]
    fn local(&self) -> Option<&MemoryStore> {
        None
    }

    /// Gives back what the batch charged, without a result: immediately if the store is local, else in
    /// the background.
    fn give_back(&self, batch: &Batch<'_>);

    /// Writes the metrics of the store.
    fn collect(&self, now: Timestamp, out: &mut Exposition) {
        let _ = (now, out);
    }
}

/// Why a store could not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer in time.
    #[error("the store did not answer within {waited:?}")]
    Timeout {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The store cannot be reached, rejected the call, or sent a malformed reply.
    #[error("the store cannot be used: {reason}")]
    Unavailable {
        /// The kind of failure.
        kind: FailureKind,
        /// The reason, and what to do about it.
        reason: String,
    },
    /// The same in the words of envoyproxy/ratelimit, for its clients.
    #[error("{text}")]
    Upstream {
        /// The kind of failure.
        kind: FailureKind,
        /// The text of its error.
        text: String,
    },
}

impl StoreError {
    /// The kind of failure.
    pub const fn kind(&self) -> FailureKind {
        match self {
            StoreError::Timeout { .. } => FailureKind::Timeout,
            StoreError::Unavailable { kind, .. } | StoreError::Upstream { kind, .. } => *kind,
        }
    }

    /// Whether the store may have executed the call. If so, sending it again could charge twice.
    pub const fn may_have_run(&self) -> bool {
        matches!(self, StoreError::Timeout { .. }) || self.kind().may_have_run()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FailureKind, StoreError};

    #[test]
    fn a_call_that_was_not_sent_or_was_rejected_has_not_run() {
        let unavailable = |kind| StoreError::Unavailable { kind, reason: String::new() };
        for kind in [FailureKind::Refused, FailureKind::Overloaded, FailureKind::ReadOnly] {
            assert!(!unavailable(kind).may_have_run(), "{kind:?}");
        }
        assert!(unavailable(FailureKind::Lost).may_have_run());
        assert!(StoreError::Timeout { waited: Duration::ZERO }.may_have_run());
    }
}
