//! A Grafana dashboard with every metric of the tables: an overview, then a row for each group of metrics.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_metrics::{Kind, Metric};

/// Panels in a row of the dashboard.
const COLUMNS: u64 = 3;
const WIDTH: u64 = 24 / COLUMNS;
const HEIGHT: u64 = 7;

/// What people look at first: title, unit and query.
const OVERVIEW: &[(&str, &str, &str)] = &[
    (
        "Hits per second by outcome",
        "short",
        "sum by (outcome) (rate(tidegate_rule_hits_total{instance=~\"$instance\"}[$__rate_interval]))",
    ),
    (
        "Limits that refuse most",
        "percentunit",
        "topk(10, sum by (domain, rule, limit) (rate(tidegate_rule_hits_total{outcome=\"over\",instance=~\"$instance\"}[$__rate_interval])) / sum by (domain, rule, limit) (rate(tidegate_rule_hits_total{instance=~\"$instance\"}[$__rate_interval])))",
    ),
    (
        "Decision time, 99th percentile",
        "s",
        "histogram_quantile(0.99, sum by (door, le) (rate(tidegate_request_duration_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
    ),
    (
        "Limiter's share of request time",
        "percentunit",
        "sum(rate(tidegate_request_duration_seconds_sum{door=\"gateway\",instance=~\"$instance\"}[$__rate_interval])) / sum(rate(tidegate_goodput_duration_seconds_sum{instance=~\"$instance\"}[$__rate_interval]))",
    ),
    (
        "Shed requests per second",
        "short",
        "sum by (limiter, category) (rate(tidegate_decisions_total{outcome=\"reject\",instance=~\"$instance\"}[$__rate_interval]))",
    ),
    (
        "Something is off",
        "short",
        "max by (instance) (tidegate_kill_switch{instance=~\"$instance\"}) or max by (instance) (tidegate_rules_stale{instance=~\"$instance\"}) or max by (instance) (tidegate_remote_degraded{instance=~\"$instance\"}) or max by (instance) (tidegate_fleet_fallback{instance=~\"$instance\"})",
    ),
];

/// The dashboard as JSON text.
pub(crate) fn dashboard<'m>(metrics: impl Iterator<Item = &'m Metric>) -> String {
    let mut panels = Vec::new();
    let mut top = add_row(&mut panels, 0, "Overview", false);
    let overview =
        OVERVIEW.iter().map(|(title, unit, query)| (*title, "", *unit, (*query).to_owned()));
    top = add_panels(
        &mut panels,
        top,
        overview.map(|one| (one.0.to_owned(), one.1, one.2, vec![one.3])),
    );
    let mut groups: BTreeMap<String, Vec<&Metric>> = BTreeMap::new();
    for metric in metrics.filter(|metric| metric.kind != Kind::Info) {
        groups.entry(group_of(metric.name)).or_default().push(metric);
    }
    for (group, metrics) in groups {
        top = add_row(&mut panels, top, &group, true);
        let rows = metrics.iter().map(|metric| {
            (metric.name.to_owned(), metric.help, unit_of(metric), vec![query(metric)])
        });
        top = add_panels(&mut panels, top, rows);
    }
    let board = json!({
        "uid": "tidegate",
        "title": "Tidegate",
        "tags": ["tidegate"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
            {
                "name": "instance", "type": "query", "label": "Instance", "multi": true, "includeAll": true,
                "allValue": ".*", "current": {"text": "All", "value": "$__all"},
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "query": "label_values(tidegate_rules_in_place, instance)", "refresh": 2
            }
        ]},
        "panels": panels,
    });
    serde_json::to_string_pretty(&board).expect("a value can be written") + "\n"
}

/// `tidegate_remote_calls_total` belongs to `remote`.
fn group_of(name: &str) -> String {
    name.split('_').nth(1).unwrap_or(name).to_owned()
}

fn unit_of(metric: &Metric) -> &'static str {
    let name = metric.name.trim_end_matches("_total");
    match () {
        () if name.ends_with("_timestamp_seconds") || name.ends_with("_start_time_seconds") => {
            "dateTimeFromNow"
        }
        () if name.ends_with("_seconds") => "s",
        () if name.ends_with("_bytes") => "bytes",
        () if name.ends_with("_ratio") => "percentunit",
        () => "short",
    }
}

fn query(metric: &Metric) -> String {
    let Metric { name, kind, labels, .. } = metric;
    let by = labels.join(", ");
    let selected = "{instance=~\"$instance\"}";
    match kind {
        Kind::Counter => format!("sum by ({by}) (rate({name}{selected}[$__rate_interval]))"),
        Kind::Histogram => {
            let by: Vec<&str> = labels.iter().copied().chain(["le"]).collect();
            format!(
                "histogram_quantile(0.99, sum by ({}) (rate({name}_bucket{selected}[$__rate_interval])))",
                by.join(", ")
            )
        }
        Kind::Gauge | Kind::Info if name.ends_with("_timestamp_seconds") => {
            format!("{name}{selected} * 1000")
        }
        Kind::Gauge | Kind::Info => format!("{name}{selected}"),
    }
}

fn add_row(panels: &mut Vec<Value>, top: u64, title: &str, collapsible: bool) -> u64 {
    let title = if collapsible { format!("All metrics: {title}") } else { title.to_owned() };
    panels.push(json!({
        "id": panels.len() + 1,
        "type": "row",
        "title": title,
        "collapsed": false,
        "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
        "panels": [],
    }));
    top + 1
}

fn add_panels<'h>(
    panels: &mut Vec<Value>,
    top: u64,
    all: impl Iterator<Item = (String, &'h str, &'static str, Vec<String>)>,
) -> u64 {
    let mut end = top;
    for (index, (title, help, unit, queries)) in (0_u64..).zip(all) {
        let (x, y) = (index % COLUMNS * WIDTH, top + index / COLUMNS * HEIGHT);
        let targets: Vec<Value> =
            queries.iter().map(|query| json!({"expr": query, "refId": "A"})).collect();
        panels.push(json!({
            "id": panels.len() + 1,
            "type": "timeseries",
            "title": title,
            "description": help,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "gridPos": {"h": HEIGHT, "w": WIDTH, "x": x, "y": y},
            "targets": targets,
        }));
        end = y + HEIGHT;
    }
    end
}
