//! Carries parcels to the server: those of concurrent requests in few calls.
//!
//! One thread with a runtime of its own owns all connections, so callers may
//! come from any runtime and from many, and their parcels meet in one place:
//! the more callers, the larger the calls, and the less each costs the server.
//! A connection for each runtime would save a lone caller the way to that thread
//! (20 of 70 microseconds as measured), and cost the server more connections and
//! smaller calls. A parcel that comes while nothing is out goes at once. While calls are out,
//! parcels gather and go together.
//!
//! Whatever happens to a call, each parcel gets an answer by its deadline. A
//! call that may have run is never sent again; one that the server refused
//! to run (unknown script, slot elsewhere) is. What a parcel says is not known
//! here, and neither is what to do when the store fails.

mod job;
mod meter;
mod node;
mod routes;
mod shipment;
mod upkeep;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot, watch};

use crate::counter_store::{FailureKind, StoreError};
use crate::redis::failure::failure;
use crate::redis::link::LinkState;
use crate::redis::link::dial::Dialer;
use crate::redis::parcel::{Parcel, Receipt};
use crate::redis::settings::{RedisSettings, RedisSettingsError};
use job::Note;
use meter::Meter;
pub use meter::{CourierFigures, Histogram, REDIS_METRICS};
use worker::{Published, Worker};

/// Carries parcels to the server. Its thread ends with it.
#[derive(Debug)]
pub(crate) struct Courier {
    inbox: mpsc::Sender<Note>,
    /// Callers that wait for an answer.
    open: Arc<AtomicUsize>,
    open_max: usize,
    meter: Arc<Meter>,
    published: watch::Receiver<Published>,
    instant: Arc<Mutex<Vec<u8>>>,
}

impl Courier {
    /// Starts the thread, which connects and goes on trying when it cannot.
    /// `script` is the text that every call runs.
    ///
    /// # Errors
    /// When the settings make no sense, or a file that they name cannot be read.
    pub(crate) fn start(settings: RedisSettings, script: &str) -> Result<Self, RedisSettingsError> {
        let settings = Arc::new(settings);
        let dialer = Dialer::new(Arc::clone(&settings))?;
        let (inbox, notes) = mpsc::channel(settings.queue);
        let (publish, published) = watch::channel(Published::at(now()));
        let meter = Arc::new(Meter::default());
        let instant = Arc::new(Mutex::new(Vec::new()));
        let open = Arc::new(AtomicUsize::new(0));
        let (shared_meter, shared_instant) = (Arc::clone(&meter), Arc::clone(&instant));
        let shared_open = Arc::clone(&open);
        let script: Arc<str> = script.into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| RedisSettingsError(error.to_string()))?;
        thread::Builder::new()
            .name("tidegate-courier".to_owned())
            .spawn(move || {
                let (meter, instant, open) = (shared_meter, shared_instant, shared_open);
                let worker = Worker::new(dialer, script, notes, publish, meter, instant, open);
                runtime.block_on(worker.run());
            })
            .map_err(|error| RedisSettingsError(format!("no thread can be started: {error}")))?;
        let open_max = settings.queue;
        Ok(Courier { inbox, open, open_max, meter, published, instant })
    }

    /// Sends a parcel and waits for what the script answers, at most this long.
    ///
    /// # Errors
    /// When there is no answer in time, the server fails, or too many wait already.
    pub(crate) async fn send(
        &self,
        parcel: Parcel,
        within: Duration,
    ) -> Result<Receipt, StoreError> {
        let (answer, answered) = oneshot::channel();
        let until = deadline(within);
        self.carry(Note::Parcel { parcel, until, within, answer }, answered).await
    }

    /// Sends a parcel whose answer nobody waits for. One that cannot be sent
    /// within this long is lost.
    pub(crate) fn post(&self, parcel: Parcel, within: Duration) {
        let note = Note::Posted { parcel, until: deadline(within), within };
        if self.inbox.try_send(note).is_err() {
            self.meter.failed(FailureKind::Overloaded);
        }
    }

    /// Sends commands of the server's own, as one pipeline, and waits for all
    /// answers. In a cluster each goes where its first key is.
    ///
    /// # Errors
    /// As [`Courier::send`]; also when the server answers one of them with an
    /// error, though others may have run.
    pub(crate) async fn commands(
        &self,
        commands: Vec<Cmd>,
        within: Duration,
    ) -> Result<Vec<Value>, StoreError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        let until = deadline(within);
        self.carry(Note::Commands { commands, until, within, answer }, answered).await
    }

    async fn carry<T>(
        &self,
        note: Note,
        answered: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let open = Open::enter(&self.open);
        if open.others >= self.open_max {
            return Err(self.overloaded());
        }
        self.inbox.try_send(note).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => self.overloaded(),
            mpsc::error::TrySendError::Closed(_) => gone(),
        })?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    fn overloaded(&self) -> StoreError {
        self.meter.failed(FailureKind::Overloaded);
        failure(FailureKind::Overloaded, format!("{} checks wait for it already", self.open_max))
    }

    /// The number of the cluster's node that has a slot, as far as is known.
    pub(crate) fn node_of(&self, slot: u16) -> Option<u16> {
        let node = self.published.borrow().map.as_ref()?.node_of(slot)?;
        u16::try_from(node).ok()
    }

    /// How the connections are.
    pub(crate) fn state(&self) -> LinkState {
        self.published.borrow().at_age(now())
    }

    /// Waits until every server can be asked. Waits forever if none ever can.
    pub(crate) async fn connected(&self) {
        let mut published = self.published.clone();
        let is_connected = |published: &Published| published.state.is_connected();
        // An error means that the thread is gone, and then there is nothing to wait for.
        let _ = published.wait_for(is_connected).await;
    }

    /// What was done so far.
    pub(crate) fn figures(&self) -> CourierFigures {
        let state = self.published.borrow().state.clone();
        self.meter.figures(self.open.load(Ordering::Relaxed), &state)
    }

    /// What every call gets as its first argument: empty lets the script read
    /// the server's clock. For tests that turn the clock by hand.
    pub(crate) fn set_instant(&self, argument: &[u8]) {
        argument.clone_into(&mut self.instant.lock());
    }
}

/// Counts a caller for as long as it waits, also when it goes away.
struct Open<'a> {
    count: &'a AtomicUsize,
    others: usize,
}

impl<'a> Open<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        Open { others: count.fetch_add(1, Ordering::Relaxed), count }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Longer than anybody waits; keeps instants far from where they overflow.
const WITHIN_MAX: Duration = Duration::from_secs(3_600);

fn deadline(within: Duration) -> Instant {
    now() + within.min(WITHIN_MAX)
}

/// Real time, also for callers whose own clock is turned by hand: the server goes by it.
#[expect(clippy::disallowed_methods, reason = "deadlines of calls to a real server")]
fn now() -> Instant {
    Instant::now()
}

fn gone() -> StoreError {
    failure(FailureKind::Other, "the thread that talks to it has ended")
}

#[cfg(test)]
#[path = "../../tests/redis_link/mod.rs"]
mod tests;
