//! Pools of connections to one host.
//!
//! Each worker has its own pool: the task of a connection runs on the thread that opened it, so a request on a
//! connection of another worker would wake that thread twice. Each thread takes the next pool index at its first
//! request; if there are more threads than pools, some share one, which is correct but slower.
//!
//! Idle HTTP/1.1 connections are reused last in, first out, so that surplus ones age and are closed. HTTP/2 connections
//! are shared by requests, up to a maximum each.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::http2;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::handover::Http1Connection;
use super::host::Host;
use crate::body::RequestBody;
use crate::settings::PoolSettings;

/// The number of pools per host.
const POOLS: usize = 64;

/// How often idle connections are checked.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The number of threads with a pool index, in all gateways of the process.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The index of this thread's pool.
    static POOL_INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The index of this thread's pool.
pub(super) fn pool_index() -> usize {
    POOL_INDEX.with(|cell| {
        cell.get().unwrap_or_else(|| {
            let pool_index = THREADS.fetch_add(1, Ordering::Relaxed) % POOLS;
            cell.set(Some(pool_index));
            pool_index
        })
    })
}

/// The pools of one host, one per worker.
#[derive(Debug)]
pub(super) struct Pools {
    pools: Box<[Pool]>,
    settings: PoolSettings,
}

/// The connections of one worker to one host.
#[derive(Debug, Default)]
pub(super) struct Pool {
    connections: Mutex<PooledConnections>,
    /// Held while an HTTP/2 connection is opened, so that a burst of requests opens one.
    pub(super) opening: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct PooledConnections {
    idle: Vec<IdleConnection>,
    shared: Vec<SharedConnection>,
}

#[derive(Debug)]
struct IdleConnection {
    connection: Http1Connection,
    since: Instant,
}

/// An HTTP/2 connection, and the number of requests on it.
#[derive(Clone, Debug)]
pub(super) struct SharedConnection {
    pub(super) sender: http2::SendRequest<RequestBody>,
    pub(super) requests: Arc<AtomicUsize>,
    used: Arc<Mutex<Instant>>,
}

impl Pools {
    pub(super) fn new(settings: PoolSettings) -> Self {
        Pools { pools: (0..POOLS).map(|_| Pool::default()).collect(), settings }
    }

    pub(super) fn pool(&self, pool_index: usize) -> Option<&Pool> {
        self.pools.get(pool_index)
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn sweep(&self, now: Instant) {
        for pool in &self.pools {
            let mut old = Vec::new();
            let mut connections = pool.connections.lock();
            let fresh =
                |since: Instant| now.saturating_duration_since(since) < self.settings.idle_timeout;
            old.extend(
                connections.idle.extract_if(.., |idle| {
                    idle.connection.sender.is_closed() || !fresh(idle.since)
                }),
            );
            connections.shared.retain(|shared| {
                let unused = shared.requests.load(Ordering::Relaxed) == 0;
                !shared.sender.is_closed() && (!unused || fresh(*shared.used.lock()))
            });
            // The lock is released before connections are closed.
            drop(connections);
            drop(old);
        }
    }

    /// Takes an idle HTTP/1.1 connection.
    pub(super) fn take_idle(&self, pool_index: usize) -> Option<Http1Connection> {
        let mut connections = self.pool(pool_index)?.connections.lock();
        while let Some(IdleConnection { connection, .. }) = connections.idle.pop() {
            if !connection.sender.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    /// Returns an HTTP/1.1 connection to the pool, unless that is full.
    pub(super) fn put_idle(&self, pool_index: usize, connection: Http1Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let Some(pool) = self.pool(pool_index) else { return };
        let mut connections = pool.connections.lock();
        if connections.idle.len() < self.settings.idle_max {
            connections.idle.push(IdleConnection { connection, since: Instant::now() });
        }
    }

    /// Takes the HTTP/2 connection with the fewest requests. `None` if that is full and another may be opened.
    pub(super) fn take_shared(&self, pool_index: usize) -> Option<SharedConnection> {
        let mut connections = self.pool(pool_index)?.connections.lock();
        connections.shared.retain(|shared| !shared.sender.is_closed());
        let busy = |shared: &SharedConnection| shared.requests.load(Ordering::Relaxed);
        let is_last = connections.shared.len() >= self.settings.shared_max;
        let least = connections.shared.iter().min_by_key(|shared| busy(shared))?;
        (is_last || busy(least) < self.settings.streams_max).then(|| {
            *least.used.lock() = Instant::now();
            least.clone()
        })
    }

    /// Adds a new HTTP/2 connection.
    pub(super) fn add_shared(
        &self,
        pool_index: usize,
        sender: http2::SendRequest<RequestBody>,
    ) -> SharedConnection {
        let used = Arc::new(Mutex::new(Instant::now()));
        let shared = SharedConnection { sender, requests: Arc::default(), used };
        if let Some(pool) = self.pool(pool_index) {
            pool.connections.lock().shared.push(shared.clone());
        }
        shared
    }
}

/// Closes idle connections of all hosts, until it is dropped.
pub(super) async fn sweep_all(hosts: &[Arc<Host>], idle_timeout: Duration) {
    let mut sweeps = interval(SWEEP_EVERY.min(idle_timeout).max(Duration::from_millis(10)));
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = sweeps.tick().await;
        for host in hosts {
            host.sweep(now);
        }
    }
}
