//! The page of mapped statistics in the text format of Prometheus.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::document::MetricType;
use super::{DEFAULT_HELP, MappedName, MappingRule, NameMapping, ObserverForm, pattern};
use crate::lines::{sorted_tags, write_name_tags};
use crate::reading::{StatsReading, Timer};

/// Names that the page has from elsewhere: a family must not be there twice.
const OTHER_PREFIXES: [&str; 2] = ["tidegate_", "process_"];

/// Renders statistics under the Prometheus names of envoyproxy/ratelimit.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    mapping: NameMapping,
    /// Tags of every statistic; part of the statsd name, as there.
    tags: Vec<(String, String)>,
    /// Durations in milliseconds instead of seconds.
    in_milliseconds: bool,
}

/// Samples of one name.
#[derive(Debug)]
struct Family {
    kind: FamilyKind,
    help: String,
    samples: BTreeMap<Vec<(String, String)>, Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

#[derive(Clone, Debug)]
enum Sample {
    Number(f64),
    /// Cumulative counts by upper bound.
    Histogram {
        buckets: Vec<(f64, u64)>,
        count: u64,
        sum: f64,
    },
    /// Values by quantile.
    Summary {
        quantiles: Vec<(f64, f64)>,
        count: u64,
        sum: f64,
    },
}

impl UpstreamMetrics {
    /// A page with this mapping. Tags become part of the statsd names before they are mapped.
    pub fn new(mapping: NameMapping, tags: &[(String, String)], in_milliseconds: bool) -> Self {
        UpstreamMetrics { mapping, tags: sorted_tags(tags), in_milliseconds }
    }

    /// The page. A counter that is zero is left out, as in envoyproxy/ratelimit.
    pub fn render(&self, reading: &StatsReading) -> String {
        let mut families = BTreeMap::new();
        for (name, count) in reading.counters.iter().filter(|(_, count)| **count > 0) {
            self.add(&mut families, name, MetricType::Counter, |_, scale| {
                (FamilyKind::Counter, Sample::Number(*count as f64 * scale))
            });
        }
        for (name, value) in &reading.gauges {
            self.add(&mut families, name, MetricType::Gauge, |_, scale| {
                (FamilyKind::Gauge, Sample::Number(*value as f64 * scale))
            });
        }
        for timer in reading.timers.iter().filter(|timer| timer.count() > 0) {
            self.add(&mut families, &timer.name, MetricType::Observer, |form, scale| {
                let per_second = if self.in_milliseconds { 1e3 } else { 1.0 };
                observed(timer, form, scale * per_second)
            });
        }
        let mut page = String::new();
        for (name, family) in &families {
            family.write(name, &mut page);
        }
        page
    }

    fn add(
        &self,
        families: &mut BTreeMap<String, Family>,
        statsd_name: &str,
        metric_type: MetricType,
        sample: impl FnOnce(&ObserverForm, f64) -> (FamilyKind, Sample),
    ) {
        let mut full_name = Cow::Borrowed(statsd_name);
        if !self.tags.is_empty() {
            write_name_tags(full_name.to_mut(), &self.tags);
        }
        let found = self.mapping.find(&full_name, metric_type);
        if found.as_ref().is_some_and(|(rule, _)| rule.drop) {
            return;
        }
        let form = found.as_ref().map_or(&self.mapping.defaults, |(rule, _)| &rule.observer);
        let mapped = found.map(|(_, mapped): (&MappingRule, _)| mapped);
        let mapped = mapped.unwrap_or_else(|| MappedName {
            name: pattern::escape(&full_name),
            labels: Vec::new(),
            help: DEFAULT_HELP,
            scale: 1.0,
        });
        if OTHER_PREFIXES.iter().any(|prefix| mapped.name.starts_with(prefix)) {
            return;
        }
        let (kind, sample) = sample(form, mapped.scale);
        let family = families.entry(mapped.name).or_insert_with(|| Family {
            kind,
            help: mapped.help.to_owned(),
            samples: BTreeMap::new(),
        });
        // The first kind wins, as there.
        if family.kind == kind {
            match family.samples.get_mut(&mapped.labels) {
                Some(other) => other.add(&sample, kind),
                None => _ = family.samples.insert(mapped.labels, sample),
            }
        }
    }
}

/// The durations of a timer in a form. Each counts as its bucket's upper bound, so that the error is one bucket.
fn observed(timer: &Timer, form: &ObserverForm, scale: f64) -> (FamilyKind, Sample) {
    let seconds = |micros: u64| micros as f64 / 1e6 * scale;
    let (count, sum) = (timer.count(), timer.sum.as_secs_f64() * scale);
    match form {
        ObserverForm::Histogram(bounds) => {
            let below = |bound: f64| {
                let inside = timer.buckets.iter();
                let inside =
                    inside.filter(|(upper, _)| upper.is_some_and(|upper| seconds(upper) <= bound));
                inside.map(|(_, count)| count).sum()
            };
            let buckets = bounds.iter().map(|bound| (*bound, below(*bound))).collect();
            (FamilyKind::Histogram, Sample::Histogram { buckets, count, sum })
        }
        ObserverForm::Summary(quantiles) => {
            let value = |quantile: f64| {
                let wanted = quantile * count as f64;
                let mut seen = 0;
                let mut middles = timer.representatives();
                let found = middles.find(|(_, count)| {
                    seen += count;
                    seen as f64 >= wanted && seen > 0
                });
                found.map_or(0.0, |(micros, _)| seconds(micros))
            };
            let quantiles = quantiles.iter().map(|one| (*one, value(*one))).collect();
            (FamilyKind::Summary, Sample::Summary { quantiles, count, sum })
        }
    }
}

impl Sample {
    /// Adds a sample of the same name and labels. A gauge keeps the last value.
    fn add(&mut self, other: &Sample, kind: FamilyKind) {
        match (self, other) {
            (Sample::Number(number), Sample::Number(more)) if kind == FamilyKind::Counter => {
                *number += more;
            }
            (
                Sample::Histogram { buckets, count, sum },
                Sample::Histogram { buckets: more, count: more_count, sum: more_sum },
            ) => {
                for ((_, count), (_, more)) in buckets.iter_mut().zip(more) {
                    *count += more;
                }
                *count += more_count;
                *sum += more_sum;
            }
            (
                Sample::Summary { count, sum, .. },
                Sample::Summary { count: more_count, sum: more_sum, .. },
            ) => {
                *count += more_count;
                *sum += more_sum;
            }
            (own, other) => *own = other.clone(),
        }
    }
}

impl Family {
    fn write(&self, name: &str, page: &mut String) {
        let kind = match self.kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
            FamilyKind::Summary => "summary",
        };
        let help = self.help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, sample) in &self.samples {
            let mut line = |suffix: &str, extra: Option<(&str, String)>, value: f64| {
                let extra = extra.iter().map(|(label, value)| (*label, value.as_str()));
                let labels = labels.iter().map(|(label, value)| (label.as_str(), value.as_str()));
                let labels: Vec<String> = labels
                    .chain(extra)
                    .map(|(label, value)| format!("{label}=\"{}\"", escape_value(value)))
                    .collect();
                let labels = if labels.is_empty() {
                    String::new()
                } else {
                    format!("{{{}}}", labels.join(","))
                };
                let _ = writeln!(page, "{name}{suffix}{labels} {value}");
            };
            match sample {
                Sample::Number(number) => line("", None, *number),
                Sample::Histogram { buckets, count, sum } => {
                    for (bound, below) in buckets {
                        line("_bucket", Some(("le", bound.to_string())), *below as f64);
                    }
                    line("_bucket", Some(("le", "+Inf".to_owned())), *count as f64);
                    line("_sum", None, *sum);
                    line("_count", None, *count as f64);
                }
                Sample::Summary { quantiles, count, sum } => {
                    for (quantile, value) in quantiles {
                        line("", Some(("quantile", quantile.to_string())), *value);
                    }
                    line("_sum", None, *sum);
                    line("_count", None, *count as f64);
                }
            }
        }
    }
}

fn escape_value(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
