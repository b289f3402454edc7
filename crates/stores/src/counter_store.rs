//! The one trait of a store.

use std::time::Duration;

use crate::batch::{Answers, Batch};

/// Keeps counters and decides next to them.
pub trait CounterStore {
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

    /// Somebody holds the slots of these checks until they are given back. A
    /// store whose slots expire while they are held keeps them alive from now on.
    fn hold(&self, batch: &Batch<'_>) {
        let _ = batch;
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
        /// In the store's own words.
        reason: String,
    },
}
