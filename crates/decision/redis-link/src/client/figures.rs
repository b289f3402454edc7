//! Counts of what the client did, as plain numbers and as metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_metrics::{Collector, Exposition, Metric};
use tidegate_words::FailureKind;

use crate::state::LinkState;

tidegate_metrics::metrics! {
    /// The metrics of the connections to Redis.
    pub REDIS_METRICS:
    CONNECTIONS = Gauge "tidegate_remote_connections" []
        "Connections to the shared store that can be used.";
    CONNECTIONS_WANTED = Gauge "tidegate_remote_connections_wanted" []
        "Connections to the shared store that there should be.";
    WAITING = Gauge "tidegate_remote_waiting_requests" []
        "Requests that wait for the shared store.";
    CALL_DURATION = Histogram "tidegate_remote_call_duration_seconds" []
        "How long an answered call to the shared store took.";
    CALL_REQUESTS = Histogram "tidegate_remote_call_requests" []
        "How many requests one call to the shared store carried.";
    ERRORS = Counter "tidegate_remote_errors_total" ["kind"]
        "Requests to the shared store that failed, by kind of failure.";
    SCRIPT_LOADS = Counter "tidegate_remote_script_loads_total" []
        "Calls that were sent again because the server did not know the script.";
    REDIRECTS = Counter "tidegate_remote_redirects_total" []
        "Calls that were sent again because the key is at another node of the cluster.";
}

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
    /// Errors that callers received, by kind, in the order of [`FailureKind::ALL`].
    pub errors: [u64; FailureKind::ALL.len()],
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

impl Collector for ClientFigures {
    fn collect(&self, out: &mut Exposition) {
        out.single(CONNECTIONS, self.connected);
        out.single(CONNECTIONS_WANTED, self.wanted);
        out.single(WAITING, self.waiting);
        self.latency_us.collect(CALL_DURATION, 1e6, out);
        self.calls_per_evaluation.collect(CALL_REQUESTS, 1.0, out);
        out.by_label(
            ERRORS,
            FailureKind::ALL.map(FailureKind::as_str).into_iter().zip(self.errors),
        );
        out.single(SCRIPT_LOADS, self.script_reloads);
        out.single(REDIRECTS, self.redirects);
    }
}

impl Histogram {
    /// Divides by `parts` of a unit: a product would show bounds such as 0.00004999.
    fn collect(&self, metric: &'static Metric, parts: f64, out: &mut Exposition) {
        let bounds = self.bounds.iter().map(|bound| *bound as f64 / parts);
        out.family(metric).histogram(&[], bounds, &self.counts, self.sum as f64 / parts);
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    batches: Buckets<{ BATCH_BOUNDS.len() + 1 }>,
    latency: Buckets<{ LATENCY_BOUNDS.len() + 1 }>,
    errors: [AtomicU64; FailureKind::ALL.len()],
    pub(super) script_reloads: AtomicU64,
    pub(super) redirects: AtomicU64,
    pub(super) connects: AtomicU64,
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

    pub(super) fn failed(&self, kind: FailureKind) {
        if let Some(count) = self.errors.get(kind as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
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
    fn every_metric_of_the_table_is_written() {
        let counters = Counters::default();
        counters.answered(2, Duration::from_micros(60));
        let state =
            LinkState { connected: 3, wanted: 4, since: Duration::ZERO, last_failure: None };
        let figures = counters.figures(5, &state);
        assert_eq!(tidegate_metrics::missing(REDIS_METRICS, &figures), [""; 0]);
        let mut page = Exposition::new(tidegate_metrics::Format::Prometheus);
        figures.collect(&mut page);
        let page = page.finish();
        for line in [
            "tidegate_remote_connections 3",
            "tidegate_remote_waiting_requests 5",
            "tidegate_remote_call_duration_seconds_bucket{le=\"0.00005\"} 0",
            "tidegate_remote_call_duration_seconds_bucket{le=\"1\"} 1",
            "tidegate_remote_call_duration_seconds_sum 0.00006",
            "tidegate_remote_call_requests_bucket{le=\"2\"} 1",
            "tidegate_remote_errors_total{kind=\"readonly\"} 0",
        ] {
            assert!(page.lines().any(|written| written == line), "{line}: {page}");
        }
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let counters = Counters::default();
        counters.failed(FailureKind::Full);
        let state =
            LinkState { connected: 0, wanted: 1, since: Duration::ZERO, last_failure: None };
        let errors = counters.figures(0, &state).errors;
        assert_eq!(errors.iter().sum::<u64>(), 1);
        assert_eq!(errors.get(FailureKind::Full as usize), Some(&1));
    }
}
