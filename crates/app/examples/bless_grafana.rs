//! Writes the Grafana dashboard of `examples/grafana` from the tables of metrics, for review.

#[path = "../tests/support/grafana.rs"]
mod grafana;
#[path = "../tests/support/metric_tables.rs"]
mod metric_tables;

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/grafana");
    fs::create_dir_all(&folder)?;
    let metrics = metric_tables::TABLES.iter().flat_map(|table| table.iter().copied());
    fs::write(folder.join("tidegate.json"), grafana::dashboard(metrics))
}
