//! Counts of what the client did.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::LinkErrorKind;
use crate::state::LinkState;

/// Upper bounds of the script calls in one `EVALSHA`.
const BATCH_BOUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Upper bounds of the round trip of one `EVALSHA`, in microseconds.
const LATENCY_BOUNDS: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000];

/// What the client did since it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFigures {
    /// `EVALSHA` commands that were answered; each carries one or more script calls.
    pub evaluations: u64,
    /// How many script calls one of them carried.
    pub calls_per_evaluation: Histogram,
    /// How long one of them took, in microseconds.
    pub latency_us: Histogram,
    /// Errors that callers received, by kind, in the order of [`LinkErrorKind::ALL`].
    pub errors: [u64; LinkErrorKind::ALL.len()],
    /// Batches that were sent again because the server did not know the script.
    pub script_reloads: u64,
    /// Batches that were sent again because another node has the slot.
    pub redirects: u64,
    /// Connections that were opened.
    pub connects: u64,
    /// Open connections.
    pub connected: usize,
    /// Connections that there should be.
    pub wanted: usize,
    /// Callers that wait for a reply.
    pub waiting: usize,
}

/// Counts of values by upper bound; the last count is of values above all bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// The inclusive upper bounds.
    pub bounds: &'static [u64],
    /// The count of each bucket; one more than there are bounds.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    batches: Buckets<{ BATCH_BOUNDS.len() + 1 }>,
    latency: Buckets<{ LATENCY_BOUNDS.len() + 1 }>,
    errors: [AtomicU64; LinkErrorKind::ALL.len()],
    script_reloads: AtomicU64,
    redirects: AtomicU64,
    connects: AtomicU64,
}

#[derive(Debug)]
struct Buckets<const N: usize> {
    counts: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Default for Buckets<N> {
    fn default() -> Self {
        Buckets { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> Buckets<N> {
    fn add(&self, bounds: &[u64], value: u64) {
        let bucket = bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    fn read(&self, bounds: &'static [u64]) -> Histogram {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Histogram { bounds, counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl Counters {
    /// An `EVALSHA` with this many script calls was answered.
    pub(super) fn answered(&self, calls: usize, took: Duration) {
        self.batches.add(&BATCH_BOUNDS, u64::try_from(calls).unwrap_or(u64::MAX));
        self.latency.add(&LATENCY_BOUNDS, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn failed(&self, kind: LinkErrorKind) {
        if let Some(count) = self.errors.get(kind.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn reloaded(&self) {
        self.script_reloads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn redirected(&self) {
        self.redirects.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connected(&self) {
        self.connects.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn figures(&self, waiting: usize, state: &LinkState) -> ClientFigures {
        let calls_per_evaluation = self.batches.read(&BATCH_BOUNDS);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ClientFigures {
            evaluations: calls_per_evaluation.counts.iter().sum(),
            calls_per_evaluation,
            latency_us: self.latency.read(&LATENCY_BOUNDS),
            errors: std::array::from_fn(|kind| self.errors.get(kind).map_or(0, read)),
            script_reloads: read(&self.script_reloads),
            redirects: read(&self.redirects),
            connects: read(&self.connects),
            connected: state.connected,
            wanted: state.wanted,
            waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_bucket_whose_bound_it_reaches() {
        let counters = Counters::default();
        for calls in [1, 2, 3, 4, 5, 1_000] {
            counters.answered(calls, Duration::from_micros(50));
        }
        let state =
            LinkState { connected: 0, wanted: 1, since: Duration::ZERO, last_failure: None };
        let figures = counters.figures(0, &state);
        assert_eq!(figures.calls_per_evaluation.counts, [1, 1, 2, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(figures.calls_per_evaluation.sum, 1_015);
        assert_eq!(figures.latency_us.counts.first(), Some(&6));
        assert_eq!(figures.evaluations, 6);
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let counters = Counters::default();
        counters.failed(LinkErrorKind::Full);
        let state =
            LinkState { connected: 0, wanted: 1, since: Duration::ZERO, last_failure: None };
        let errors = counters.figures(0, &state).errors;
        assert_eq!(errors.iter().sum::<u64>(), 1);
        assert_eq!(errors.get(LinkErrorKind::Full.index()), Some(&1));
    }
}
