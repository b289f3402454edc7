//! The state of a gateway that outlives its documents.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_admission::{HoldTime, WaitingRoom};
use tidegate_engine::Engine;
use tidegate_metrics::Meter;
use tidegate_overload::{Protection, SteadyClock};
use tokio::sync::watch;
use tokio::time::Instant;

use super::access_log::AccessLog;
use super::active_document::ActiveDocument;
use super::queue::RequestQueue;
use super::refusal_samples::RefusalSamples;
use super::request_ids::RequestIds;
use super::service::ConnectionObserver;
use super::tally::Tally;

/// Limiters, waiting requests, logs and counters: everything that a reload leaves alone.
pub(super) struct GatewayState<S, C> {
    pub(super) engine: Arc<Engine<S, C>>,
    pub(super) waiting: WaitingRoom,
    pub(super) queue: Arc<dyn RequestQueue>,
    pub(super) protection: Option<Arc<Protection<SteadyClock>>>,
    pub(super) log: Option<AccessLog>,
    pub(super) samples: Option<RefusalSamples>,
    pub(super) request_ids: RequestIds,
    pub(super) meter: Arc<Meter>,
    pub(super) counters: Counters,
    pub(super) hold_time: HoldTime,
    /// Is told about clients that are connected directly.
    pub(super) connections: Option<Arc<dyn ConnectionObserver>>,
}

/// Counters of all routes together.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) in_flight: AtomicU64,
    pub(super) tunnels: AtomicU64,
    pub(super) broken: AtomicU64,
    /// The outcomes of queued requests.
    pub(super) kept: Tally,
    /// When a lack of resources was logged last.
    lack_logged: Mutex<Option<Instant>>,
}

/// A lack of resources is logged at most this often.
const LOG_LACK_EVERY: Duration = Duration::from_secs(10);

impl Counters {
    /// Logs that this machine cannot open a connection to an upstream.
    pub(super) fn log_lack(&self, error: &(dyn Error + 'static), now: Instant) {
        let mut logged = self.lack_logged.lock();
        if logged.is_none_or(|at| now.saturating_duration_since(at) >= LOG_LACK_EVERY) {
            *logged = Some(now);
            tracing::error!(
                error,
                "no file descriptor, port or memory is left for connections to upstreams: requests get 503; raise the \
                 limit on open files (LimitNOFILE, ulimit -n) or lower gateway.connections_max"
            );
        }
    }
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
