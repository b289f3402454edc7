//! The counters of the shared store, and its metrics.
//!
//! A new metric is a counter in [`Counters`], a field of [`Metrics`], a row of the table and a line of `collect`, all
//! in this file, and a row in docs/metrics.md.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_metrics::{Collector, Exposition};

use super::lease::LeaseCounts;

/// The upper bounds of [`Metrics::overshoot`], in percent of the limit. The
/// last count has none.
pub const OVERSHOOT_BOUNDS: [u64; 7] = [0, 1, 2, 5, 10, 20, 50];

tidegate_metrics::metrics! {
    /// The metrics of [`SharedStore`](crate::SharedStore).
    pub SHARED_METRICS:
    CALLS = Counter "tidegate_remote_calls_total" []
        "Calls to the shared store, each with one batch; failed calls included.";
    FAILED_CALLS = Counter "tidegate_remote_failed_calls_total" []
        "Calls to the shared store that failed.";
    DEGRADED = Gauge "tidegate_remote_degraded" []
        "1 while the circuit breaker of the shared store, or of a part of it, is open.";
    DEGRADED_SECONDS = Counter "tidegate_remote_degraded_seconds_total" []
        "Total time that a circuit breaker of the shared store was open.";
    OUTAGES = Counter "tidegate_remote_outages_total" []
        "Times that a circuit breaker of the shared store opened.";
    FALLBACKS = Counter "tidegate_remote_fallbacks_total" ["policy"]
        "Checks that were decided without the shared store, by on_store_error.";
    CACHED_REFUSALS = Counter "tidegate_remote_remembered_refusals_total" []
        "Refusals answered from the cache of recent refusals, without a call to the shared store.";
    OWING = Gauge "tidegate_remote_owing_keys" []
        "Keys that were decided in an outage and are still to be charged.";
    UNCERTAIN_COUNTS = Counter "tidegate_remote_uncertain_counts_total" []
        "Counts that the shared store or a region may have received or not; they are not sent again.";
    LEASED_UNITS = Gauge "tidegate_leased_units" []
        "Units of leased limits that this process holds and has not used.";
    LEASE_CHANGES = Counter "tidegate_lease_changes_total" ["change"]
        "Slices fetched (renewed), units returned, units that expired unused (lost).";
    EVENTUAL_KEYS = Gauge "tidegate_eventual_keys" []
        "Keys of eventual limits that this process counts.";
    EVENTUAL_FLUSHES = Counter "tidegate_eventual_flushes_total" []
        "Batches of eventual counts that were sent.";
    EVENTUAL_FLUSHED = Counter "tidegate_eventual_flushed_keys_total" []
        "Keys in those batches.";
    EVENTUAL_OVERSHOOT = Histogram "tidegate_eventual_overshoot_ratio" []
        "How far flushed keys were over their limit, as a share of the limit.";
    REGION_PENDING = Gauge "tidegate_region_pending_keys" []
        "Keys whose counts are still to be sent to another region.";
    REGION_DROPPED = Counter "tidegate_region_dropped_counts_total" []
        "Counts for another region that were dropped because too many keys were pending.";
    NODES = Gauge "tidegate_nodes" []
        "Live processes that share the store, as last known.";
}

/// Counts of the shared store since the start, and its gauges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Whether a circuit breaker is open, because the remote does not answer.
    pub degraded: bool,
    /// The total time that a breaker was open.
    pub degraded_for: Duration,
    /// How often a breaker opened.
    pub outages: u64,
    /// Calls to the remote, each with one batch.
    pub commands: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Checks decided by this node's share.
    pub fell_back_local: u64,
    /// Checks admitted without a counter.
    pub fell_back_allow: u64,
    /// Requests that could not be decided.
    pub fell_back_deny: u64,
    /// Refusals from the cache, without a call.
    pub cached_refusals: u64,
    /// Slices of leased limits.
    pub leases: LeaseCounts,
    /// Keys of eventual limits.
    pub tallies: usize,
    /// Batches of eventual counts that were sent.
    pub flushes: u64,
    /// Keys in those batches.
    pub flushed_keys: u64,
    /// Counts that the remote may have received or not; they are not sent again.
    pub unsure: u64,
    /// How far flushed keys were over their limit, by [`OVERSHOOT_BOUNDS`].
    pub overshoot: [u64; OVERSHOOT_BOUNDS.len() + 1],
    /// The sum of the values in that histogram, in percent.
    pub overshoot_percent: u64,
    /// Keys that were decided in an outage and are still to be charged.
    pub owing: usize,
    /// Keys with charges that another region has not received.
    pub pending: usize,
    /// Counts for other regions that were dropped, because too many keys were pending.
    pub dropped: u64,
    /// Live nodes, as last known.
    pub nodes: usize,
}

impl Collector for Metrics {
    fn collect(&self, out: &mut Exposition) {
        out.single(CALLS, self.commands);
        out.single(FAILED_CALLS, self.failures);
        out.single(DEGRADED, u8::from(self.degraded));
        out.single(DEGRADED_SECONDS, self.degraded_for.as_secs_f64());
        out.single(OUTAGES, self.outages);
        let fallbacks = [
            ("local", self.fell_back_local),
            ("allow", self.fell_back_allow),
            ("deny", self.fell_back_deny),
        ];
        out.by_label(FALLBACKS, fallbacks);
        out.single(CACHED_REFUSALS, self.cached_refusals);
        out.single(OWING, self.owing);
        out.single(UNCERTAIN_COUNTS, self.unsure);
        out.single(LEASED_UNITS, self.leases.held);
        let LeaseCounts { renewed, returned, lost, .. } = self.leases;
        out.by_label(LEASE_CHANGES, [("renewed", renewed), ("returned", returned), ("lost", lost)]);
        out.single(EVENTUAL_KEYS, self.tallies);
        out.single(EVENTUAL_FLUSHES, self.flushes);
        out.single(EVENTUAL_FLUSHED, self.flushed_keys);
        let bounds = OVERSHOOT_BOUNDS.map(|percent| percent as f64 / 100.0);
        let sum = self.overshoot_percent as f64 / 100.0;
        out.family(EVENTUAL_OVERSHOOT).histogram(&[], bounds, &self.overshoot, sum);
        out.single(REGION_PENDING, self.pending);
        out.single(REGION_DROPPED, self.dropped);
        out.single(NODES, self.nodes);
    }
}

/// The counters behind [`Metrics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) degraded_nanos: AtomicU64,
    pub(crate) outages: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) local: AtomicU64,
    pub(crate) allow: AtomicU64,
    pub(crate) deny: AtomicU64,
    pub(crate) cached: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_keys: AtomicU64,
    pub(crate) unsure: AtomicU64,
    pub(crate) dropped: AtomicU64,
    overshoot: [AtomicU64; OVERSHOOT_BOUNDS.len() + 1],
    overshoot_percent: AtomicU64,
}

/// Adds one to a counter.
pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counters {
    /// Counts how many units a flushed key was over its limit.
    pub(crate) fn overshot(&self, units: u64, limit: u64) {
        let percent = u128::from(units) * 100;
        let over = |bound: u64| percent > u128::from(bound) * u128::from(limit.max(1));
        let share = percent / u128::from(limit.max(1));
        add(&self.overshoot_percent, u64::try_from(share).unwrap_or(u64::MAX));
        let bucket = OVERSHOOT_BOUNDS.iter().take_while(|bound| over(**bound)).count();
        if let Some(counter) = self.overshoot.get(bucket) {
            count(counter);
        }
    }

    /// The present values of the counters; the caller adds the gauges.
    pub(crate) fn read(&self) -> Metrics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut overshoot = [0; OVERSHOOT_BOUNDS.len() + 1];
        for (value, counter) in overshoot.iter_mut().zip(&self.overshoot) {
            *value = of(counter);
        }
        Metrics {
            degraded_for: Duration::from_nanos(of(&self.degraded_nanos)),
            outages: of(&self.outages),
            commands: of(&self.commands),
            failures: of(&self.failures),
            fell_back_local: of(&self.local),
            fell_back_allow: of(&self.allow),
            fell_back_deny: of(&self.deny),
            cached_refusals: of(&self.cached),
            flushes: of(&self.flushes),
            flushed_keys: of(&self.flushed_keys),
            unsure: of(&self.unsure),
            dropped: of(&self.dropped),
            overshoot,
            overshoot_percent: of(&self.overshoot_percent),
            ..Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overshoot_is_counted_in_percent_of_the_limit() {
        let counters = Counters::default();
        for units in [0, 1, 5, 6, 50, 51, 1_000] {
            counters.overshot(units, 100);
        }
        assert_eq!(counters.read().overshoot, [1, 1, 0, 1, 1, 0, 1, 2]);
        assert_eq!(counters.read().overshoot_percent, 1_113);
    }

    #[test]
    fn every_metric_of_the_table_is_written() {
        assert_eq!(tidegate_metrics::missing(SHARED_METRICS, &Metrics::default()), [""; 0]);
    }

    #[test]
    fn every_counter_is_shown() {
        let metrics =
            Metrics { commands: 3, failures: 2, unsure: 5, dropped: 7, ..Metrics::default() };
        let mut page = Exposition::new(tidegate_metrics::Format::Prometheus);
        metrics.collect(&mut page);
        let page = page.finish();
        for line in [
            "tidegate_remote_calls_total 3",
            "tidegate_remote_failed_calls_total 2",
            "tidegate_remote_uncertain_counts_total 5",
            "tidegate_region_dropped_counts_total 7",
            "tidegate_remote_fallbacks_total{policy=\"local\"} 0",
            "tidegate_eventual_overshoot_ratio_bucket{le=\"0.01\"} 0",
        ] {
            assert!(page.lines().any(|written| written == line), "{line}: {page}");
        }
    }
}
