//! Counters that many processes share, behind any [`Remote`] store.
//!
//! Each check has a consistency mode. *Exact* calls the remote each time. *Leased* takes slices of the limit ahead and
//! decides locally; it never exceeds the limit. *Eventual* counts locally and adds up on a beat; it exceeds the limit
//! by at most a stated bound. When the remote fails, the check's policy decides: by this node's share (`local`), by
//! admitting (`allow`), or with an error (`deny`). `docs/consistency.md` has the bounds and their proofs.
//!
//! Requests are in [`decide`], background work in [`background`]. Decisions take `now` from their batch; the store
//! reads only tokio's clock, for deadlines.

mod background;
mod breaker;
mod breakers;
mod clock_reading;
mod count_report;
mod decide;
mod join_all;
mod lease;
mod lease_terms;
mod metrics;
mod node;
mod node_share;
mod outage;
mod pending_keys;
mod random;
mod refusal_cache;
mod region;
mod remote;
mod report;
mod route_breaker;
mod sharded_map;
mod tally;
mod transfer;
mod upstream_words;
mod verbs;

pub use lease_terms::consistency_for;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_algorithms::{Nanos, Period, Timestamp};
use tidegate_macros::defaults;
use tidegate_metrics::{Collector, Exposition};

use crate::batch::{Answers, Batch, Verb};
use crate::counter_store::{CounterStore, StoreError};
use crate::memory::ConfigError;
use breakers::Breakers;
use lease::Leases;
use metrics::Counters;
use node::Nodes;
use outage::Outage;
use pending_keys::PendingKeys;
use refusal_cache::RefusalCache;
use region::Region;
use route_breaker::RouteBreaker;
use tally::Tallies;

pub use count_report::{CountReport, DueCharge, Remains, ReportAnswer, ReportRecord};
#[cfg(feature = "redis")]
pub(crate) use join_all::join_all;
pub use lease::LeaseCounts;
pub use metrics::{Metrics, OVERSHOOT_BOUNDS, SHARED_METRICS};
pub(crate) use random::Random;
pub use remote::{CurrentRoute, NodeId, Remote, Route};

defaults! {
    /// Settings of a [`SharedStore`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SharedSettings {
        /// The deadline of a request whose batch does not set its own. Default: 250 ms.
        pub within: Duration = Duration::from_millis(250),
        /// The deadline of background calls. Default: 1 s.
        pub background_within: Duration = Duration::from_secs(1),
        /// How often eventual counts are added up. Default: 100 ms.
        pub beat: Duration = Duration::from_millis(100),
        /// How often a node registers; one that has not for five beats is not counted any more. Default: 1 s.
        pub node_beat: Duration = Duration::from_secs(1),
        /// The longest time that a refusal is cached, and so how late this node sees refunds by others. Default: 250
        /// ms; zero disables the cache.
        pub refusals_for: Duration = Duration::from_millis(250),
        /// The maximum of leased keys, of eventual keys and of keys in an outage, each. Default: 100,000, of about half
        /// a kilobyte.
        pub keys_max: usize = 100_000,
        /// Memory for the last known states of exact limits. Default: 16 MiB, about 400,000 keys.
        pub known_bytes: usize = 16 * 1024 * 1024,
        /// The number of nodes until the register was read. Default: 1.
        pub nodes_expected: usize = 1,
        /// Whose errors the caller of a limit with [`OnStoreError::Deny`](crate::OnStoreError::Deny) gets. Default:
        /// ours.
        pub errors: StoreErrors = StoreErrors::Own,
        /// The seed of jitter and of the node's id; random if none.
        pub seed: Option<u64>,
    }
}

/// Whose errors callers get when the remote fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreErrors {
    /// Ours. A check that only observes fails no request.
    #[default]
    Own,
    /// Those of envoyproxy/ratelimit, in its words. As there, checks that only observe fail the request too.
    Upstream,
}

/// Counters that many processes share.
///
/// [`SharedStore::run`] must be polled: it renews leases, flushes counts, and probes a remote that failed.
#[derive(Debug)]
pub struct SharedStore<R> {
    remote: R,
    breakers: Breakers,
    settings: SharedSettings,
    nodes: Nodes,
    refusal_cache: RefusalCache,
    leases: Leases,
    tallies: Tallies,
    /// Keys whose counts this region's remote lacks.
    pending: PendingKeys,
    outage: Outage,
    regions: Vec<Region<R>>,
    counters: Arc<Counters>,
    /// When the settling of an outage's debts may start.
    settle_from: AtomicU64,
}

impl<R: Remote> SharedStore<R> {
    /// A store over this remote.
    ///
    /// # Errors
    /// When `known_bytes` is too small.
    pub fn new(remote: R, settings: SharedSettings) -> Result<Self, ConfigError> {
        let mut random = Random::new(settings.seed);
        let counters = Arc::new(Counters::default());
        let refusals_for = Nanos::from(settings.refusals_for);
        Ok(SharedStore {
            remote,
            breakers: Breakers::new(
                "this region",
                Random::new(Some(random.next())),
                Arc::clone(&counters),
            ),
            nodes: Nodes::new(NodeId(random.next()), settings.nodes_expected),
            refusal_cache: RefusalCache::new(refusals_for),
            leases: Leases::new(settings.keys_max, refusals_for),
            tallies: Tallies::new(settings.keys_max),
            pending: PendingKeys::default(),
            outage: Outage::new(settings.keys_max, settings.known_bytes, settings.seed)?,
            regions: Vec::new(),
            counters,
            settle_from: AtomicU64::new(0),
            settings,
        })
    }

    /// Adds another region, which receives the charges of eventual limits. The name is for logs.
    #[must_use]
    pub fn with_region(mut self, name: impl Into<String>, remote: R) -> Self {
        let seed = self.settings.seed.map(|seed| seed.wrapping_add(self.regions.len() as u64 + 1));
        let breaker = RouteBreaker::new(name.into(), Random::new(seed), Arc::clone(&self.counters));
        let destination = self.tallies.add_destination();
        self.regions.push(Region::new(remote, breaker, destination));
        self
    }

    /// The remote behind the store.
    pub const fn remote(&self) -> &R {
        &self.remote
    }

    /// Whether a circuit breaker is open, because the remote or a route of it does not answer.
    pub fn is_degraded(&self) -> bool {
        self.breakers.any_open()
    }

    /// Counts since the start, and current gauges; visits every key.
    pub fn metrics(&self, now: Timestamp) -> Metrics {
        let read = self.counters.read();
        Metrics {
            degraded: self.breakers.any_open(),
            degraded_for: read.degraded_for + Duration::from(self.breakers.open_for(now)),
            leases: self.leases.counts(),
            tallies: self.tallies.len(),
            owing: self.outage.owing(),
            pending: self.regions.iter().map(|region| region.pending.len()).sum(),
            nodes: self.nodes.live(),
            ..read
        }
    }

    fn settle_from(&self) -> Timestamp {
        Timestamp::from_nanos(self.settle_from.load(Ordering::Relaxed))
    }
}

impl<R: Remote> CounterStore for SharedStore<R> {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        match batch.verb {
            Verb::Check if self.decide_locally(batch, answers) => Ok(()),
            Verb::Check => self.decide(batch, answers).await,
            _ => self.act(batch, answers).await,
        }
    }

    fn slot_lease(&self) -> Option<Period> {
        self.remote.slot_lease()
    }

    fn hold(&self, batch: &Batch<'_>) {
        self.remote.hold(batch);
    }

    fn give_back(&self, batch: &Batch<'_>) {
        for check in batch.checks {
            self.refusal_cache.remove(check.key.fingerprint);
            self.outage.give_back(check, batch.now);
        }
        self.remote.give_back(batch);
    }

    fn collect(&self, now: Timestamp, out: &mut Exposition) {
        self.metrics(now).collect(out);
        self.remote.collect(now, out);
    }
}
