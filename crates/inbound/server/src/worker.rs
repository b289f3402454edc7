//! A worker: a thread with a runtime of its own, and the connections that live there.

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

use super::connection::Serve;
use super::contained::report;
use super::life::{Life, Order, Watch};
use super::listener::Accepted;

/// Connections on their way to a worker. It takes them as fast as it spins, so
/// a full queue means that the worker is stuck.
const QUEUE_MAX: usize = 1_024;

/// How often a worker looks at its connections' timeouts.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A connection on its way to a worker.
pub(super) struct Arrival {
    pub(super) accepted: Accepted,
    pub(super) life: Arc<Life>,
    pub(super) door: Arc<dyn Serve>,
}

/// How long connections may take to end; `None` while the server runs.
pub(super) type Stop = Option<Duration>;

/// A worker, as the acceptor sees it.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) arrivals: mpsc::Sender<Arrival>,
    /// Connections that live there, and those on their way.
    pub(super) connections: Arc<AtomicUsize>,
}

/// What is left of a worker when the server stops.
#[derive(Debug)]
pub(super) struct Ending {
    /// How many connections it had to cut.
    pub(super) cut: oneshot::Receiver<usize>,
    pub(super) thread: JoinHandle<()>,
}

impl Worker {
    pub(super) fn start(index: usize, stop: watch::Receiver<Stop>) -> io::Result<(Self, Ending)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (arrivals, queue) = mpsc::channel(QUEUE_MAX);
        let (tell, cut) = oneshot::channel();
        let thread = thread::Builder::new().name(format!("tidegate-{index}")).spawn(move || {
            let cut = runtime.block_on(Residents::default().run(queue, stop));
            // Nobody listens when the server was dropped instead of stopped.
            let _ = tell.send(cut);
        })?;
        let worker = Worker { arrivals, connections: Arc::default() };
        Ok((worker, Ending { cut, thread }))
    }
}

/// The connections that live on one worker.
#[derive(Default)]
struct Residents {
    tasks: JoinSet<()>,
    watches: HashMap<Id, Watch>,
    spread: RandomState,
    arrived: u64,
}

impl Residents {
    async fn run(
        mut self,
        mut queue: mpsc::Receiver<Arrival>,
        mut stop: watch::Receiver<Stop>,
    ) -> usize {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(arrival) = queue.recv() => self.take_in(arrival),
                Some(ended) = self.tasks.join_next_with_id() => self.bury(ended),
                _ = looks.tick(), if !self.watches.is_empty() => self.look(Instant::now()),
                // A dropped server stops as well, without grace.
                told = stop.wait_for(Option::is_some) => {
                    let grace = told.ok().and_then(|stop| *stop).unwrap_or(Duration::ZERO);
                    while let Ok(arrival) = queue.try_recv() {
                        self.take_in(arrival);
                    }
                    return self.drain(grace).await;
                }
            }
        }
    }

    fn take_in(&mut self, Arrival { accepted, life, door }: Arrival) {
        let limits = *door.limits();
        let task = self.tasks.spawn(door.serve(accepted, Arc::clone(&life)));
        let watch = Watch::new(life, limits, Instant::now(), self.spread());
        self.watches.insert(task.id(), watch);
    }

    /// A number from 0 to 1 that differs for each connection and each process.
    fn spread(&mut self) -> f64 {
        self.arrived = self.arrived.wrapping_add(1);
        let hash = self.spread.hash_one(self.arrived);
        f64::from(u16::try_from(hash >> 48).unwrap_or(0)) / f64::from(u16::MAX)
    }

    fn bury(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let watch = self.watches.remove(&id);
        if let Err(error) = ended
            && let Some(watch) = watch
            && let Ok(payload) = error.try_into_panic()
        {
            report(watch.life(), &*payload);
        }
    }

    fn look(&mut self, now: Instant) {
        for watch in self.watches.values_mut() {
            watch.look(now);
        }
    }

    fn order_all(&self, order: Order) {
        for watch in self.watches.values() {
            watch.life().give(order);
        }
    }

    /// Lets connections finish for as long as `grace`, then cuts them. Says how many.
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
                    Some(ended) => self.bury(ended),
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
