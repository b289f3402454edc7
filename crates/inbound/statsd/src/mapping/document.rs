//! The keys of a mapping file, as `statsd_exporter` has them.

use serde_json::json;
use tidegate_document::{
    Dialect, LocatedValue, MappingType, NameMap, NodeId, PlainValue, Reader, choices, kind,
    mapping, wrong_type,
};

choices! {
    /// How a pattern is written.
    pub(super) enum MatchType {
        /// Names and `*` between dots.
        Glob = "glob",
        /// A regular expression.
        Regex = "regex",
    }
}

choices! {
    /// What happens to a name.
    pub(super) enum ActionName {
        /// It is mapped.
        Map = "map",
        /// It is left out.
        Drop = "drop",
    }
}

choices! {
    /// The kind of a statistic.
    pub(super) enum MetricType {
        /// A count.
        Counter = "counter",
        /// A value that rises and falls.
        Gauge = "gauge",
        /// A timer.
        Observer = "observer",
        /// A timer, by its old name.
        Timer = "timer",
    }
}

choices! {
    /// How durations are shown.
    pub(super) enum ObserverType {
        /// As a histogram.
        Histogram = "histogram",
        /// As a summary.
        Summary = "summary",
    }
}

mapping! {
    /// the mapping file
    pub(super) MappingDocument "mapping" {
        /// What applies to every mapping.
        defaults: Option<DefaultsSection>,
        /// The mappings.
        mappings: Vec<MappingSection>,
    }
}

mapping! {
    /// the defaults
    pub(super) DefaultsSection "defaults" {
        /// How durations are shown.
        observer_type: Option<ObserverType>,
        /// The old name of `observer_type`.
        timer_type: Option<ObserverType>,
        /// How patterns are written.
        match_type: Option<MatchType>,
        /// Whether the most literal glob wins over the first one.
        glob_disable_ordering: Option<bool>,
        /// The old place of the buckets.
        buckets: Vec<Decimal>,
        /// The old place of the quantiles.
        quantiles: Vec<QuantileSection>,
        /// Settings of histograms.
        histogram_options: Option<HistogramSection>,
        /// Settings of summaries.
        summary_options: Option<SummarySection>,
    }
}

mapping! {
    /// a mapping
    pub(super) MappingSection "entry" {
        /// The names that it is for.
        pattern as "match": Option<LocatedValue<String>> = required,
        /// How the pattern is written.
        match_type: Option<MatchType>,
        /// The kind of statistic that it is for.
        match_metric_type: Option<MetricType>,
        /// The name of the metric.
        name: Option<LocatedValue<String>> = required,
        /// The labels of the metric.
        labels: Option<NameMap<String>>,
        /// Whether the names are mapped or left out.
        action: Option<ActionName>,
        /// The help text of the metric.
        help: Option<String>,
        /// A factor for its values.
        scale: Option<Decimal>,
        /// How durations are shown.
        observer_type: Option<ObserverType>,
        /// The old name of `observer_type`.
        timer_type: Option<ObserverType>,
        /// The old place of the buckets.
        buckets: Vec<Decimal>,
        /// The old place of the quantiles.
        quantiles: Vec<QuantileSection>,
        /// Settings of histograms.
        histogram_options: Option<HistogramSection>,
        /// Settings of summaries.
        summary_options: Option<SummarySection>,
    }
}

mapping! {
    /// the settings of a histogram
    pub(super) HistogramSection "histogram" {
        /// The upper bounds.
        buckets: Vec<Decimal>,
    }
}

mapping! {
    /// the settings of a summary
    pub(super) SummarySection "summary" {
        /// The quantiles.
        quantiles: Vec<QuantileSection>,
    }
}

mapping! {
    /// a quantile
    pub(super) QuantileSection "quantile" {
        /// From 0 to 1.
        quantile: Option<Decimal> = required,
        /// How wrong it may be; it has no effect.
        error: Option<Decimal>,
    }
}

/// A number with or without a fraction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal(f64);

impl Decimal {
    pub(super) const fn get(self) -> f64 {
        self.0
    }
}

kind! {
    Decimal: "a number", json!({"type": "number"}),
    |scalar| match scalar.plain() {
        PlainValue::Float(number) if number.is_finite() => Ok(Decimal(number)),
        PlainValue::Integer(number) => Ok(Decimal(number as f64)),
        _ => Err(wrong_type::<Self>(scalar)),
    }
}

/// Gives the buckets and quantiles of a section, at their old or new place.
macro_rules! observer_options {
    ($section:ident) => {
        impl $section {
            pub(super) fn buckets(&self) -> Vec<f64> {
                let newer = self.histogram_options.as_ref().map(|options| &options.buckets);
                let buckets = newer.filter(|newer| !newer.is_empty()).unwrap_or(&self.buckets);
                buckets.iter().copied().map(Decimal::get).collect()
            }

            pub(super) fn quantiles(&self) -> Vec<f64> {
                let newer = self.summary_options.as_ref().map(|options| &options.quantiles);
                let quantiles = newer.filter(|newer| !newer.is_empty()).unwrap_or(&self.quantiles);
                quantiles.iter().filter_map(|one| one.quantile.map(Decimal::get)).collect()
            }
        }
    };
}

observer_options!(DefaultsSection);
observer_options!(MappingSection);

/// Accepts keys without an effect, as `statsd_exporter` does: `ttl`, `honor_labels` and others.
#[derive(Clone, Copy, Debug)]
pub(super) struct TolerantDialect;

impl Dialect for TolerantDialect {
    fn unknown_key(
        &self,
        _: &mut Reader<'_, '_>,
        _: &'static MappingType,
        _: &str,
        _: NodeId,
        _: NodeId,
    ) {
    }
}
