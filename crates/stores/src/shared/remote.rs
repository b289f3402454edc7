//! What the shared store needs of the store behind it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::Timestamp;

use crate::batch::{Answer, Answers, Batch};
use crate::counter_store::{CounterStore, StoreError};

/// Tells the processes that share a store apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

/// A store of counters that many processes share.
///
/// Its errors tell two cases apart, because nothing may be charged twice: what
/// surely did not run, and what may have. See [`StoreError::may_have_run`].
pub trait Remote: CounterStore + Send + Sync {
    /// What the remote's clock shows when this process's shows `here`, as far as
    /// its answers have told.
    fn there(&self, here: Timestamp) -> Timestamp {
        here
    }

    /// Applies a verb that concerns each key by itself to many keys at once;
    /// pushes one result for each check.
    ///
    /// As it stands here all fail when one does. A remote whose keys lie in
    /// several places has to do better: it tells of each check whether it ran.
    fn each(
        &self,
        batch: &Batch<'_>,
        results: &mut Vec<Result<Answer, StoreError>>,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let mut answers = Answers::new();
            match self.apply(batch, &mut answers).await {
                Ok(()) => results.extend(answers.into_iter().map(Ok)),
                Err(error) => results.extend(batch.checks.iter().map(|_| Err(error.clone()))),
            }
        }
    }

    /// Says that this node lives, until `lasting` has passed; tells how many
    /// do, this one included.
    ///
    /// # Errors
    /// When the register could not be reached.
    fn register(
        &self,
        node: NodeId,
        lasting: Duration,
        now: Timestamp,
        within: Duration,
    ) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// Lets slots live on that somebody still holds. Called once a second.
    fn keep_held(&self, now: Timestamp) -> impl Future<Output = ()> + Send {
        let _ = now;
        async {}
    }

    /// Takes this node out of the register.
    ///
    /// # Errors
    /// When the register could not be reached; the node leaves it by itself in time.
    fn leave(
        &self,
        node: NodeId,
        now: Timestamp,
        within: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl<S: CounterStore> CounterStore for Arc<S> {
    fn apply(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        (**self).apply(batch, answers)
    }

    fn hold(&self, batch: &Batch<'_>) {
        (**self).hold(batch);
    }

    fn give_back(&self, batch: &Batch<'_>) {
        (**self).give_back(batch);
    }
}

impl<R: Remote> Remote for Arc<R> {
    fn there(&self, here: Timestamp) -> Timestamp {
        (**self).there(here)
    }

    fn each(
        &self,
        batch: &Batch<'_>,
        results: &mut Vec<Result<Answer, StoreError>>,
    ) -> impl Future<Output = ()> + Send {
        (**self).each(batch, results)
    }

    fn register(
        &self,
        node: NodeId,
        lasting: Duration,
        now: Timestamp,
        within: Duration,
    ) -> impl Future<Output = Result<usize, StoreError>> + Send {
        (**self).register(node, lasting, now, within)
    }

    fn keep_held(&self, now: Timestamp) -> impl Future<Output = ()> + Send {
        (**self).keep_held(now)
    }

    fn leave(
        &self,
        node: NodeId,
        now: Timestamp,
        within: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        (**self).leave(node, now, within)
    }
}
