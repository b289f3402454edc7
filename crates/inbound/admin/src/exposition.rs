//! Metrics as text, in the two formats that scrapers read.
//!
//! Written here rather than with a client library: ours are figures that are
//! kept elsewhere and read on each scrape, and the usual library writes
//! OpenMetrics only. A family is written in one piece, since both formats ask
//! for that. Label names come from the vocabulary; a sample gives their values.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use http::HeaderValue;

use super::remote::Spread;
use super::vocabulary::{Kind, Metric};

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, 0.0.4.
    Prometheus,
}

impl Format {
    /// The format that an `Accept` field asks for.
    pub(super) fn asked_for(accept: Option<&HeaderValue>) -> Self {
        let accept = accept.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let types = accept.split(',').map(|range| range.split(';').next().unwrap_or_default());
        let open = types.map(str::trim).any(|kind| kind == "application/openmetrics-text");
        if open { Format::OpenMetrics } else { Format::Prometheus }
    }

    pub(super) const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        })
    }
}

/// A page of metrics that is being written.
#[derive(Debug)]
pub(super) struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    pub(super) const fn new(format: Format) -> Self {
        Exposition { format, text: String::new() }
    }

    /// Begins a family; its samples follow.
    pub(super) fn family(&mut self, metric: &'static Metric) -> Family<'_> {
        let name = match (self.format, metric.kind) {
            (Format::OpenMetrics, Kind::Counter) => without(metric.name, "_total"),
            (Format::OpenMetrics, Kind::Info) => without(metric.name, "_info"),
            _ => metric.name,
        };
        let kind = match (self.format, metric.kind) {
            (Format::Prometheus, Kind::Info) => Kind::Gauge,
            (_, kind) => kind,
        };
        let _ = writeln!(self.text, "# HELP {name} {}", Escaped(metric.help));
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.as_str());
        Family { metric, text: &mut self.text }
    }

    /// A family with one sample and no labels.
    pub(super) fn single(&mut self, metric: &'static Metric, value: impl Display) {
        self.family(metric).sample(&[], value);
    }

    /// The whole page.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// The samples of one metric.
#[derive(Debug)]
pub(super) struct Family<'e> {
    metric: &'static Metric,
    text: &'e mut String,
}

impl Family<'_> {
    /// One sample, with the values of its labels in the order of the vocabulary.
    pub(super) fn sample(&mut self, labels: &[&str], value: impl Display) {
        self.line("", labels, None, value);
    }

    /// A histogram, with the count up to each bound, which grows with the
    /// bounds, and the count and the sum of all.
    pub(super) fn histogram(
        &mut self,
        labels: &[&str],
        up_to: impl IntoIterator<Item = (Duration, u64)>,
        count: u64,
        sum: f64,
    ) {
        for (bound, count) in up_to {
            self.line("_bucket", labels, Some(&Bound(bound)), count);
        }
        self.line("_bucket", labels, Some(&"+Inf"), count);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count);
    }

    /// A histogram without labels.
    pub(super) fn spread(&mut self, spread: &Spread) {
        let mut up_to = 0;
        for (bound, count) in spread.bounds.iter().zip(&spread.counts) {
            up_to += count;
            self.line("_bucket", &[], Some(bound), up_to);
        }
        let all: u64 = spread.counts.iter().sum();
        self.line("_bucket", &[], Some(&"+Inf"), all);
        self.line("_sum", &[], None, spread.sum);
        self.line("_count", &[], None, all);
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &[&str],
        bound: Option<&dyn Display>,
        value: impl Display,
    ) {
        debug_assert_eq!(labels.len(), self.metric.labels.len(), "{}", self.metric.name);
        self.text.push_str(self.metric.name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in self.metric.labels.iter().zip(labels) {
            let _ = write!(self.text, "{separator}{name}=\"{}\"", Escaped(value));
            separator = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(self.text, "{separator}le=\"{bound}\"");
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn without(name: &'static str, suffix: &str) -> &'static str {
    name.strip_suffix(suffix).unwrap_or(name)
}

/// A bound in seconds. Its text never changes, since it names a series: whole
/// numbers have a fraction too, as OpenMetrics wants it.
struct Bound(Duration);

impl Display for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        write!(out, "{seconds}{}", if seconds.fract() == 0.0 { ".0" } else { "" })
    }
}

/// Text between quotes, or the rest of a line.
struct Escaped<'t>(&'t str);

impl Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['\\', '"', '\n']) {
            let (clean, special) = rest.split_at(at);
            out.write_str(clean)?;
            out.write_str(match special.as_bytes().first() {
                Some(b'\\') => "\\\\",
                Some(b'"') => "\\\"",
                _ => "\\n",
            })?;
            rest = special.get(1..).unwrap_or_default();
        }
        out.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::{
        BUILD_INFO, KILL_SWITCH, REQUEST_DURATION, REQUESTS, STORE_KEYS,
    };
    use super::*;

    fn page(format: Format) -> String {
        let mut page = Exposition::new(format);
        page.family(REQUESTS).sample(&["rls", "refused"], 3);
        page.family(BUILD_INFO).sample(&["1\\\"2\n"], 1);
        page.single(KILL_SWITCH, 0);
        let mut durations = page.family(REQUEST_DURATION);
        let up_to = [(Duration::from_micros(5), 1), (Duration::from_secs(1), 2)];
        durations.histogram(&["rls"], up_to, 3, 4.5);
        page.finish()
    }

    #[test]
    fn openmetrics_names_families_without_suffix_and_ends_with_a_mark() {
        let expected = r#"# HELP tidegate_requests Requests answered, by door and answer.
# TYPE tidegate_requests counter
tidegate_requests_total{door="rls",answer="refused"} 3
# HELP tidegate_build The version of the program.
# TYPE tidegate_build info
tidegate_build_info{version="1\\\"2\n"} 1
# HELP tidegate_kill_switch 1 while everything is switched off and every request passes.
# TYPE tidegate_kill_switch gauge
tidegate_kill_switch 0
# HELP tidegate_request_duration_seconds Time from a whole request to its answer.
# TYPE tidegate_request_duration_seconds histogram
tidegate_request_duration_seconds_bucket{door="rls",le="0.000005"} 1
tidegate_request_duration_seconds_bucket{door="rls",le="1.0"} 2
tidegate_request_duration_seconds_bucket{door="rls",le="+Inf"} 3
tidegate_request_duration_seconds_sum{door="rls"} 4.5
tidegate_request_duration_seconds_count{door="rls"} 3
# EOF
"#;
        assert_eq!(page(Format::OpenMetrics), expected);
    }

    #[test]
    fn the_older_format_names_counters_in_full_and_calls_infos_gauges() {
        let page = page(Format::Prometheus);
        assert!(page.contains("# TYPE tidegate_requests_total counter\n"), "{page}");
        assert!(page.contains("# TYPE tidegate_build_info gauge\n"), "{page}");
        assert!(!page.contains("# EOF"), "{page}");
    }

    #[test]
    fn the_format_is_the_one_that_is_accepted() {
        let asked =
            |accept: &'static str| Format::asked_for(Some(&HeaderValue::from_static(accept)));
        assert_eq!(Format::asked_for(None), Format::Prometheus);
        assert_eq!(asked("*/*"), Format::Prometheus);
        assert_eq!(asked("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), Format::Prometheus);
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.3";
        assert_eq!(asked(prometheus), Format::OpenMetrics);
    }

    #[test]
    fn a_gauge_without_labels_has_no_braces() {
        let mut page = Exposition::new(Format::Prometheus);
        page.single(STORE_KEYS, 7);
        assert!(page.finish().ends_with("\ntidegate_store_keys 7\n"));
    }
}
