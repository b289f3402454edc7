//! Metrics as pages show them after some traffic: names, types, labels and their values.

use std::collections::BTreeSet;

use super::Golden;
use crate::client::{Client, Spoken};
use crate::process::{Folder, Serving, Start};
use crate::servers::server::Server;
use crate::upstream::Upstream;

/// Labels whose values are the machine's or the version's.
const OPEN: &[&str] = &["host", "version"];

const RULES: &str = "
domain: gateway
descriptors:
  - key: user
    detailed_metric: true
    limits:
      - {name: calls, requests_per_unit: 2, unit: year}
  - key: shadowed
    mode: shadow
    rate_limit: {requests_per_unit: 1, unit: year}
  - key: leased
    rate_limit: {algorithm: token_bucket, requests_per_unit: 10000, unit: year, consistency: leased}
  - key: eventual
    rate_limit: {requests_per_unit: 10000, unit: year, consistency: eventual}
";

pub(crate) fn capture() -> Vec<Golden> {
    let mut goldens = in_memory();
    goldens.push(on_redis());
    goldens.push(compat());
    goldens
}

/// One check over the HTTP API.
fn check(serving: &mut Serving, key: &str) -> u16 {
    let entries = format!(r#"[{{"key":"{key}","value":"ada"}}]"#);
    let body = format!(r#"{{"domain":"gateway","descriptors":[{{"entries":{entries}}}]}}"#);
    serving.ask("http", "POST", "/v1/check", &[], &body).status
}

fn gateway_folder(upstream: &Upstream) -> Folder {
    let folder = Folder::with_rules(RULES);
    folder.write("gateway.yaml", &upstream.document(""));
    folder
}

fn start(folder: &Folder) -> Start<'_> {
    let gateway = ["--gateway", "gateway.yaml", "--gateway-listen", "127.0.0.1:0"];
    Start::new(folder).args(gateway).args(["--set", "overload.capacity=1"])
}

/// Every door, with admitted, refused, invalid and shed requests.
fn in_memory() -> Vec<Golden> {
    let upstream = Upstream::start();
    let folder = gateway_folder(&upstream);
    let mut serving = start(&folder).serving();
    for status in [200, 200, 429] {
        assert_eq!(serving.ask("gateway", "GET", "/x", &[("x-user", "ada")], "").status, status);
    }
    assert_eq!(check(&mut serving, "user"), 429);
    assert_eq!(check(&mut serving, "shadowed"), 200);
    assert_eq!(check(&mut serving, "shadowed"), 200);
    assert_eq!(serving.ask("http", "POST", "/v1/check", &[], "nonsense").status, 400);
    let mut grpc = Client::plain(&serving.address("grpc"), Spoken::Two);
    super::answers::should_rate_limit(&mut grpc, "gateway", "user", "bob");
    let holding = super::answers::hold(&mut serving, &upstream);
    assert_eq!(serving.get("gateway", "/x").status, 503);
    upstream.let_go();
    assert_eq!(holding.join().expect("answered").status, 200);
    let changes: [(&str, &str, &str); 3] = [
        ("PUT", "/switches/limiter", r#"{"limiter":"worker","mode":"dark"}"#),
        ("PUT", "/switches/limit", r#"{"domain":"gateway","path":"user","mode":"shadow"}"#),
        ("DELETE", "/top", ""),
    ];
    for (method, path, body) in changes {
        assert_eq!(serving.ask("debug", method, path, &[], body).status, 200, "{path}");
    }
    let wanted = [
        "tidegate_goodput_duration_seconds_count{category=\"get\"}",
        "outcome=\"served\"} 3",
        "tidegate_worker_tick_lag_seconds",
        "tidegate_scheduler_delay_seconds",
    ];
    wait_for(&mut serving, &wanted);
    let plain = serving.get("debug", "/metrics");
    let accept = [("accept", "application/openmetrics-text; version=1.0.0")];
    let open = serving.ask("debug", "GET", "/metrics", &accept, "");
    vec![
        Golden::lines("metrics/in-memory.txt", &page(&plain.head, &plain.body)),
        Golden::lines("metrics/in-memory-openmetrics.txt", &page(&open.head, &open.body)),
    ]
}

/// With limits that Redis keeps, in every consistency, and a fleet.
fn on_redis() -> Golden {
    let redis = Server::redis();
    let upstream = Upstream::start();
    let folder = gateway_folder(&upstream);
    let on_redis = ["--redis", &redis.url(), "--set", "store.redis.deadline=10s"];
    let fleet = ["--set", "overload.fleet.lease=30s"];
    let mut serving = start(&folder).args(on_redis).args(fleet).serving();
    wait_for(&mut serving, &["tidegate_remote_connections 1", "tidegate_remote_degraded 0"]);
    for status in [200, 200, 429] {
        assert_eq!(check(&mut serving, "user"), status);
    }
    for key in ["leased", "eventual", "shadowed", "shadowed"] {
        assert_eq!(check(&mut serving, key), 200);
    }
    let wanted = [
        "tidegate_fleet_lease_age_seconds",
        "tidegate_nodes 1",
        "tidegate_eventual_flushed_keys_total 1",
        "tidegate_worker_tick_lag_seconds",
        "tidegate_scheduler_delay_seconds",
    ];
    wait_for(&mut serving, &wanted);
    let shown = serving.get("debug", "/metrics");
    Golden::lines("metrics/on-redis.txt", &page(&shown.head, &shown.body))
}

/// The statistics with the names of envoyproxy/ratelimit, and our own.
fn compat() -> Golden {
    let folder = Folder::with_rules(RULES);
    let mut lines = Vec::new();
    for compat in ["none", "envoy-ratelimit"] {
        let flag = format!("--compat={compat}");
        let mut serving =
            Start::new(&folder).args([flag.as_str(), "--log-level", "info"]).serving();
        for status in [200, 200, 429] {
            assert_eq!(check(&mut serving, "user"), status);
        }
        check(&mut serving, "shadowed");
        check(&mut serving, "shadowed");
        serving.check("ada");
        let mut grpc = Client::plain(&serving.address("grpc"), Spoken::Two);
        super::answers::should_rate_limit(&mut grpc, "gateway", "user", "bob");
        lines.push(format!("--compat={compat}"));
        for line in serving.get("debug", "/stats").body.lines() {
            lines.push(format!("  {}", line.split(": ").next().unwrap_or(line)));
        }
    }
    Golden::lines("metrics/stats.txt", &lines)
}

/// Waits until the page has all of these.
fn wait_for(serving: &mut Serving, wanted: &[&str]) {
    serving.until(|serving| {
        let metrics = serving.get("debug", "/metrics").body;
        wanted.iter().all(|part| metrics.contains(part)).then_some(())
    });
}

/// The content type, and every line without what it says to people, its value and open labels.
fn page(head: &str, body: &str) -> Vec<String> {
    let content_type = head.lines().find(|line| line.starts_with("content-type: "));
    let mut lines = vec![content_type.unwrap_or_default().to_owned()];
    let mut seen = BTreeSet::new();
    for line in body.lines().filter(|line| !line.starts_with("# HELP ")) {
        let shown = if line.starts_with('#') { line.to_owned() } else { series(line) };
        if seen.insert(shown.clone()) {
            lines.push(shown);
        }
    }
    lines
}

/// A sample without its value.
fn series(line: &str) -> String {
    let Some((name, rest)) = line.split_once('{') else {
        return line.split(' ').next().unwrap_or(line).to_owned();
    };
    let labels = rest.split_once("} ").map_or(rest, |(labels, _)| labels);
    let shown: Vec<String> = labels
        .split("\",")
        .map(|label| {
            let (name, value) = label.split_once("=\"").unwrap_or((label, ""));
            let value = if OPEN.contains(&name) { "<open>" } else { value.trim_end_matches('"') };
            format!("{name}=\"{value}\"")
        })
        .collect();
    format!("{name}{{{}}}", shown.join(","))
}
