//! The metrics of observed verdicts.

use tidegate_engine::outcomes;
use tidegate_metrics::{Collector, Exposition};

use super::{Observations, Reason};

tidegate_metrics::metrics! {
    /// The metrics of [`Observations`].
    pub OBSERVATION_METRICS:
    UNDECIDED = Counter "tidegate_undecided_total" ["reason"]
        "Requests that could not be decided; the failure mode answered.";
    UNKNOWN_DOMAINS = Counter "tidegate_unknown_domain_descriptors_total" []
        "Descriptors of requests for domains that have no rules.";
    VALUE_HITS = Counter "tidegate_value_hits_total" ["domain", "path", "limit", "outcome"]
        "Hits by value of the request, for rules with detailed_metric or value_to_metric.";
    METRICS_DROPPED = Counter "tidegate_metrics_dropped_total" ["reason"]
        "Hits and observations that have no series of their own.";
}

impl Collector for Observations {
    fn collect(&self, out: &mut Exposition) {
        let reasons = Reason::ALL.map(|reason| (reason.as_str(), self.undecided(reason)));
        out.by_label(UNDECIDED, reasons);
        let unknown: u64 = self.unknown_domains().iter().map(|(_, count)| count).sum();
        out.single(UNKNOWN_DOMAINS, unknown);
        let mut by_value = out.family(VALUE_HITS);
        for series in self.values() {
            let labels = &series.labels;
            for (outcome, count) in outcomes(&series.tally) {
                by_value.sample(&[&labels.domain, &labels.path, &labels.limit, outcome], count);
            }
        }
        let dropped = [("value_hits", self.hits_beyond_series()), ("contention", self.missed())];
        out.by_label(METRICS_DROPPED, dropped);
    }
}
