//! The circuit breakers of a remote: one for each route.
//!
//! A remote may keep its keys in several places, such as the masters of a cluster, which fail independently. So each
//! route has its own breaker, and only keys on a failed route are decided without the remote.
//!
//! A request with checks on several routes is sent as a whole or not at all: if one breaker is open, all checks follow
//! their failure policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use tidegate_algorithms::{Nanos, Timestamp};
use tokio::time::Instant;

use super::join_all::join_all;
use super::metrics::Counters;
use super::random::Random;
use super::remote::{CurrentRoute, Remote, Route};
use super::route_breaker::{RouteBreaker, in_time, incomplete, with_deadline};
use crate::batch::{Answer, Answers, Batch, Check};
use crate::counter_store::StoreError;

/// The circuit breakers of one remote.
#[derive(Debug)]
pub(crate) struct Breakers {
    /// The remote's name in logs.
    name: String,
    random: Mutex<Random>,
    /// The only one, for most remotes.
    first: Arc<RouteBreaker>,
    /// Those of the other routes.
    others: RwLock<BTreeMap<Route, Arc<RouteBreaker>>>,
    counters: Arc<Counters>,
}

impl Breakers {
    /// Closed breakers for the remote of this name.
    pub(crate) fn new(name: &str, mut random: Random, counters: Arc<Counters>) -> Self {
        let name = name.to_owned();
        let own = Random::new(Some(random.next()));
        let first = Arc::new(RouteBreaker::new(name.clone(), own, Arc::clone(&counters)));
        Breakers { name, random: Mutex::new(random), first, others: RwLock::default(), counters }
    }

    /// The breaker of a route.
    pub(crate) fn of(&self, route: Route) -> Arc<RouteBreaker> {
        if route == Route::ONLY {
            return Arc::clone(&self.first);
        }
        if let Some(breaker) = self.others.read().get(&route) {
            return Arc::clone(breaker);
        }
        let new = || {
            let name = format!("{}, route {}", self.name, route.0);
            let own = Random::new(Some(self.random.lock().next()));
            Arc::new(RouteBreaker::new(name, own, Arc::clone(&self.counters)))
        };
        Arc::clone(self.others.write().entry(route).or_insert_with(new))
    }

    /// Whether the breaker of this route is open.
    #[inline]
    pub(crate) fn is_open(&self, route: Route) -> bool {
        if route == Route::ONLY {
            return self.first.is_open();
        }
        self.others.read().get(&route).is_some_and(|breaker| breaker.is_open())
    }

    /// Whether any breaker is open.
    pub(crate) fn any_open(&self) -> bool {
        self.first.is_open() || self.others.read().values().any(|breaker| breaker.is_open())
    }

    /// Whether all breakers are open.
    pub(crate) fn all_open(&self) -> bool {
        self.first.is_open() && self.others.read().values().all(|breaker| breaker.is_open())
    }

    /// How long a breaker has been open; the longest time of all.
    pub(crate) fn open_for(&self, now: Timestamp) -> Nanos {
        let each = self.all().into_iter().map(|(_, breaker)| breaker.open_for(now));
        each.max().unwrap_or(Nanos::ZERO)
    }

    /// The error for calls that an open breaker rejects.
    pub(crate) fn error(&self) -> StoreError {
        let open = self.all().into_iter().find(|(_, breaker)| breaker.is_open());
        open.map_or_else(|| self.first.error(), |(_, breaker)| breaker.error())
    }

    /// Applies a batch atomically.
    pub(crate) async fn apply(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        answers: &mut Answers,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let breakers = self.of_request(remote, batch);
        if let Some(breaker) = breakers.iter().find(|breaker| breaker.is_open()) {
            return Err(breaker.error());
        }
        let first = answers.len();
        let batch = &with_deadline(batch, deadline);
        let current = CurrentRoute::default();
        let call = async {
            remote.apply_with_route(batch, answers, &current).await?;
            if answers.len() - first == batch.checks.len() { Ok(()) } else { Err(incomplete()) }
        };
        let result = in_time(call, deadline).await;
        match &result {
            Ok(()) => breakers.iter().for_each(|breaker| breaker.answered(batch.now)),
            Err(error) => {
                answers.truncate(first);
                // Only the route that was called last has failed; the others may have answered.
                let route = current.get();
                let check = batch.checks.iter().find(|check| remote.route(check.key) == route);
                self.of(route).failed(error, check, batch.now);
            }
        }
        result
    }

    /// Applies each check of a batch by itself, with one call for each route.
    pub(crate) async fn apply_each(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let mut routes: BTreeMap<Route, Vec<usize>> = BTreeMap::new();
        for (index, check) in batch.checks.iter().enumerate() {
            routes.entry(remote.route(check.key)).or_default().push(index);
        }
        if let (Some((route, _)), true) = (routes.first_key_value(), routes.len() == 1) {
            return self.of(*route).apply_each(remote, batch, deadline).await;
        }
        let call = |(route, indexes): (&Route, &Vec<usize>)| {
            let breaker = self.of(*route);
            let checks: Vec<Check<'_>> =
                indexes.iter().filter_map(|index| batch.checks.get(*index)).copied().collect();
            async move {
                let part = Batch { checks: &checks, names: &[], ..*batch };
                breaker.apply_each(remote, &part, deadline).await
            }
        };
        let replies = join_all(routes.iter().map(call)).await;
        let mut results = vec![Err(incomplete()); batch.checks.len()];
        for (indexes, reply) in routes.values().zip(replies) {
            for (index, result) in indexes.iter().zip(reply) {
                results[*index] = result;
            }
        }
        results
    }

    /// Probes the routes with an open breaker, except `one`; returns whether a breaker closed.
    pub(crate) async fn probe_all_but(
        &self,
        one: Route,
        remote: &impl Remote,
        within: Duration,
        now: Timestamp,
    ) -> bool {
        let mut closed = false;
        for (_, breaker) in self.all().iter().filter(|(route, _)| *route != one) {
            if breaker.is_open() && breaker.probe_due(now) {
                breaker.probe_failed_key(remote, Instant::now() + within, now).await;
                closed |= !breaker.is_open();
            }
        }
        closed
    }

    /// The breakers of the routes of a request, each once.
    fn of_request(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
    ) -> SmallVec<[Arc<RouteBreaker>; 2]> {
        let mut routes: SmallVec<[Route; 2]> =
            batch.checks.iter().map(|check| remote.route(check.key)).collect();
        routes.sort_unstable();
        routes.dedup();
        routes.into_iter().map(|route| self.of(route)).collect()
    }

    fn all(&self) -> Vec<(Route, Arc<RouteBreaker>)> {
        let others = self.others.read();
        let others = others.iter().map(|(route, breaker)| (*route, Arc::clone(breaker)));
        std::iter::once((Route::ONLY, Arc::clone(&self.first))).chain(others).collect()
    }
}
