//! The ways to a remote: a gate for each route.
//!
//! A remote may keep its keys in several places, as the masters of a cluster
//! do. One that is lost says nothing of the others. So each route has a breaker
//! of its own, and only keys that lie there are decided without the remote.
//!
//! A request whose checks lie on several routes is asked for as a whole or not
//! at all: when one of the routes is shut, all of its checks follow their policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use tidegate_algorithms::{Nanos, Timestamp};
use tokio::time::Instant;

use super::draw::Draw;
use super::gate::{Gate, in_time, incomplete, until};
use super::metrics::Counters;
use super::remote::{Asking, Remote, Route};
use super::side_by_side::all;
use crate::batch::{Answer, Answers, Batch, Check};
use crate::counter_store::StoreError;

/// The ways to one remote.
#[derive(Debug)]
pub(crate) struct Gates {
    /// What logs call the remote.
    name: String,
    draw: Mutex<Draw>,
    /// The only one of most remotes.
    first: Arc<Gate>,
    /// As many as the remote has routes.
    others: RwLock<BTreeMap<Route, Arc<Gate>>>,
}

impl Gates {
    /// Open ways to the remote of this name.
    pub(crate) fn new(name: &str, mut draw: Draw) -> Self {
        let first = Arc::new(Gate::new(name.to_owned(), Draw::new(Some(draw.next()))));
        Gates { name: name.to_owned(), draw: Mutex::new(draw), first, others: RwLock::default() }
    }

    /// The gate of a route.
    pub(crate) fn of(&self, route: Route) -> Arc<Gate> {
        if route == Route::ONLY {
            return Arc::clone(&self.first);
        }
        if let Some(gate) = self.others.read().get(&route) {
            return Arc::clone(gate);
        }
        let new = || {
            let name = format!("{}, route {}", self.name, route.0);
            Arc::new(Gate::new(name, Draw::new(Some(self.draw.lock().next()))))
        };
        Arc::clone(self.others.write().entry(route).or_insert_with(new))
    }

    /// Whether keys of this route are not asked for, because nobody answers.
    #[inline]
    pub(crate) fn is_shut(&self, route: Route) -> bool {
        if route == Route::ONLY {
            return self.first.is_shut();
        }
        self.others.read().get(&route).is_some_and(|gate| gate.is_shut())
    }

    /// Whether a route is shut.
    pub(crate) fn any_shut(&self) -> bool {
        self.first.is_shut() || self.others.read().values().any(|gate| gate.is_shut())
    }

    /// Whether no route is open, so that nothing need be tried.
    pub(crate) fn all_shut(&self) -> bool {
        self.first.is_shut() && self.others.read().values().all(|gate| gate.is_shut())
    }

    /// How long a route has been shut by now: the one that has been longest.
    pub(crate) fn shut_for(&self, now: Timestamp) -> Nanos {
        let each = self.each_gate().into_iter().map(|(_, gate)| gate.shut_for(now));
        each.max().unwrap_or(Nanos::ZERO)
    }

    /// Why a route is not asked.
    pub(crate) fn error(&self) -> StoreError {
        let shut = self.each_gate().into_iter().find(|(_, gate)| gate.is_shut());
        shut.map_or_else(|| self.first.error(), |(_, gate)| gate.error())
    }

    /// Has a batch decided in one step.
    pub(crate) async fn apply(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        answers: &mut Answers,
        deadline: Instant,
        counters: &Counters,
    ) -> Result<(), StoreError> {
        let ways = self.ways(remote, batch.checks);
        if let Some((_, gate)) = ways.iter().find(|(_, gate)| gate.is_shut()) {
            return Err(gate.error());
        }
        let begun = answers.len();
        let batch = &until(batch, deadline);
        let asking = Asking::default();
        let asked = async {
            remote.apply_along(batch, answers, &asking).await?;
            if answers.len() - begun == batch.checks.len() { Ok(()) } else { Err(incomplete()) }
        };
        let result = in_time(asked, deadline).await;
        match &result {
            Ok(()) => ways.iter().for_each(|(_, gate)| gate.answered(batch.now, counters)),
            Err(error) => {
                answers.truncate(begun);
                // Whoever was asked last has not answered; nothing is known of the others.
                let route = asking.route();
                let first = batch.checks.iter().find(|check| remote.route(check.key) == route);
                self.of(route).failed(error, first, batch.now, counters);
            }
        }
        result
    }

    /// Has each check of a batch decided by itself, those of each route together.
    pub(crate) async fn each(
        &self,
        remote: &impl Remote,
        batch: &Batch<'_>,
        deadline: Instant,
        counters: &Counters,
    ) -> Vec<Result<Answer, StoreError>> {
        let mut routes: BTreeMap<Route, Vec<usize>> = BTreeMap::new();
        for (at, check) in batch.checks.iter().enumerate() {
            routes.entry(remote.route(check.key)).or_default().push(at);
        }
        if let (Some((route, _)), true) = (routes.first_key_value(), routes.len() == 1) {
            return self.of(*route).each(remote, batch, deadline, counters).await;
        }
        let ask = |(route, places): (&Route, &Vec<usize>)| {
            let gate = self.of(*route);
            let checks: Vec<Check<'_>> =
                places.iter().filter_map(|at| batch.checks.get(*at)).copied().collect();
            async move {
                let part = Batch { checks: &checks, names: &[], ..*batch };
                gate.each(remote, &part, deadline, counters).await
            }
        };
        let told = all(routes.iter().map(ask)).await;
        let mut results = vec![Err(incomplete()); batch.checks.len()];
        for (places, told) in routes.values().zip(told) {
            for (at, told) in places.iter().zip(told) {
                results[*at] = told;
            }
        }
        results
    }

    /// Finds out whether shut routes are back, but for one that others see to;
    /// says whether one is.
    pub(crate) async fn probe_all_but(
        &self,
        one: Route,
        remote: &impl Remote,
        within: Duration,
        now: Timestamp,
        counters: &Counters,
    ) -> bool {
        let mut back = false;
        for (_, gate) in self.each_gate().iter().filter(|(route, _)| *route != one) {
            if gate.is_shut() && gate.probe_due(now) {
                gate.probe_known(remote, Instant::now() + within, now, counters).await;
                back |= !gate.is_shut();
            }
        }
        back
    }

    /// The routes of a request, each once.
    fn ways(
        &self,
        remote: &impl Remote,
        checks: &[Check<'_>],
    ) -> SmallVec<[(Route, Arc<Gate>); 2]> {
        let mut ways: SmallVec<[(Route, Arc<Gate>); 2]> = SmallVec::new();
        for check in checks {
            let route = remote.route(check.key);
            if ways.iter().all(|(known, _)| *known != route) {
                ways.push((route, self.of(route)));
            }
        }
        ways
    }

    fn each_gate(&self) -> Vec<(Route, Arc<Gate>)> {
        let others = self.others.read();
        let others = others.iter().map(|(route, gate)| (*route, Arc::clone(gate)));
        std::iter::once((Route::ONLY, Arc::clone(&self.first))).chain(others).collect()
    }
}
