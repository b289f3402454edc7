//! The text of a scrape, in the two formats that scrapers read: OpenMetrics 1.0 and Prometheus 0.0.4.
//!
//! Both formats require the samples of a family to follow each other, so a family is written in one piece. A sample
//! gives label values in the order in which the table names the labels.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};
use std::time::Duration;

use crate::table::{Kind, Metric};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The Prometheus text format, 0.0.4.
    Prometheus,
}

impl Format {
    /// The format for the value of an `Accept` header: OpenMetrics if it is listed.
    pub fn negotiate(accept: &str) -> Self {
        let types = accept.split(',').map(|range| range.split(';').next().unwrap_or_default());
        let open = types.map(str::trim).any(|kind| kind == "application/openmetrics-text");
        if open { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// The content type of the page.
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A page of metrics under construction.
#[derive(Debug)]
pub struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    /// An empty page.
    pub const fn new(format: Format) -> Self {
        Exposition { format, text: String::new() }
    }

    /// Starts a family; its samples follow.
    pub fn family(&mut self, metric: &'static Metric) -> Family<'_> {
        let name = match (self.format, metric.kind) {
            (Format::OpenMetrics, Kind::Counter) => without(metric.name, "_total"),
            (Format::OpenMetrics, Kind::Info) => without(metric.name, "_info"),
            _ => metric.name,
        };
        let kind = match (self.format, metric.kind) {
            (Format::Prometheus, Kind::Info) => Kind::Gauge,
            (_, kind) => kind,
        };
        let _ = writeln!(self.text, "# HELP {name} {}", escape(metric.help));
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.as_str());
        Family { metric, text: &mut self.text }
    }

    /// A family with one sample and no labels.
    pub fn single(&mut self, metric: &'static Metric, value: impl Display) {
        self.family(metric).sample(&[], value);
    }

    /// A family with one label: a sample for each of its values.
    pub fn by_label<'l, V: Display>(
        &mut self,
        metric: &'static Metric,
        samples: impl IntoIterator<Item = (&'l str, V)>,
    ) {
        let mut family = self.family(metric);
        for (label, value) in samples {
            family.sample(&[label], value);
        }
    }

    /// The finished page.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// The samples of one metric.
#[derive(Debug)]
pub struct Family<'e> {
    metric: &'static Metric,
    text: &'e mut String,
}

impl Family<'_> {
    /// One sample, with its label values in the order of the table.
    pub fn sample(&mut self, labels: &[&str], value: impl Display) {
        self.line("", labels, None, value);
    }

    /// A histogram: upper bounds in ascending order, the number of values in each bucket (not cumulative; counts beyond
    /// the last bound belong to `+Inf`), and the sum of all values.
    pub fn histogram<B: Display>(
        &mut self,
        labels: &[&str],
        bounds: impl IntoIterator<Item = B>,
        counts: &[u64],
        sum: f64,
    ) {
        let mut up_to = 0;
        for (bound, count) in bounds.into_iter().zip(counts) {
            up_to += count;
            self.line("_bucket", labels, Some(&bound), up_to);
        }
        // From the buckets and not from a counter of its own: a request that is being counted during the scrape must
        // not be in one sample and missing from the other.
        let all: u64 = counts.iter().sum();
        self.line("_bucket", labels, Some(&"+Inf"), all);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, all);
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
            let _ = write!(self.text, "{separator}{name}=\"{}\"", escape(value));
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

/// A bucket bound in seconds. Whole numbers are written with a fraction, as OpenMetrics requires. The text is part of a
/// series' identity and must never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        write!(out, "{seconds}{}", if seconds.fract() == 0.0 { ".0" } else { "" })
    }
}

/// The text with backslashes, quotes and line breaks escaped, for a label value or a help line.
fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return text.into();
    }
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::metrics! {
        TABLE:
        REQUESTS = Counter "test_requests_total" ["door", "answer"]
            "Requests.";
        BUILD = Info "test_build_info" ["version"]
            "The version.";
        SWITCH = Gauge "test_switch" []
            "1 while off.";
        DURATION = Histogram "test_duration_seconds" ["door"]
            "Time.";
    }

    fn page(format: Format) -> String {
        let mut page = Exposition::new(format);
        page.family(REQUESTS).sample(&["rls", "refused"], 3);
        page.by_label(BUILD, [("1\\\"2\n", 1)]);
        page.single(SWITCH, 0);
        let bounds = [Duration::from_micros(5), Duration::from_secs(1)].map(Seconds);
        page.family(DURATION).histogram(&["rls"], bounds, &[1, 1, 1], 4.5);
        page.finish()
    }

    #[test]
    fn openmetrics_names_families_without_suffix_and_ends_with_a_mark() {
        let expected = r#"# HELP test_requests Requests.
# TYPE test_requests counter
test_requests_total{door="rls",answer="refused"} 3
# HELP test_build The version.
# TYPE test_build info
test_build_info{version="1\\\"2\n"} 1
# HELP test_switch 1 while off.
# TYPE test_switch gauge
test_switch 0
# HELP test_duration_seconds Time.
# TYPE test_duration_seconds histogram
test_duration_seconds_bucket{door="rls",le="0.000005"} 1
test_duration_seconds_bucket{door="rls",le="1.0"} 2
test_duration_seconds_bucket{door="rls",le="+Inf"} 3
test_duration_seconds_sum{door="rls"} 4.5
test_duration_seconds_count{door="rls"} 3
# EOF
"#;
        assert_eq!(page(Format::OpenMetrics), expected);
    }

    #[test]
    fn the_older_format_names_counters_in_full_and_calls_infos_gauges() {
        let page = page(Format::Prometheus);
        assert!(page.contains("# TYPE test_requests_total counter\n"), "{page}");
        assert!(page.contains("# TYPE test_build_info gauge\n"), "{page}");
        assert!(!page.contains("# EOF"), "{page}");
    }

    #[test]
    fn the_format_is_the_one_that_is_accepted() {
        assert_eq!(Format::negotiate(""), Format::Prometheus);
        assert_eq!(Format::negotiate("*/*"), Format::Prometheus);
        let older = "text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::negotiate(older), Format::Prometheus);
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.3";
        assert_eq!(Format::negotiate(prometheus), Format::OpenMetrics);
    }

    #[test]
    fn a_gauge_without_labels_has_no_braces() {
        let mut page = Exposition::new(Format::Prometheus);
        page.single(SWITCH, 7);
        assert!(page.finish().ends_with("\ntest_switch 7\n"));
    }

    #[test]
    fn a_collector_that_leaves_out_a_metric_is_found() {
        struct Incomplete;
        impl crate::Collector for Incomplete {
            fn collect(&self, out: &mut Exposition) {
                out.single(SWITCH, 1);
                out.by_label(BUILD, [("1", 1)]);
            }
        }
        let missing = crate::missing(TABLE, &Incomplete);
        assert_eq!(missing, ["test_requests_total", "test_duration_seconds"]);
    }
}
