//! The declaration of metrics: name, kind, labels and help text.
//!
//! Each crate has one table per component, so that names cannot differ between the code, the page and docs/metrics.md;
//! a test of the program compares all tables with the document, both ways.

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size.
    Histogram,
    /// Carries text in its labels; its value is always 1.
    Info,
}

impl Kind {
    /// The word that both text formats use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name as samples have it; counters end in `_total`.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// One sentence on what it measures.
    pub help: &'static str,
}

/// Declares a table of metrics: a constant for each metric, and one for the whole table.
///
/// ```
/// tidegate_metrics::metrics! {
///     /// Every metric of the example.
///     pub EXAMPLE_METRICS:
///     CALLS = Counter "example_calls_total" ["kind"]
///         "Calls, by kind.";
/// }
/// assert_eq!(EXAMPLE_METRICS, [CALLS]);
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$meta:meta])*
        $visibility:vis $table:ident:
        $($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+
    ) => {
        $(const $constant: &$crate::Metric = &$crate::Metric {
            name: $name,
            kind: $crate::Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)+

        $(#[$meta])*
        $visibility const $table: &[&$crate::Metric] = &[$($constant),+];
    };
}
