//! Counts of what the sender did.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_metrics::{Collector, Exposition};

tidegate_metrics::metrics! {
    /// The metrics of the sender.
    pub STATSD_METRICS:
    LINES = Counter "tidegate_statsd_lines_total" ["result"]
        "Lines for the statsd server: `sent`, `failed` (sent again by a later flush) or `dropped` (too long).";
    FLUSHES = Counter "tidegate_statsd_flushes_total" ["result"]
        "Flushes to the statsd server, by result: `sent` or `failed`.";
}

/// What a sender did since it started.
#[derive(Debug, Default)]
pub struct SenderFigures {
    pub(crate) lines_sent: AtomicU64,
    pub(crate) lines_failed: AtomicU64,
    pub(crate) lines_dropped: AtomicU64,
    pub(crate) flushes_sent: AtomicU64,
    pub(crate) flushes_failed: AtomicU64,
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(u64::try_from(more).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl Collector for SenderFigures {
    fn collect(&self, out: &mut Exposition) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let lines = [
            ("sent", read(&self.lines_sent)),
            ("failed", read(&self.lines_failed)),
            ("dropped", read(&self.lines_dropped)),
        ];
        out.by_label(LINES, lines);
        let flushes = [("sent", read(&self.flushes_sent)), ("failed", read(&self.flushes_failed))];
        out.by_label(FLUSHES, flushes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_the_table_is_written() {
        assert!(tidegate_metrics::missing(STATSD_METRICS, &SenderFigures::default()).is_empty());
    }
}
