//! What the pages show.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tidegate_access::AccessPolicy;
use tidegate_admin::{DebugParts, DebugSettings, DeliveryReading};
use tidegate_metrics::{AnswerKind, Meter};

use super::support::{START, Stage};

#[tokio::test]
async fn the_list_of_pages_leads_to_pages() {
    let stage = Stage::two_a_day(DebugSettings::default());
    let index = stage.get("/").await;
    assert_eq!(index.field("content-type"), Some("text/plain; charset=utf-8"));
    for line in index.body.lines().filter(|line| line.starts_with("GET")) {
        let path = line.split_whitespace().nth(1).unwrap();
        // A stream does not end; the last part of others stands for a name.
        if path == "/api/events" || path.contains('{') {
            continue;
        }
        // No log level and no gateway were given to show.
        let expected = if ["/log-level", "/gateway"].contains(&path) { 404 } else { 200 };
        assert_eq!(stage.get(path).await.status, expected, "{line}");
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_told_what_there_is() {
    let stage = Stage::two_a_day(DebugSettings::default());
    for path in ["/nothing", "/metrics/", "/Metrics", "//", "/switches/kill/x"] {
        let answer = stage.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.field("content-type"), Some("application/problem+json"));
    }
    let answer = stage.send(Method::POST, "/switches/kill", &[], "").await;
    assert_eq!((answer.status, answer.field("allow")), (405, Some("PUT, DELETE")));
    assert_eq!(stage.get("/stats?format=xml").await.status, 400);
    assert_eq!(stage.send(Method::HEAD, "/metrics", &[], "").await.status, 200);
}

#[tokio::test]
async fn the_gateways_page_is_shown_as_it_is_rendered() {
    let parts = DebugParts {
        gateway_page: Some(Box::new(|| r#"{"routes":["users"]}"#.to_owned())),
        gateway_document: Some(Box::new(|| DeliveryReading {
            loads: 3,
            failures: 1,
            last_load: Some(START),
            stale: true,
        })),
        ..DebugParts::default()
    };
    let stage = Stage::new(SEVERAL, parts);
    let answer = stage.get("/gateway").await;
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.json()["routes"], json!(["users"]));
    let stats = stage.get("/stats").await.body;
    assert!(stats.contains("tidegate.gateway.load_failures: 1"), "{stats}");
}

const SEVERAL: &str = "
- key: user
  value: vip
  rate_limit: {unit: minute, requests_per_unit: 500}
  shadow_mode: true
- key: user
  rate_limit: {unit: second, requests_per_unit: 7}
- key: free
  rate_limit: {unlimited: true}
- key: key
  limits:
  - {name: burst, algorithm: token_bucket, unit: second, requests_per_unit: 10, burst: 20}
  - {per: 5m, requests_per_unit: 100}
";

#[tokio::test]
async fn limits_are_listed_by_rule_one_line_each() {
    let stage = Stage::new(SEVERAL, DebugParts::default());
    let expected = "\
api.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, unlimited: true
api.key: unit=SECOND requests_per_unit=10, shadow_mode: false, quota_mode: false, name: burst, algorithm: token_bucket, burst: 20
api.key: unit=UNKNOWN requests_per_unit=100, shadow_mode: false, quota_mode: false, per: 300s
api.user: unit=SECOND requests_per_unit=7, shadow_mode: false, quota_mode: false
api.user_vip: unit=MINUTE requests_per_unit=500, shadow_mode: true, quota_mode: false
";
    assert_eq!(stage.get("/rlconfig").await.body, expected);
}

fn compat(rules: DeliveryReading) -> DebugParts {
    DebugParts {
        settings: DebugSettings { compat: true, ..DebugSettings::default() },
        rules: Some(Box::new(move || rules)),
        globally_shadowed: Some(Box::new(|| 4)),
        service_errors: Some(Box::new(|| 3)),
        meters: vec![asked_twice("grpc"), asked_twice("http")],
        ..DebugParts::default()
    }
}

/// A door that has answered two requests.
fn asked_twice(door: &'static str) -> Arc<Meter> {
    let meter = Arc::new(Meter::new(door));
    meter.count(AnswerKind::Admitted, Duration::ZERO);
    meter.count(AnswerKind::Refused, Duration::ZERO);
    meter
}

#[tokio::test]
async fn under_compat_statistics_have_the_names_of_upstream() {
    let rules = DeliveryReading { loads: 3, failures: 1, ..DeliveryReading::default() };
    let descriptors = "
- {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
- {key: shady, value: 10.0.0.1, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: shown, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
- key: pair
  limits:
  - {name: daily, unit: day, requests_per_unit: 9}
  - {unit: year, requests_per_unit: 9}
";
    let stage = Stage::new(descriptors, compat(rules));
    for _ in 0..7 {
        stage.check("user", "7");
    }
    for _ in 0..3 {
        assert!(stage.check("shady", "10.0.0.1"));
    }
    stage.check("shown", "a:b");
    stage.check("pair", "x");
    let expected = "\
ratelimit.service.call.should_rate_limit.redis_error: 0
ratelimit.service.call.should_rate_limit.service_error: 3
ratelimit.service.config_load_error: 1
ratelimit.service.config_load_success: 3
ratelimit.service.global_shadow_mode: 4
ratelimit.service.rate_limit.api.pair.2.near_limit: 0
ratelimit.service.rate_limit.api.pair.2.over_limit: 0
ratelimit.service.rate_limit.api.pair.2.over_limit_with_local_cache: 0
ratelimit.service.rate_limit.api.pair.2.shadow_mode: 0
ratelimit.service.rate_limit.api.pair.2.total_hits: 1
ratelimit.service.rate_limit.api.pair.2.within_limit: 1
ratelimit.service.rate_limit.api.pair.daily.near_limit: 0
ratelimit.service.rate_limit.api.pair.daily.over_limit: 0
ratelimit.service.rate_limit.api.pair.daily.over_limit_with_local_cache: 0
ratelimit.service.rate_limit.api.pair.daily.shadow_mode: 0
ratelimit.service.rate_limit.api.pair.daily.total_hits: 1
ratelimit.service.rate_limit.api.pair.daily.within_limit: 1
ratelimit.service.rate_limit.api.shady_10_0_0_1.near_limit: 1
ratelimit.service.rate_limit.api.shady_10_0_0_1.over_limit: 2
ratelimit.service.rate_limit.api.shady_10_0_0_1.over_limit_with_local_cache: 0
ratelimit.service.rate_limit.api.shady_10_0_0_1.shadow_mode: 2
ratelimit.service.rate_limit.api.shady_10_0_0_1.total_hits: 3
ratelimit.service.rate_limit.api.shady_10_0_0_1.within_limit: 1
ratelimit.service.rate_limit.api.shown_a_b.near_limit: 1
ratelimit.service.rate_limit.api.shown_a_b.over_limit: 0
ratelimit.service.rate_limit.api.shown_a_b.over_limit_with_local_cache: 0
ratelimit.service.rate_limit.api.shown_a_b.shadow_mode: 0
ratelimit.service.rate_limit.api.shown_a_b.total_hits: 1
ratelimit.service.rate_limit.api.shown_a_b.within_limit: 1
ratelimit.service.rate_limit.api.user.near_limit: 1
ratelimit.service.rate_limit.api.user.over_limit: 2
ratelimit.service.rate_limit.api.user.over_limit_with_local_cache: 0
ratelimit.service.rate_limit.api.user.shadow_mode: 0
ratelimit.service.rate_limit.api.user.total_hits: 7
ratelimit.service.rate_limit.api.user.within_limit: 5
ratelimit_server.ShouldRateLimit.total_requests: 2
";
    assert_eq!(stage.get("/stats").await.body, expected);
}

#[tokio::test]
async fn limits_of_one_rule_are_told_apart_also_where_values_are_shown() {
    let rules = "
- key: user
  value_to_metric: true
  limits:
  - {name: daily, unit: day, requests_per_unit: 9}
  - {name: yearly, unit: year, requests_per_unit: 1}
";
    let stage = Stage::new(rules, compat(DeliveryReading::default()));
    stage.check("user", "7");
    let stats = stage.get("/stats?format=json").await.json();
    let prefix = "ratelimit.service.rate_limit.api.user_7";
    assert_eq!(stats[format!("{prefix}.daily.total_hits")], json!(1));
    assert_eq!(stats[format!("{prefix}.yearly.total_hits")], json!(1));
    assert_eq!(stats[format!("{prefix}.yearly.near_limit")], json!(1));
}

#[tokio::test]
async fn unknown_domains_are_counted_under_their_name() {
    let stage = Stage::new(SEVERAL, compat(DeliveryReading::default()));
    let entries = [tidegate_engine::Entry { key: "user", value: "7" }];
    let descriptors = [tidegate_engine::Descriptor::new(&entries)];
    stage.engine.check_now(&tidegate_engine::Request::new("no\nwhere", &descriptors));
    let stats = stage.get("/stats").await.body;
    let line = "\nratelimit.service.rate_limit.no_where.domain_not_found: 1\n";
    assert!(stats.contains(line), "{stats}");
}

#[tokio::test]
async fn statistics_are_the_same_as_lines_and_as_json() {
    for compat in [false, true] {
        let stage = Stage::two_a_day(DebugSettings { compat, ..DebugSettings::default() });
        for _ in 0..3 {
            stage.check("user", "7");
        }
        let json = stage.get("/stats?format=json").await.json();
        let lines = stage.get("/stats").await.body;
        let from_lines: serde_json::Map<_, _> = lines
            .lines()
            .map(|line| {
                let (name, count) = line.split_once(": ").unwrap();
                (name.to_owned(), json!(count.parse::<u64>().unwrap()))
            })
            .collect();
        assert_eq!(json, serde_json::Value::Object(from_lines));
    }
}

#[tokio::test]
async fn without_compat_statistics_have_our_names() {
    let stage = Stage::two_a_day(DebugSettings::default());
    for _ in 0..3 {
        stage.check("user", "7");
    }
    let stats = stage.get("/stats").await.body;
    assert!(stats.contains("tidegate.rule.api.user.1.over: 1\n"), "{stats}");
    assert!(stats.contains("tidegate.rule.api.user.1.within: 2\n"), "{stats}");
    assert!(!stats.contains("ratelimit"), "{stats}");
}

#[tokio::test]
async fn the_most_refused_are_shown_first_with_their_error() {
    let stage = Stage::two_a_day(DebugSettings {
        access: AccessPolicy::local(),
        ..DebugSettings::default()
    });
    assert!(stage.get("/top").await.body.contains("nobody"));
    for user in ["7", "7", "7", "8", "8", "8", "8"] {
        stage.check("user", user);
    }
    let expected = "\
3 refusals by limits
a count is too high by at most its error

limits
    refusals      error
           3          0  api user #1

callers
    refusals      error
           2          0  user=\"8\"                                  api user #1
           1          0  user=\"7\"                                  api user #1
";
    assert_eq!(stage.get("/top").await.body, expected);
    let expected = json!({
        "refusals": 3, "missed": 0,
        "limits": [
            {"refusals": 3, "error": 0, "domain": "api", "rule": "user", "limit": "1", "shadow": false},
        ],
        "keys": [
            {"refusals": 2, "error": 0, "domain": "api", "rule": "user", "limit": "1",
             "shadow": false, "key": "user=\"8\""},
            {"refusals": 1, "error": 0, "domain": "api", "rule": "user", "limit": "1",
             "shadow": false, "key": "user=\"7\""},
        ],
        "shed": [],
    });
    assert_eq!(stage.get("/top?format=json").await.json(), expected);
    assert_eq!(stage.send(Method::DELETE, "/top", &[], "").await.status, 200);
    assert_eq!(stage.get("/top?format=json").await.json()["refusals"], json!(0));
}
