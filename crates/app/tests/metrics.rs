//! The tables of metrics of all crates, together: well named, and the same as in docs/metrics.md and the alert rules.

#[path = "support/grafana.rs"]
mod grafana;
#[path = "support/metric_tables.rs"]
mod metric_tables;

use std::collections::BTreeSet;
use std::path::Path;

use metric_tables::TABLES;
use tidegate_metrics::{Kind, Metric};

/// The metrics of the service, and those of the forwarder.
fn metrics() -> impl Iterator<Item = &'static Metric> {
    service_metrics().chain(tidegate_forwarder::FORWARDER_METRICS.iter().copied())
}

fn service_metrics() -> impl Iterator<Item = &'static Metric> {
    TABLES.iter().flat_map(|table| table.iter().copied())
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn names_end_as_their_kind_does() {
    for metric in metrics() {
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{metric:?}");
        assert_eq!(metric.name.ends_with("_info"), metric.kind == Kind::Info, "{metric:?}");
    }
}

#[test]
fn no_name_is_used_twice_without_its_ending() {
    let short = |name: &'static str| {
        ["_total", "_info"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
    };
    let mut names: Vec<&str> = metrics().map(|metric| short(metric.name)).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

#[test]
fn the_documentation_lists_every_metric_once_and_no_other() {
    let text = read("docs/metrics.md");
    let is_row = |line: &&str| line.starts_with("| `tidegate_") || line.starts_with("| `process_");
    let rows: Vec<&str> = text.lines().filter(is_row).collect();
    let row = |metric: &Metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (metric.name, metric.kind.as_str());
        format!("| `{name}` | {kind} | {} | {} |", labels.join(", "), metric.help)
    };
    let expected: BTreeSet<String> = metrics().map(row).collect();
    let documented: BTreeSet<String> = rows.iter().map(|row| (*row).to_owned()).collect();
    assert_eq!(documented.len(), rows.len(), "a row is there twice");
    let missing: Vec<&String> = expected.difference(&documented).collect();
    let unknown: Vec<&String> = documented.difference(&expected).collect();
    assert!(missing.is_empty(), "docs/metrics.md lacks these rows: {missing:#?}");
    assert!(unknown.is_empty(), "docs/metrics.md has rows of no table: {unknown:#?}");
}

/// The metrics that a text names, without what Prometheus adds to histograms.
fn named(text: &str) -> Vec<&str> {
    let not_in_names = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
    let words = text.split(not_in_names).filter(|word| word.starts_with("tidegate_"));
    let ends = ["_bucket", "_sum", "_count"];
    words.map(|word| ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word)).collect()
}

#[test]
fn alerts_recording_rules_and_the_dashboard_name_only_metrics_that_there_are() {
    let files = [
        "examples/prometheus/alerts.yaml",
        "examples/prometheus/recording.yaml",
        "examples/grafana/tidegate.json",
        "docs/on-call.md",
    ];
    for file in files {
        let text = read(file);
        let names = named(&text);
        assert!(names.len() >= 5, "{file}: {}", names.len());
        for name in names {
            assert!(metrics().any(|metric| metric.name == name), "{file}: {name}");
        }
    }
}

#[test]
fn alerts_use_only_series_that_are_recorded() {
    let recorded = read("examples/prometheus/recording.yaml");
    let texts = ["alerts.yaml"].map(|file| read(&format!("examples/prometheus/{file}")));
    let texts = texts.into_iter().chain([read("examples/autoscaling/keda.yaml")]);
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    for text in texts {
        let words = text.split(|letter| !is_name(letter));
        for word in words.filter(|word| word.starts_with("tidegate:")) {
            assert!(recorded.contains(&format!("record: {word}\n")), "{word}");
        }
    }
}

#[test]
fn the_dashboard_is_made_of_the_tables() {
    let made = grafana::dashboard(service_metrics());
    let hint = "run `cargo run -p tidegate-app --example bless_grafana`";
    assert!(read("examples/grafana/tidegate.json") == made, "{hint}");
}
