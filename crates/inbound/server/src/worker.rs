//! A worker: a thread with its own runtime, and the connections that it serves.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
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

/// New connections that a worker has not started yet. It takes all of them in each loop, so a full queue means that the
/// worker is blocked.
const QUEUE_MAX: usize = 1_024;

/// How often a worker checks the timeouts of its connections.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// An accepted connection, sent to its worker.
pub(super) struct NewConnection {
    pub(super) accepted: AcceptedSocket,
    pub(super) state: Arc<ConnectionState>,
    pub(super) door: Arc<dyn ConnectionHandler>,
}

/// How long connections may take to finish; `None` while the server runs.
pub(super) type StopGrace = Option<Duration>;

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
        stop: watch::Receiver<StopGrace>,
    ) -> io::Result<(Self, WorkerExit)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (new_connections, queue) = mpsc::channel(QUEUE_MAX);
        let (result, cut) = oneshot::channel();
        let thread = thread::Builder::new().name(format!("tidegate-{index}")).spawn(move || {
            let cut = runtime.block_on(Connections::default().run(queue, stop));
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
}

impl Connections {
    async fn run(
        mut self,
        mut queue: mpsc::Receiver<NewConnection>,
        mut stop: watch::Receiver<StopGrace>,
    ) -> usize {
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(connection) = queue.recv() => self.start(connection),
                Some(ended) = self.tasks.join_next_with_id() => self.remove_finished(ended),
                _ = checks.tick(), if !self.watches.is_empty() => self.check(Instant::now()),
                // A dropped server stops too, without grace.
                grace = stop.wait_for(Option::is_some) => {
                    let grace = grace.ok().and_then(|grace| *grace).unwrap_or(Duration::ZERO);
                    while let Ok(connection) = queue.try_recv() {
                        self.start(connection);
                    }
                    return self.drain(grace).await;
                }
            }
        }
    }

    fn start(&mut self, NewConnection { accepted, state, door }: NewConnection) {
        let limits = *door.limits();
        let task = self.tasks.spawn(door.serve(accepted, Arc::clone(&state)));
        let watch = TimeoutWatch::new(state, limits, Instant::now(), self.jitter());
        self.watches.insert(task.id(), watch);
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
        for watch in self.watches.values_mut() {
            watch.check(now);
        }
    }

    fn order_all(&self, order: Order) {
        for watch in self.watches.values() {
            watch.state().set_order(order);
        }
    }

    /// Lets connections finish for up to `grace`, then cuts the rest and returns their number.
    async fn drain(mut self, grace: Duration) -> usize {
        self.order_all(Order::Finish);
        let end = Instant::now().checked_add(grace);
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
                    None => return 0,
                },
                () = over => break,
            }
        }
        let cut = self.tasks.len();
        self.order_all(Order::Cut);
        self.tasks.shutdown().await;
        cut
    }
}
