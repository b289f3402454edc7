//! The tables of metrics of all crates, together: well named, and the same as in docs/metrics.md and the alert rules.

use std::collections::BTreeSet;
use std::path::Path;

use tidegate_metrics::{Kind, Metric};

/// Every table of the program. A table that is missing here shows up as a metric that docs/metrics.md lists and no table
/// has.
const TABLES: &[&[&Metric]] = &[
    tidegate_metrics::METER_METRICS,
    tidegate_admin::OBSERVATION_METRICS,
    tidegate_engine::ENGINE_METRICS,
    tidegate_stores::MEMORY_METRICS,
    tidegate_stores::SHARED_METRICS,
    tidegate_stores::REDIS_METRICS,
    tidegate_gateway::GATEWAY_METRICS,
    tidegate_admin::DELIVERY_METRICS,
    tidegate_admin::SWITCHBOARD_METRICS,
    tidegate_overload::OVERLOAD_METRICS,
    tidegate_admin::ADMIN_METRICS,
    tidegate_statsd::STATSD_METRICS,
];

fn metrics() -> impl Iterator<Item = &'static Metric> {
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

#[test]
fn alert_rules_name_only_metrics_that_there_are() {
    let text = read("examples/prometheus/alerts.yaml");
    let not_in_names = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
    let mut named = 0;
    for word in text.split(not_in_names).filter(|word| word.starts_with("tidegate_")) {
        let family = word.strip_suffix("_bucket").unwrap_or(word);
        assert!(metrics().any(|metric| metric.name == family), "{word}");
        named += 1;
    }
    assert!(named >= 5, "{named}");
}
