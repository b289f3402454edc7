//! Counters of the connections at one address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The counters of one address.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) accepted: AtomicU64,
    pub(super) open: AtomicUsize,
    pub(super) refused: AtomicU64,
    pub(super) accept_errors: AtomicU64,
    pub(super) handshake_failures: AtomicU64,
    pub(super) panics: AtomicU64,
}

/// The connections at one address since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that are open now.
    pub open: usize,
    /// Connections accepted and served.
    pub accepted: u64,
    /// Connections closed on arrival, because too many were open.
    pub refused: u64,
    /// Connections that could not be accepted, for want of descriptors or memory.
    pub accept_errors: u64,
    /// Connections closed because the TLS handshake failed, or because a required PROXY header was missing or invalid.
    pub handshake_failures: u64,
    /// Requests that failed because the service panicked.
    pub panics: u64,
}

impl Stats {
    pub(super) fn read(&self) -> ConnectionCounts {
        ConnectionCounts {
            open: self.open.load(Relaxed),
            accepted: self.accepted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            accept_errors: self.accept_errors.load(Relaxed),
            handshake_failures: self.handshake_failures.load(Relaxed),
            panics: self.panics.load(Relaxed),
        }
    }
}

/// Increments a count until it is dropped.
#[derive(Debug)]
pub(super) struct CountGuard(Arc<AtomicUsize>);

impl CountGuard {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        CountGuard(Arc::clone(count))
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// One open connection, in all counts that include it, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenConnection {
    stats: Arc<Stats>,
    _door: CountGuard,
    _worker: CountGuard,
}

impl OpenConnection {
    pub(super) fn new(stats: Arc<Stats>, door: CountGuard, worker: CountGuard) -> Self {
        stats.open.fetch_add(1, Relaxed);
        OpenConnection { stats, _door: door, _worker: worker }
    }

    pub(super) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.stats.open.fetch_sub(1, Relaxed);
    }
}
