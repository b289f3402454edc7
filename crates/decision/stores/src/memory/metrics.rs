//! The metrics of the store in memory.

use tidegate_metrics::{Collector, Exposition};

use super::Stats;

tidegate_metrics::metrics! {
    /// The metrics of [`MemoryStore`](super::MemoryStore).
    pub MEMORY_METRICS:
    KEYS = Gauge "tidegate_store_keys" []
        "Keys in the store, including idle ones that were not dropped yet.";
    BYTES = Gauge "tidegate_store_bytes" []
        "Bytes that the counters take.";
    BUDGET = Gauge "tidegate_store_budget_bytes" []
        "The most bytes that the counters may take.";
    SHARED = Counter "tidegate_store_shared_answers_total" []
        "Answers from a shared counter because the store was full.";
    UNMETERED = Counter "tidegate_store_unmetered_answers_total" []
        "Answers without a counter because the store was full.";
}

impl Collector for Stats {
    fn collect(&self, out: &mut Exposition) {
        out.single(KEYS, self.keys);
        out.single(BYTES, self.bytes);
        out.single(BUDGET, self.budget_bytes);
        out.single(SHARED, self.shared);
        out.single(UNMETERED, self.unmetered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_the_table_is_written() {
        assert_eq!(tidegate_metrics::missing(MEMORY_METRICS, &Stats::default()), [""; 0]);
    }
}
