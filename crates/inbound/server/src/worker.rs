//! A worker: a thread with its own runtime, and the connections that it serves.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::connection::ConnectionHandler;
use super::connection_state::{ConnectionState, Order, TimeoutWatch};
use super::listener::AcceptedSocket;
use super::panic_guard::report_panic;
use super::settings::ConnectionLimits;

/// New connections that a worker has not started yet. When the queues of all workers are full, further connections wait
/// in the kernel's queue.
const QUEUE_MAX: usize = 128;

/// How many connections are looked at when one has to be closed for a new one.
const EVICT_CANDIDATES: usize = 64;

/// A connection over HTTP/1.1 that was used this recently is not closed as soon as the server stops: its client may be
/// sending a request already. It gets this long to do so, and is closed with the response.
const RECENT: Duration = Duration::from_secs(1);

/// How often a worker checks the timeouts of its connections.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// An accepted connection, sent to its worker.
pub(super) struct NewConnection {
    pub(super) accepted: AcceptedSocket,
    pub(super) state: Arc<ConnectionState>,
    pub(super) door: Arc<dyn ConnectionHandler>,
    /// Whether the endpoint has its maximum of connections: this one replaces another, or is closed.
    pub(super) is_surplus: bool,
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// It serves, and asks HTTP/1.1 clients to close their connections.
    Announcing,
    /// The same, and it accepts no connections any more.
    Closing,
    /// It stops; connections may take this long to finish.
    Stopping(Duration),
}

impl Phase {
    /// Whether no connections are accepted any more.
    pub(super) const fn is_closing(&self) -> bool {
        matches!(self, Phase::Closing | Phase::Stopping(_))
    }

    pub(super) const fn is_stopping(&self) -> bool {
        matches!(self, Phase::Stopping(_))
    }
}

/// The acceptor's handle of a worker.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) new_connections: mpsc::Sender<NewConnection>,
    /// Connections on the worker or in its queue.
    pub(super) connections: Arc<AtomicUsize>,
}

/// Joins a worker when the server stops.
#[derive(Debug)]
pub(super) struct WorkerExit {
    /// The number of connections that it had to cut.
    pub(super) cut: oneshot::Receiver<usize>,
    pub(super) thread: JoinHandle<()>,
}

impl Worker {
    pub(super) fn start(
        index: usize,
        phase: watch::Receiver<Phase>,
    ) -> io::Result<(Self, WorkerExit)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (new_connections, queue) = mpsc::channel(QUEUE_MAX);
        let (result, cut) = oneshot::channel();
        let thread = thread::Builder::new().name(format!("tidegate-{index}")).spawn(move || {
            let cut = runtime.block_on(Connections::default().run(queue, phase));
            // The receiver is gone if the server was dropped instead of stopped.
            let _ = result.send(cut);
        })?;
        let worker = Worker { new_connections, connections: Arc::default() };
        Ok((worker, WorkerExit { cut, thread }))
    }
}

/// The connections of one worker.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    watches: HashMap<Id, TimeoutWatch>,
    jitter: RandomState,
    started: u64,
    /// Bytes that all connections held at the last check.
    held: u64,
    /// Whether clients are asked to close their connections.
    announces: bool,
}

impl Connections {
    async fn run(
        mut self,
        mut queue: mpsc::Receiver<NewConnection>,
        mut phase: watch::Receiver<Phase>,
    ) -> usize {
        let mut announced = phase.clone();
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(connection) = queue.recv() => self.start(connection),
                Some(ended) = self.tasks.join_next_with_id() => self.remove_finished(ended),
                _ = checks.tick(), if !self.watches.is_empty() => self.check(Instant::now()),
                _ = announced.wait_for(|phase| *phase != Phase::Serving), if !self.announces => {
                    self.announces = true;
                    self.order_all(Order::Announce);
                }
                stopping = phase.wait_for(Phase::is_stopping) => {
                    // A dropped server stops too, without grace.
                    let grace = match stopping.as_deref() {
                        Ok(Phase::Stopping(grace)) => *grace,
                        Ok(_) | Err(_) => Duration::ZERO,
                    };
                    while let Ok(connection) = queue.try_recv() {
                        self.start(connection);
                    }
                    return self.drain(grace).await;
                }
            }
        }
    }

    fn start(&mut self, NewConnection { accepted, state, door, is_surplus }: NewConnection) {
        let limits = *door.limits();
        if is_surplus {
            if !self.evict(state.door(), &limits) {
                state.stats().refused.fetch_add(1, Relaxed);
                return;
            }
            state.stats().accepted.fetch_add(1, Relaxed);
        }
        if self.announces {
            state.set_order(Order::Announce);
        }
        let task = self.tasks.spawn(door.serve(accepted, Arc::clone(&state)));
        let watch = TimeoutWatch::new(state, limits, Instant::now(), self.jitter())
            .with_pressure(door.pressure().cloned());
        self.watches.insert(task.id(), watch);
    }

    /// Closes the connection of a door whose client has been silent for longest. Returns false if there is none.
    fn evict(&mut self, door: &'static str, limits: &ConnectionLimits) -> bool {
        let Some(quiet_min) = limits.evict_after else { return false };
        let now = Instant::now();
        // A few of thousands are enough, and in a flood each new connection causes a search.
        let mut candidates: Vec<&mut TimeoutWatch> = self
            .watches
            .values_mut()
            .filter(|watch| watch.state().door() == door)
            .take(EVICT_CANDIDATES)
            .collect();
        candidates.sort_by_key(|watch| watch.quiet_since());
        candidates.into_iter().any(|watch| watch.evict(quiet_min, now))
    }

    /// A number from 0 to 1 that differs by connection and process.
    fn jitter(&mut self) -> f64 {
        self.started = self.started.wrapping_add(1);
        let hash = self.jitter.hash_one(self.started);
        f64::from(u16::try_from(hash >> 48).unwrap_or(0)) / f64::from(u16::MAX)
    }

    fn remove_finished(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let watch = self.watches.remove(&id);
        if let Err(error) = ended
            && let Some(watch) = watch
            && let Ok(payload) = error.try_into_panic()
        {
            report_panic(watch.state(), &*payload);
        }
    }

    fn check(&mut self, now: Instant) {
        let before = self.held;
        self.held = self.watches.values_mut().map(|watch| watch.check(now, before)).sum();
    }

    fn order_all(&self, order: Order) {
        for watch in self.watches.values() {
            watch.state().set_order(order);
        }
    }

    /// Lets connections finish for up to `grace`, then cuts the rest and returns their number.
    async fn drain(mut self, grace: Duration) -> usize {
        let now = Instant::now();
        let recent = RECENT.min(grace);
        let finish = |watch: &TimeoutWatch| watch.finish_or_announce(recent, now);
        if self.watches.values().filter(|watch| finish(watch)).count() > 0
            && self.is_empty_by(now.checked_add(recent)).await
        {
            return 0;
        }
        self.order_all(Order::Finish);
        if self.is_empty_by(now.checked_add(grace)).await {
            return 0;
        }
        let cut = self.tasks.len();
        self.order_all(Order::Cut);
        self.tasks.shutdown().await;
        cut
    }

    /// Waits for the end of all connections. Returns false if there are some left by `end`.
    async fn is_empty_by(&mut self, end: Option<Instant>) -> bool {
        loop {
            let over = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                ended = self.tasks.join_next_with_id() => match ended {
                    Some(ended) => self.remove_finished(ended),
                    None => return true,
                },
                () = over => return false,
            }
        }
    }
}
