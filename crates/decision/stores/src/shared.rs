//! Counters that many processes share, behind any [`Remote`] store.
//!
//! Each check says how its limit is kept. *Exact* asks the remote each time.
//! *Leased* takes slices of the limit ahead and decides here, and never
//! exceeds it. *Eventual* counts here and adds up on a beat, and exceeds it by a
//! stated bound at the most. When the remote fails, each check says what
//! decides: this node's share, nobody, or that the request cannot be decided.
//! `docs/consistency.md` has the bounds and their proofs.
//!
//! The way of a request is in [`decide`], what happens between requests in
//! [`background`]. Decisions take `now` from their batch; the store reads no
//! clock but tokio's, for deadlines. How a remote keeps counters is not here.

mod background;
mod breaker;
mod clock_watch;
mod decide;
mod draw;
mod gate;
mod gates;
mod keyed;
mod known;
mod lease;
mod metrics;
mod node;
mod outage;
mod over_limit;
mod region;
mod remote;
mod side_by_side;
mod tally;
mod terms;
mod verbs;

pub use terms::consistency_for;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_algorithms::{Nanos, Period, Timestamp};

use crate::batch::{Answers, Batch, Verb};
use crate::counter_store::{CounterStore, StoreError};
use crate::memory::ConfigError;
use draw::Draw;
use gate::Gate;
use gates::Gates;
use lease::Leases;
use metrics::Counters;
use node::Nodes;
use outage::Outage;
use over_limit::OverLimit;
use region::Region;
use tally::Tallies;

pub use lease::LeaseCounts;
pub use metrics::{Metrics, OVERSHOOT_BOUNDS};
pub use remote::{Asking, NodeId, Remote, Route};
#[cfg(feature = "redis")]
pub(crate) use side_by_side::all;

/// How a [`SharedStore`] is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSettings {
    /// How long a request waits for the remote, unless its batch says. Default: 10 ms.
    pub within: Duration,
    /// How long background work waits for it. Default: 100 ms.
    pub background_within: Duration,
    /// How often eventual counts are added up. Default: 100 ms.
    pub beat: Duration,
    /// How often a node says that it lives; one that has not for five beats
    /// is not counted any more. Default: 1 s.
    pub node_beat: Duration,
    /// How long a refusal of the remote is remembered at the most, and so how
    /// late this node notices what others gave back. Default: 250 ms; zero
    /// remembers none.
    pub refusals_for: Duration,
    /// Keys with slices, eventual keys, keys of an outage and keys that a
    /// region waits for: at most about so many each. Default: 100,000, of about
    /// half a kilobyte.
    pub keys_max: usize,
    /// Bytes for the last known state of exact limits. Default: 16 MiB, about
    /// 400,000 keys.
    pub known_bytes: usize,
    /// How many nodes there are, until the remote has said. Default: 1.
    pub nodes_expected: usize,
    /// For jitter and the node's identity; drawn at random when not given.
    pub seed: Option<u64>,
}

impl Default for SharedSettings {
    fn default() -> Self {
        SharedSettings {
            within: Duration::from_millis(10),
            background_within: Duration::from_millis(100),
            beat: Duration::from_millis(100),
            node_beat: Duration::from_secs(1),
            refusals_for: Duration::from_millis(250),
            keys_max: 100_000,
            known_bytes: 16 * 1024 * 1024,
            nodes_expected: 1,
            seed: None,
        }
    }
}

/// Counters that many processes share.
///
/// [`SharedStore::run`] has to be running: it renews leases, adds up counts,
/// and finds out when a remote that failed is back.
#[derive(Debug)]
pub struct SharedStore<R> {
    remote: R,
    gates: Gates,
    settings: SharedSettings,
    nodes: Nodes,
    over_limit: OverLimit,
    leases: Leases,
    tallies: Tallies,
    outage: Outage,
    regions: Vec<Region<R>>,
    counters: Counters,
    /// From when on debts of an outage are charged at the remote.
    settle_from: AtomicU64,
}

impl<R: Remote> SharedStore<R> {
    /// A store over this remote.
    ///
    /// # Errors
    /// When the settings leave too few bytes to remember anything.
    pub fn new(remote: R, settings: SharedSettings) -> Result<Self, ConfigError> {
        let mut draw = Draw::new(settings.seed);
        let refusals_for = Nanos::from(settings.refusals_for);
        Ok(SharedStore {
            remote,
            gates: Gates::new("this region", Draw::new(Some(draw.next()))),
            nodes: Nodes::new(NodeId(draw.next()), settings.nodes_expected),
            over_limit: OverLimit::new(refusals_for),
            leases: Leases::new(settings.keys_max, refusals_for),
            tallies: Tallies::new(settings.keys_max),
            outage: Outage::new(settings.keys_max, settings.known_bytes, settings.seed)?,
            regions: Vec::new(),
            counters: Counters::default(),
            settle_from: AtomicU64::new(0),
            settings,
        })
    }

    /// The same store, which also tells another region what it counts for
    /// eventual limits. Regions are told apart by their name in logs.
    #[must_use]
    pub fn with_region(mut self, name: impl Into<String>, remote: R) -> Self {
        let seed = self.settings.seed.map(|seed| seed.wrapping_add(self.regions.len() as u64 + 1));
        let gate = Gate::new(name.into(), Draw::new(seed));
        self.regions.push(Region::new(remote, gate, self.settings.keys_max));
        self
    }

    /// The remote behind the store.
    pub const fn remote(&self) -> &R {
        &self.remote
    }

    /// Whether the remote, or a part of it, is not asked at present, because it
    /// does not answer.
    pub fn is_degraded(&self) -> bool {
        self.gates.any_shut()
    }

    /// What the store did since it began, and holds now; looks at every key.
    pub fn metrics(&self, now: Timestamp) -> Metrics {
        let read = self.counters.read();
        Metrics {
            degraded: self.gates.any_shut(),
            degraded_for: read.degraded_for + Duration::from(self.gates.shut_for(now)),
            leases: self.leases.counts(),
            tallies: self.tallies.len(),
            owing: self.outage.owing(),
            pending: region::pending(&self.regions),
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
            Verb::Check if self.decide_here(batch, answers) => Ok(()),
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
            self.over_limit.forget(check.key.fingerprint);
            self.outage.give_back(check, batch.now);
        }
        self.remote.give_back(batch);
    }
}
