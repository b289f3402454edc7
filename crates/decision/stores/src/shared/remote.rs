//! What the shared store needs of the store behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tidegate_algorithms::{Period, Timestamp};

use crate::batch::{Answer, Answers, Batch, Key};
use crate::counter_store::{CounterStore, StoreError};
use crate::memory::MemoryStore;

/// Tells the processes that share a store apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

/// Where a remote keeps a key: keys of one route can be asked for or not
/// together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route(pub u16);

impl Route {
    /// The one of a remote that keeps everything in one place.
    pub const ONLY: Route = Route(0);
}

/// Says which route is being asked, to those who may wait in vain.
#[derive(Debug, Default)]
pub struct Asking(AtomicU16);

impl Asking {
    /// From now on this route is asked.
    pub fn set(&self, route: Route) {
        self.0.store(route.0, Ordering::Relaxed);
    }

    /// The route that was asked last.
    pub fn route(&self) -> Route {
        Route(self.0.load(Ordering::Relaxed))
    }
}

/// A store of counters that many processes share.
///
/// Its errors tell two cases apart, because nothing may be charged twice: what
/// surely did not run, and what may have. See [`StoreError::may_have_run`].
pub trait Remote: CounterStore {
    /// What the remote's clock shows when this process's shows `here`, as far as
    /// its answers have told.
    fn there(&self, here: Timestamp) -> Timestamp {
        here
    }

    /// Where a key is kept, as far as is known. A route that fails says nothing
    /// of the others.
    fn route(&self, key: Key) -> Route {
        let _ = key;
        Route::ONLY
    }

    /// Where nodes register.
    fn register_route(&self) -> Route {
        Route::ONLY
    }

    /// Applies a batch as [`CounterStore::apply`] does, and says which route it
    /// asks. A remote that asks one after the other has to say so of each.
    fn apply_along(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
        asking: &Asking,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let first = batch.checks.first();
        asking.set(first.map_or(Route::ONLY, |check| self.route(check.key)));
        self.apply(batch, answers)
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

    /// Lets slots live on that somebody still holds. Called ten times a second.
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

    fn slot_lease(&self) -> Option<Period> {
        (**self).slot_lease()
    }

    fn hold(&self, batch: &Batch<'_>) {
        (**self).hold(batch);
    }

    fn give_back(&self, batch: &Batch<'_>) {
        (**self).give_back(batch);
    }

    fn local(&self) -> Option<&MemoryStore> {
        (**self).local()
    }
}

impl<R: Remote> Remote for Arc<R> {
    fn there(&self, here: Timestamp) -> Timestamp {
        (**self).there(here)
    }

    fn route(&self, key: Key) -> Route {
        (**self).route(key)
    }

    fn register_route(&self) -> Route {
        (**self).register_route()
    }

    fn apply_along(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
        asking: &Asking,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        (**self).apply_along(batch, answers, asking)
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
