//! The trait of the store behind a shared store.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tidegate_algorithms::Timestamp;

use crate::batch::{Answer, Answers, Batch, Key};
use crate::counter_store::{CounterStore, StoreError};

/// The id of a process that shares a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

/// The part of a remote that has a key, such as a master of a cluster. All keys of a route are reachable or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route(pub u16);

impl Route {
    /// The route of a remote with only one.
    pub const ONLY: Route = Route(0);
}

/// The route that is being called, so that a timeout is counted against the right one.
#[derive(Debug, Default)]
pub struct CurrentRoute(AtomicU16);

impl CurrentRoute {
    /// Sets the route.
    pub fn set(&self, route: Route) {
        self.0.store(route.0, Ordering::Relaxed);
    }

    /// The route that was set last.
    pub fn get(&self) -> Route {
        Route(self.0.load(Ordering::Relaxed))
    }
}

/// A store of counters that many processes share.
///
/// Its errors distinguish calls that certainly did not run from calls that may have, because nothing may be charged
/// twice. See [`StoreError::may_have_run`].
pub trait Remote: CounterStore {
    /// The remote's time when this process's clock shows `local`, estimated from its replies.
    fn remote_time(&self, local: Timestamp) -> Timestamp {
        local
    }

    /// The route of a key, if it is known. Routes fail independently.
    fn route(&self, key: Key) -> Route {
        let _ = key;
        Route::ONLY
    }

    /// The route of the register of nodes.
    fn register_route(&self) -> Route {
        Route::ONLY
    }

    /// Applies a batch like [`CounterStore::apply`], and sets `current` to the route before each call.
    fn apply_with_route(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
        current: &CurrentRoute,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let first = batch.checks.first();
        current.set(first.map_or(Route::ONLY, |check| self.route(check.key)));
        self.apply(batch, answers)
    }

    /// Applies a verb to each check by itself; pushes one result for each.
    ///
    /// By default all fail if one does. A remote with several routes must return the result of each check.
    fn apply_each(
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

    /// Registers this node for `lasting`; returns the number of registered nodes, including this one.
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

    /// Renews the slots that are still held. Called ten times a second.
    fn renew_held_slots(&self, now: Timestamp) -> impl Future<Output = ()> + Send {
        let _ = now;
        async {}
    }

    /// Removes this node from the register.
    ///
    /// # Errors
    /// When the register could not be reached; the entry expires by itself.
    fn unregister(
        &self,
        node: NodeId,
        now: Timestamp,
        within: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}
