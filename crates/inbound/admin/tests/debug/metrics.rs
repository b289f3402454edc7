//! Metrics, read back by a strict parser of both formats.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tidegate_admin::{
    ADMIN_METRICS, DELIVERY_METRICS, DebugDoor, DebugParts, DebugSettings, DeliveryReading,
    OBSERVATION_METRICS, Observations, ObservationsConfig, SWITCHBOARD_METRICS,
};
use tidegate_engine::{CounterStore, ENGINE_METRICS, Engine, ManualClock, StoreError, Timestamp};
use tidegate_gateway::{GATEWAY_METRICS, GatewayReading, HostState};
use tidegate_metrics::{AnswerKind, Collector, Exposition, Kind, METER_METRICS, Meter, Metric};
use tidegate_overload::{Arrival, Caller, Category, OVERLOAD_METRICS};
use tidegate_stores::{Answers, Batch, MEMORY_METRICS, Metrics};

use super::support::{START, Stage, bare_engine, page_of, protected};

/// The tables of an engine on the store in memory, with a gateway and protection.
const TABLES: [&[&Metric]; 9] = [
    METER_METRICS,
    OBSERVATION_METRICS,
    ENGINE_METRICS,
    MEMORY_METRICS,
    GATEWAY_METRICS,
    DELIVERY_METRICS,
    SWITCHBOARD_METRICS,
    OVERLOAD_METRICS,
    ADMIN_METRICS,
];

/// One family as read back.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Reads a page, and fails on whatever the formats do not allow.
fn parse(page: &str, open_metrics: bool) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    let body = if open_metrics {
        page.strip_suffix("# EOF\n").expect("OpenMetrics ends with its mark")
    } else {
        page
    };
    assert!(body.ends_with('\n'));
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help has a name and a text");
            assert!(!help.is_empty() && is_name(name), "{line}");
            assert!(!families.contains_key(name), "{name} comes twice");
            families.insert(name.to_owned(), Family::default());
            name.clone_into(&mut current);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type has a name and a word");
            assert_eq!(name, current, "a type follows its help");
            let kinds: &[&str] = if open_metrics {
                &["counter", "gauge", "histogram", "info"]
            } else {
                &["counter", "gauge", "histogram"]
            };
            assert!(kinds.contains(&kind), "{line}");
            kind.clone_into(&mut families.get_mut(name).unwrap().kind);
        } else {
            assert!(!line.starts_with('#'), "{line}");
            let sample = parse_sample(line);
            let family = families.get_mut(&current).expect("a sample follows its family");
            let suffixes: &[&str] = match (family.kind.as_str(), open_metrics) {
                ("counter", true) => &["_total"],
                ("info", true) => &["_info"],
                ("histogram", _) => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            let suffix = sample.name.strip_prefix(current.as_str()).expect("a family's sample");
            assert!(suffixes.contains(&suffix), "{line} in {current}");
            assert!(seen.insert((sample.name.clone(), sample.labels.clone())), "twice: {line}");
            if matches!(family.kind.as_str(), "counter" | "histogram") {
                assert!(sample.value >= 0.0, "{line}");
            }
            family.samples.push(sample);
        }
    }
    families
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn parse_sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a sample has a value");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels: Vec<(String, String)> = Vec::new();
    if let Some(after) = rest.strip_prefix('{') {
        rest = after;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label has a value");
            assert!(is_name(label), "{line}");
            let (value, after) = parse_quoted(after);
            assert!(labels.iter().all(|(known, _)| known != label), "{line}");
            labels.push((label.to_owned(), value));
            rest = match after.split_at(1) {
                (",", next) => next,
                ("}", next) => {
                    rest = next;
                    break;
                }
                _ => panic!("{line}"),
            };
        }
    }
    let value = rest.strip_prefix(' ').expect("a space before the value");
    assert!(!value.contains(' '), "{line}");
    Sample { name: name.to_owned(), labels, value: value.parse().expect("a number") }
}

/// The text up to the closing quote, and what follows.
fn parse_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next().expect("something is escaped").1 {
                'n' => '\n',
                plain @ ('\\' | '"') => plain,
                other => panic!("\\{other} is no escape"),
            }),
            plain => value.push(plain),
        }
    }
    panic!("no closing quote in {text}");
}

impl Family {
    /// The value of the sample with these label values.
    fn value(&self, labels: &[&str]) -> Option<f64> {
        let same = |sample: &&Sample| sample.labels.iter().map(|(_, value)| value).eq(labels);
        self.samples.iter().find(same).map(|sample| sample.value)
    }
}

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";

async fn scrape(stage: &Stage) -> BTreeMap<String, Family> {
    let accept = [("accept", OPEN_METRICS)];
    let answer = stage.send(Method::GET, "/metrics", &accept, "").await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.field("content-type"), Some(kind));
    parse(&answer.body, true)
}

/// Parts with a source for every metric.
fn full_parts() -> DebugParts {
    let meter = Arc::new(Meter::new("rls"));
    meter.count(AnswerKind::Admitted, Duration::from_micros(30));
    meter.count(AnswerKind::Refused, Duration::from_millis(3));
    DebugParts {
        version: "1.2.3",
        meters: vec![meter],
        rules: Some(Box::new(|| DeliveryReading {
            loads: 2,
            failures: 1,
            last_load: Some(START),
            stale: true,
        })),
        switchboard: Some(protected(&bare_engine()).1),
        collectors: vec![Arc::new(gateway_reading())],
        gateway_document: Some(Box::new(|| DeliveryReading {
            loads: 3,
            failures: 2,
            last_load: Some(START),
            stale: true,
        })),
        ..DebugParts::default()
    }
}

/// What a gateway with one server shows.
fn gateway_reading() -> GatewayReading {
    let host =
        HostState { healthy: true, ejected: false, requests: 1, opened: 2, reused: 3, failures: 4 };
    GatewayReading {
        routes: vec![
            ("users".to_owned(), vec![("served", 5), ("rate_limited", 6)]),
            (String::new(), vec![("no_route", 7)]),
        ],
        upstreams: vec![("api".to_owned(), vec![("127.0.0.1:9000".to_owned(), host)])],
        waiting: 8,
        in_flight: 9,
        tunnels: 10,
        broken: 11,
        log_dropped: 12,
        kept: vec![("served", 1)],
        key_set_fetches: (1, 0),
    }
}

/// A store that several processes share.
struct SharedCounters;

impl CounterStore for SharedCounters {
    async fn apply(&self, _: &Batch<'_>, _: &mut Answers) -> Result<(), StoreError> {
        Err(StoreError::Timeout { waited: Duration::ZERO })
    }

    fn give_back(&self, _: &Batch<'_>) {}

    fn collect(&self, _: Timestamp, out: &mut Exposition) {
        let overshoot = [2, 0, 0, 0, 0, 0, 0, 1];
        let metrics = Metrics {
            fell_back_local: 4,
            dropped: 5,
            overshoot,
            overshoot_percent: 750,
            ..Metrics::default()
        };
        metrics.collect(out);
    }
}

#[tokio::test]
async fn a_shared_store_is_shown_instead_of_the_embedded_one() {
    let engine = Arc::new(Engine::new(SharedCounters, ManualClock::at(START)));
    let door = DebugDoor::new(engine, DebugParts::default());
    let page = page_of(&door, "/metrics").await;
    let families = parse(&page, false);
    assert_eq!(families["tidegate_remote_fallbacks_total"].value(&["local"]), Some(4.0));
    assert_eq!(families["tidegate_region_dropped_counts_total"].value(&[]), Some(5.0));
    assert!(!families.contains_key("tidegate_store_keys"));
    for line in [
        "tidegate_eventual_overshoot_ratio_bucket{le=\"0\"} 2",
        "tidegate_eventual_overshoot_ratio_bucket{le=\"0.5\"} 2",
        "tidegate_eventual_overshoot_ratio_bucket{le=\"+Inf\"} 3",
        "tidegate_eventual_overshoot_ratio_sum 7.5",
        "tidegate_eventual_overshoot_ratio_count 3",
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line}");
    }
}

const NASTY: &str = r#"
- {key: "us\"er\\\n", detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: plain, rate_limit: {unit: day, requests_per_unit: 2}}
"#;

fn nasty_stage() -> Stage {
    let stage = Stage::new(NASTY, full_parts());
    for value in ["a", "\"b\"", "c\nd 7\n# EOF", "\\", "", "ü\u{0}\u{7f}"] {
        stage.check("us\"er\\\n", value);
        stage.check("plain", value);
    }
    stage
}

#[tokio::test]
async fn both_formats_can_be_read_back_whatever_rules_and_callers_are_called() {
    let stage = nasty_stage();
    let open = scrape(&stage).await;
    let values = &open["tidegate_value_hits"];
    assert_eq!(
        values.value(&["api", "us\"er\\\n_c\nd 7\n# EOF", "1", "within"]),
        Some(1.0),
        "{values:?}"
    );
    let answer = stage.get("/metrics").await;
    assert_eq!(answer.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let older = parse(&answer.body, false);
    assert_eq!(older.len(), open.len());
    assert_eq!(older["tidegate_value_hits_total"].samples.len(), values.samples.len());
}

#[tokio::test]
async fn the_gateway_is_shown_by_route_and_by_server() {
    let families = scrape(&nasty_stage()).await;
    let requests = &families["tidegate_gateway_requests"];
    assert_eq!(requests.value(&["users", "rate_limited"]), Some(6.0));
    assert_eq!(requests.value(&["(none)", "no_route"]), Some(7.0));
    let of_host = |name: &str| families[name].value(&["api", "127.0.0.1:9000"]);
    assert_eq!(of_host("tidegate_upstream_healthy"), Some(1.0));
    assert_eq!(of_host("tidegate_upstream_failures"), Some(4.0));
    assert_eq!(families["tidegate_gateway_waiting_requests"].value(&[]), Some(8.0));
}

#[tokio::test]
async fn decisions_are_shown_by_limiter_mode_category_and_outcome() {
    let (protection, switchboard) = protected(&bare_engine());
    let parts = DebugParts { switchboard: Some(switchboard), ..DebugParts::default() };
    let stage = Stage::new(NASTY, parts);
    let (category, caller) = (Category::Get, Caller::named("ada"));
    let arrival = Arrival::Counted { category, caller, deadline: None };
    let Ok(screened) = protection.screen(arrival) else { panic!("it is calm") };
    let _pass = protection.enter(screened).await;
    let families = scrape(&stage).await;
    let decisions = &families["tidegate_decisions"];
    assert_eq!(decisions.samples.len(), 3 * 2 * 4 * 4);
    for limiter in ["worker", "fleet", "gate"] {
        assert_eq!(decisions.value(&[limiter, "enforce", "get", "allow"]), Some(1.0));
        assert_eq!(decisions.value(&[limiter, "enforce", "get", "reject"]), Some(0.0));
    }
    assert_eq!(families["tidegate_gate_in_flight_requests"].value(&[]), Some(1.0));
    assert_eq!(families["tidegate_gate_limit"].value(&[]), Some(8.0));
    assert_eq!(families["tidegate_limiter_mode"].value(&["gate", "enforce"]), Some(1.0));
    assert_eq!(families["tidegate_limiter_enforced_ratio"].value(&["rate"]), Some(1.0));
}

#[tokio::test]
async fn the_page_has_every_metric_of_the_tables_and_no_other() {
    let page = nasty_stage().get("/metrics").await.body;
    let families = parse(&page, false);
    let metrics = || TABLES.iter().flat_map(|table| table.iter().copied());
    let known: BTreeMap<&str, &Metric> = metrics().map(|metric| (metric.name, metric)).collect();
    for (name, family) in &families {
        let metric = known.get(name.as_str()).unwrap_or_else(|| panic!("{name} is unknown"));
        let kind = if metric.kind == Kind::Info { "gauge" } else { metric.kind.as_str() };
        assert_eq!(family.kind, kind, "{name}");
        for sample in &family.samples {
            let labels: Vec<&str> = sample
                .labels
                .iter()
                .map(|(label, _)| label.as_str())
                .filter(|l| *l != "le")
                .collect();
            assert_eq!(labels, metric.labels, "{name}");
        }
    }
    for metric in metrics() {
        // Elsewhere the system says less of a process.
        if cfg!(target_os = "linux") || !metric.name.starts_with("process_") {
            assert!(families.contains_key(metric.name), "{} is missing", metric.name);
        }
    }
}

#[tokio::test]
async fn hits_are_counted_by_limit_and_by_what_became_of_them() {
    let rules = "
- {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
- {key: shady, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: never, rate_limit: {unit: day, requests_per_unit: 1}}
";
    let stage = Stage::new(rules, DebugParts::default());
    for _ in 0..7 {
        stage.check("user", "7");
    }
    for _ in 0..3 {
        stage.check("shady", "7");
    }
    let families = scrape(&stage).await;
    let hits = &families["tidegate_rule_hits"];
    let expected = [
        ("user", [("within", 5.0), ("soft", 0.0), ("over", 2.0), ("shadow", 0.0)]),
        ("shady", [("within", 1.0), ("soft", 0.0), ("over", 0.0), ("shadow", 2.0)]),
    ];
    for (rule, counts) in expected {
        for (outcome, count) in counts {
            assert_eq!(hits.value(&["api", rule, "1", outcome]), Some(count), "{rule} {outcome}");
        }
    }
    assert_eq!(hits.samples.len(), 8, "limits that were never hit are left out: {hits:?}");
    let near = &families["tidegate_rule_near_limit_hits"];
    assert_eq!(near.value(&["api", "user", "1"]), Some(1.0));
}

#[tokio::test]
async fn rules_beyond_the_maximum_are_summed_and_counted() {
    let rules: String = (0..20)
        .map(|number| {
            format!("- {{key: k{number:02}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n")
        })
        .collect();
    let settings = DebugSettings { rules_max: 5, ..DebugSettings::default() };
    let stage = Stage::new(&rules, DebugParts { settings, ..DebugParts::default() });
    for number in 0..20 {
        stage.check(&format!("k{number:02}"), "x");
    }
    let families = scrape(&stage).await;
    let hits = &families["tidegate_rule_hits"];
    let named: BTreeSet<&str> =
        hits.samples.iter().map(|sample| sample.labels[1].1.as_str()).collect();
    assert_eq!(named.len(), 6);
    assert_eq!(hits.value(&["(others)", "(others)", "", "within"]), Some(15.0));
    assert_eq!(families["tidegate_rules_summed"].value(&[]), Some(15.0));
}

#[tokio::test]
async fn a_flood_of_values_and_domains_does_not_grow_the_page() {
    let config = ObservationsConfig { detailed_series_max: 50, ..ObservationsConfig::default() };
    let parts =
        DebugParts { observations: Arc::new(Observations::new(config)), ..DebugParts::default() };
    let rules =
        "- {key: user, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}";
    let stage = Stage::new(rules, parts);
    for number in 0..5_000 {
        let value = format!("user-{number}");
        stage.check("user", &value);
        let entries = [tidegate_engine::Entry { key: "user", value: &value }];
        let descriptors = [tidegate_engine::Descriptor::new(&entries)];
        stage.engine.check_now(&tidegate_engine::Request::new(&value, &descriptors));
    }
    let families = scrape(&stage).await;
    assert_eq!(families["tidegate_value_hits"].samples.len(), 51 * 4);
    assert_eq!(families["tidegate_metrics_dropped"].value(&["value_hits"]), Some(4_950.0));
    assert_eq!(families["tidegate_unknown_domain_descriptors"].value(&[]), Some(5_000.0));
    let lines = families.values().map(|family| family.samples.len()).sum::<usize>();
    assert!(lines < 400, "{lines}");
}

#[tokio::test]
async fn requests_and_their_durations_are_shown_by_door() {
    let stage = Stage::new(NASTY, full_parts());
    let families = scrape(&stage).await;
    let requests = &families["tidegate_requests"];
    assert_eq!(requests.value(&["rls", "admitted"]), Some(1.0));
    assert_eq!(requests.value(&["rls", "refused"]), Some(1.0));
    assert_eq!(requests.value(&["rls", "failed"]), Some(0.0));

    let durations = &families["tidegate_request_duration_seconds"];
    let buckets: Vec<&Sample> =
        durations.samples.iter().filter(|sample| sample.name.ends_with("_bucket")).collect();
    let bound = |sample: &Sample| sample.labels.last().unwrap().1.parse::<f64>().unwrap();
    assert!(buckets.windows(2).all(|pair| bound(pair[0]) < bound(pair[1])), "{buckets:?}");
    assert!(buckets.windows(2).all(|pair| pair[0].value <= pair[1].value), "{buckets:?}");
    let last = buckets.last().unwrap();
    assert_eq!((bound(last), last.value), (f64::INFINITY, 2.0));
    let named = |end: &str| {
        durations.samples.iter().find(|sample| sample.name.ends_with(end)).unwrap().value
    };
    assert_eq!(named("_count"), 2.0);
    assert!((named("_sum") - 0.003_03).abs() < 1e-9, "{durations:?}");
}

#[tokio::test]
async fn the_state_of_rules_document_and_store_is_shown() {
    let families = scrape(&Stage::new(NASTY, full_parts())).await;
    let value = |name: &str| families[name].samples[0].value;
    assert_eq!(value("tidegate_rules_loads"), 2.0);
    assert_eq!(value("tidegate_rules_load_failures"), 1.0);
    assert_eq!(value("tidegate_rules_stale"), 1.0);
    assert_eq!(value("tidegate_rules_last_load_timestamp_seconds"), 1_699_920_000.0);
    assert_eq!(value("tidegate_rules_in_place"), 2.0);
    assert_eq!(value("tidegate_gateway_loads"), 3.0);
    assert_eq!(value("tidegate_gateway_load_failures"), 2.0);
    assert_eq!(value("tidegate_gateway_stale"), 1.0);
    assert_eq!(value("tidegate_gateway_last_load_timestamp_seconds"), 1_699_920_000.0);
    assert_eq!(value("tidegate_store_budget_bytes"), 268_435_456.0);
    assert_eq!(families["tidegate_build"].value(&["1.2.3"]), Some(1.0));
}

#[tokio::test]
async fn descriptors_that_match_no_rule_are_counted_by_domain() {
    let rules = "- {key: user, rate_limit: {unit: day, requests_per_unit: 5}}";
    let stage = Stage::new(rules, DebugParts::default());
    for key in ["user", "usr", "usr"] {
        stage.check(key, "7");
    }
    let families = scrape(&stage).await;
    let unmatched = &families["tidegate_descriptors_unmatched"];
    assert_eq!(unmatched.value(&["api"]), Some(2.0));
    assert_eq!(unmatched.samples.len(), 1);
}
