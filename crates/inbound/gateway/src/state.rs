//! The state of a gateway that outlives its documents.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_admission::{Lines, Turns};
use tidegate_engine::Engine;
use tidegate_metrics::Meter;
use tidegate_overload::{Protection, SteadyClock};
use tokio::sync::watch;

use super::access_log::AccessLog;
use super::active_document::ActiveDocument;
use super::held::{HeldInMemory, HeldRequests};
use super::refusal_samples::RefusalSamples;

/// Limiters, waiting requests, logs and counters: everything that a reload leaves alone.
pub(super) struct GatewayState<S, C> {
    pub(super) engine: Arc<Engine<S, C>>,
    pub(super) lines: Arc<Lines>,
    pub(super) turns: Arc<Turns>,
    pub(super) held: Arc<dyn HeldRequests>,
    /// `held`, if the gateway created it and therefore resizes it.
    pub(super) room: Option<Arc<HeldInMemory>>,
    pub(super) protection: Option<Arc<Protection<SteadyClock>>>,
    pub(super) log: Option<AccessLog>,
    pub(super) samples: Option<RefusalSamples>,
    pub(super) meter: Arc<Meter>,
    pub(super) counters: Counters,
}

/// Counters of all routes together.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) in_flight: AtomicU64,
    pub(super) tunnels: AtomicU64,
    pub(super) broken: AtomicU64,
    /// How long slots are held, in nanoseconds, as an exponential moving average.
    pub(super) hold_nanos: AtomicU64,
    /// Incremented for each random number that is derived from it.
    pub(super) jitter_seed: AtomicU64,
}

/// The document in use, and its replacement.
pub(super) struct CurrentDocument<S, C> {
    pub(super) active: ArcSwap<ActiveDocument<S, C>>,
    /// Notified after each reload.
    pub(super) changes: watch::Sender<()>,
    /// Serializes reloads.
    pub(super) reloading: Mutex<()>,
}

impl<S, C> CurrentDocument<S, C> {
    pub(super) fn new(active: ActiveDocument<S, C>) -> Self {
        CurrentDocument {
            active: ArcSwap::from_pointee(active),
            changes: watch::Sender::new(()),
            reloading: Mutex::default(),
        }
    }

    pub(super) fn replace(&self, active: ActiveDocument<S, C>) {
        self.active.store(Arc::new(active));
        self.changes.send_replace(());
    }
}
