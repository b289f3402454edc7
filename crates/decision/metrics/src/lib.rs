//! Metrics: how a crate declares them, counts them and shows them.
//!
//! A crate lists its metrics in one table with [`metrics!`] and writes their current values with a [`Collector`]. The
//! admin port calls all collectors on each scrape and returns the [`Exposition`]. [`Meter`] counts the requests of a
//! door.
//!
//! ```
//! use tidegate_metrics::{Collector, Exposition, Format};
//!
//! tidegate_metrics::metrics! {
//!     /// The metrics of the queue.
//!     pub QUEUE_METRICS:
//!     WAITING = Gauge "queue_waiting" []
//!         "Jobs that wait.";
//! }
//!
//! struct Queue(Vec<String>);
//!
//! impl Collector for Queue {
//!     fn collect(&self, out: &mut Exposition) {
//!         out.single(WAITING, self.0.len());
//!     }
//! }
//!
//! let mut page = Exposition::new(Format::Prometheus);
//! Queue(vec!["job".to_owned()]).collect(&mut page);
//! assert!(page.finish().ends_with("queue_waiting 1\n"));
//! assert_eq!(QUEUE_METRICS.len(), 1);
//! ```
//!
//! There is no registry and no client library: values are kept where they are counted and read on each scrape, and the
//! usual library writes OpenMetrics only.

mod exposition;
mod meter;
mod table;

pub use exposition::{Exposition, Family, Format, Seconds};
pub use meter::{
    AnswerKind, DURATION_BOUNDS_MICROS, METER_METRICS, Meter, MeterReading, collect_meters,
};
pub use table::{Kind, Metric};

/// Writes the metrics of one part of the program.
pub trait Collector: Send + Sync {
    /// Reads the current values and writes one family for each metric. Two collectors of one page must not write the
    /// same family.
    fn collect(&self, out: &mut Exposition);
}

/// The metrics of a table that a collector does not write. For tests.
pub fn missing(table: &[&'static Metric], collector: &dyn Collector) -> Vec<&'static str> {
    let mut page = Exposition::new(Format::Prometheus);
    collector.collect(&mut page);
    let page = page.finish();
    let is_missing = |name: &str| !page.contains(&format!("# TYPE {name} "));
    table.iter().map(|metric| metric.name).filter(|name| is_missing(name)).collect()
}
