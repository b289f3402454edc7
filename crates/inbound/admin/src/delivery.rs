//! The delivery of rules and of the gateway's document: how often, when last, and whether the latest is in place.

use tidegate_engine::Timestamp;
use tidegate_metrics::{Exposition, Metric};

tidegate_metrics::metrics! {
    /// The metrics of the delivery of rules and of the gateway's document.
    pub DELIVERY_METRICS:
    RULES_LOADS = Counter "tidegate_rules_loads_total" []
        "Times that rules were put in place.";
    RULES_FAILURES = Counter "tidegate_rules_load_failures_total" []
        "Times that rules were wrong, so that the old ones stayed.";
    RULES_LAST_LOAD = Gauge "tidegate_rules_last_load_timestamp_seconds" []
        "When rules were last put in place, in Unix time.";
    RULES_STALE = Gauge "tidegate_rules_stale" []
        "1 while the latest rules are wrong and older ones are in place.";
    GATEWAY_LOADS = Counter "tidegate_gateway_loads_total" []
        "Times that the gateway's document was put in place, with the files that it names.";
    GATEWAY_FAILURES = Counter "tidegate_gateway_load_failures_total" []
        "Times that the gateway's document or a file of it was wrong, so that the old one stayed.";
    GATEWAY_LAST_LOAD = Gauge "tidegate_gateway_last_load_timestamp_seconds" []
        "When the gateway's document was last put in place, in Unix time.";
    GATEWAY_STALE = Gauge "tidegate_gateway_stale" []
        "1 while the latest document of the gateway is wrong and an older one is in place.";
}

/// The delivery of a document at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryReading {
    /// How often a version was put in place.
    pub loads: u64,
    /// How often a version was wrong, so that the old one stayed.
    pub failures: u64,
    /// When a version was last put in place.
    pub last_load: Option<Timestamp>,
    /// Whether the latest version is wrong and an older one is in place.
    pub stale: bool,
}

/// The metrics of one delivered document: loads, failures, last load, stale.
type DeliveryMetrics = [&'static Metric; 4];

pub(super) const RULES: DeliveryMetrics =
    [RULES_LOADS, RULES_FAILURES, RULES_LAST_LOAD, RULES_STALE];
pub(super) const GATEWAY_DOCUMENT: DeliveryMetrics =
    [GATEWAY_LOADS, GATEWAY_FAILURES, GATEWAY_LAST_LOAD, GATEWAY_STALE];

impl DeliveryReading {
    pub(super) fn collect(&self, metrics: DeliveryMetrics, out: &mut Exposition) {
        let [loads, failures, last_load, stale] = metrics;
        out.single(loads, self.loads);
        out.single(failures, self.failures);
        if let Some(at) = self.last_load {
            out.single(last_load, exact_seconds(at));
        }
        out.single(stale, u8::from(self.stale));
    }
}

/// Seconds with all nine digits: a float would lose the last ones.
fn exact_seconds(at: Timestamp) -> String {
    let nanos = at.as_nanos();
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}
