//! Connections that are kept for the next request.
//!
//! Each worker has a pool of its own: a connection's task runs where it was opened, and a
//! request that used another worker's connection would wake another thread twice. Pools are
//! numbered, and each thread takes a number when it first asks; with more threads than pools
//! some share one, which is right and only slower.
//!
//! Of idle HTTP/1.1 connections the one used last is taken: those that are not needed grow old
//! and are closed. HTTP/2 connections are shared by requests up to a number each.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::host::Host;
use crate::body::RequestBody;
use crate::settings::PoolSettings;

/// Pools of each host. More workers than this share.
const POOLS: usize = 64;

/// How often old connections are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Threads that have asked so far, in all gateways.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of this thread's pool.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of this thread's pool.
pub(super) fn number() -> usize {
    NUMBER.with(|cell| {
        cell.get().unwrap_or_else(|| {
            let number = THREADS.fetch_add(1, Ordering::Relaxed) % POOLS;
            cell.set(Some(number));
            number
        })
    })
}

/// The pools of one host, one for each worker.
#[derive(Debug)]
pub(super) struct Pools {
    pools: Box<[Pool]>,
    settings: PoolSettings,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    kept: Mutex<Kept>,
    /// Held while a connection that will be shared is opened, so that a burst opens one.
    pub(super) opening: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Kept {
    idle: Vec<Idle>,
    shared: Vec<Shared>,
}

#[derive(Debug)]
struct Idle {
    sender: http1::SendRequest<RequestBody>,
    since: Instant,
}

/// An HTTP/2 connection and how many requests are on it.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) sender: http2::SendRequest<RequestBody>,
    pub(super) requests: Arc<AtomicUsize>,
    used: Arc<Mutex<Instant>>,
}

impl Pools {
    pub(super) fn new(settings: PoolSettings) -> Self {
        Pools { pools: (0..POOLS).map(|_| Pool::default()).collect(), settings }
    }

    pub(super) fn pool(&self, number: usize) -> Option<&Pool> {
        self.pools.get(number)
    }

    /// Closes connections that nobody has used for a while.
    pub(super) fn sweep(&self, now: Instant) {
        for pool in &self.pools {
            let mut old = Vec::new();
            let mut kept = pool.kept.lock();
            let fresh =
                |since: Instant| now.saturating_duration_since(since) < self.settings.idle_timeout;
            old.extend(
                kept.idle.extract_if(.., |idle| idle.sender.is_closed() || !fresh(idle.since)),
            );
            kept.shared.retain(|shared| {
                let unused = shared.requests.load(Ordering::Relaxed) == 0;
                !shared.sender.is_closed() && (!unused || fresh(*shared.used.lock()))
            });
            // Closed after the lock.
            drop(kept);
            drop(old);
        }
    }

    /// An idle connection of HTTP/1.1.
    pub(super) fn take_idle(&self, number: usize) -> Option<http1::SendRequest<RequestBody>> {
        let mut kept = self.pool(number)?.kept.lock();
        // Each look takes one away, so this ends.
        while let Some(Idle { sender, .. }) = kept.idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    pub(super) fn keep_idle(&self, number: usize, sender: http1::SendRequest<RequestBody>) {
        if sender.is_closed() {
            return;
        }
        let Some(pool) = self.pool(number) else { return };
        let mut kept = pool.kept.lock();
        if kept.idle.len() < self.settings.idle_max {
            kept.idle.push(Idle { sender, since: Instant::now() });
        }
    }

    /// A connection of HTTP/2 with room, or the least busy when no more may be opened.
    pub(super) fn share(&self, number: usize) -> Option<Shared> {
        let mut kept = self.pool(number)?.kept.lock();
        kept.shared.retain(|shared| !shared.sender.is_closed());
        let busy = |shared: &Shared| shared.requests.load(Ordering::Relaxed);
        let full = kept.shared.len() >= self.settings.shared_max;
        let least = kept.shared.iter().min_by_key(|shared| busy(shared))?;
        (full || busy(least) < self.settings.streams_max).then(|| {
            *least.used.lock() = Instant::now();
            least.clone()
        })
    }

    pub(super) fn keep_shared(
        &self,
        number: usize,
        sender: http2::SendRequest<RequestBody>,
    ) -> Shared {
        let used = Arc::new(Mutex::new(Instant::now()));
        let shared = Shared { sender, requests: Arc::default(), used };
        if let Some(pool) = self.pool(number) {
            pool.kept.lock().shared.push(shared.clone());
        }
        shared
    }
}

/// Closes old connections of all hosts, until it is dropped.
pub(super) async fn sweep_all(hosts: &[Arc<Host>], idle_timeout: Duration) {
    let mut looks = interval(SWEEP_EVERY.min(idle_timeout).max(Duration::from_millis(10)));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = looks.tick().await;
        for host in hosts {
            host.sweep(now);
        }
    }
}
