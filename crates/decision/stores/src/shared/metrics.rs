//! What the shared store did, as plain values.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::lease::LeaseCounts;

/// The upper bounds of [`Metrics::overshoot`], in percent of the limit. The
/// last count has none.
pub const OVERSHOOT_BOUNDS: [u64; 7] = [0, 1, 2, 5, 10, 20, 50];

/// What the shared store did since it began, and holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Whether the remote is not asked, because it does not answer.
    pub degraded: bool,
    /// How long that has been so, all times together.
    pub degraded_for: Duration,
    /// How often it began.
    pub outages: u64,
    /// Calls to the remote, each of them one batch.
    pub commands: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Checks decided by this node's share.
    pub fell_back_local: u64,
    /// Checks admitted without being asked.
    pub fell_back_allow: u64,
    /// Requests that could not be decided.
    pub fell_back_deny: u64,
    /// Refusals that the remote did not have to be asked for.
    pub cached_refusals: u64,
    /// Slices of leased limits.
    pub leases: LeaseCounts,
    /// Keys of eventual limits.
    pub tallies: usize,
    /// Batches of eventual counts sent, and keys in them.
    pub flushes: u64,
    /// Keys in those batches.
    pub flushed_keys: u64,
    /// Counts that may have been told or not, and were not told again.
    pub unsure: u64,
    /// How far flushed keys were over their limit, by [`OVERSHOOT_BOUNDS`].
    pub overshoot: [u64; OVERSHOOT_BOUNDS.len() + 1],
    /// The sum of what that histogram holds, in percent.
    pub overshoot_percent: u64,
    /// Keys that were decided in an outage and are still to be charged.
    pub owing: usize,
    /// Keys of which another region is still to be told.
    pub pending: usize,
    /// Counts for other regions that found no place.
    pub dropped: u64,
    /// Live nodes, as last known.
    pub nodes: usize,
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

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// So many more.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counters {
    /// A flushed key was over its limit by so many units.
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

    /// The counters as they stand; gauges are left to the caller.
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
}
