use std::collections::HashMap;
use std::sync::Arc;

use tidegate_engine::{
    CounterStore, Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, Nanos,
    Options, Source, Tally, Timestamp, compile,
};
use tidegate_stores::{Answers, Batch, FailureKind};

use super::*;

const START: Timestamp = Timestamp::from_secs(1_699_920_000);

type TestEngine = Engine<MemoryStore, ManualClock>;

/// An engine with these descriptors in the domain `api`, and what watches it.
fn watched(descriptors: &str, config: ObservationsConfig) -> (TestEngine, Arc<Observations>) {
    let text = format!("domain: api\ndescriptors:\n{descriptors}");
    let rules = compile(&[Source::new("rules.yaml", text)], &Options::default())
        .unwrap_or_else(|report| panic!("{report}"));
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let observations = Arc::new(Observations::new(config));
    let engine = Engine::new(store, ManualClock::at(START))
        .with_rules(rules)
        .with_observer(Arc::clone(&observations) as Arc<dyn Observer>);
    (engine, observations)
}

fn one_a_day(extra: &str) -> String {
    format!("- {{key: user, rate_limit: {{unit: day, requests_per_unit: 1}}{extra}}}")
}

fn check(engine: &TestEngine, user: &str) -> Verdict {
    let entries = [Entry { key: "user", value: user }];
    engine.check_now(&Request::new("api", &[Descriptor::new(&entries)]))
}

#[test]
fn admitted_requests_leave_no_trace() {
    let (engine, observations) = watched(&one_a_day(""), ObservationsConfig::default());
    check(&engine, "7");
    let reading = observations.recent();
    assert_eq!((reading.refusals, reading.limits.len(), reading.keys.len()), (0, 0, 0));
    assert!(observations.values().is_empty());
}

#[test]
fn refusals_are_listed_by_limit_and_by_caller() {
    let (engine, observations) = watched(&one_a_day(""), ObservationsConfig::default());
    for user in ["7", "8", "8", "8", "7", "7", "7"] {
        check(&engine, user);
    }
    let reading = observations.recent();
    assert_eq!(reading.refusals, 5);
    let limits: Vec<_> =
        reading.limits.iter().map(|row| (row.refusals, row.label.rule.as_str())).collect();
    assert_eq!(limits, [(5, "user")]);
    let keys: Vec<_> =
        reading.keys.iter().map(|row| (row.refusals, row.label.key.as_str())).collect();
    assert_eq!(keys, [(3, r#"user="7""#), (2, r#"user="8""#)]);
}

#[test]
fn what_shadow_would_refuse_is_listed_as_let_through() {
    let rules = one_a_day(", shadow_mode: true");
    let (engine, observations) = watched(&rules, ObservationsConfig::default());
    assert!(check(&engine, "7").is_admitted());
    assert!(check(&engine, "7").is_admitted());
    let reading = observations.recent();
    assert_eq!(reading.limits.len(), 1);
    assert!(reading.limits[0].label.shadow);
}

#[test]
fn who_is_turned_away_after_all_is_listed_once() {
    let rules = "- {key: user, limits: [{algorithm: leaky_bucket, unit: hour, requests_per_unit: 1}, \
                 {name: dark, unit: day, requests_per_unit: 1, mode: shadow}]}";
    let (engine, observations) = watched(rules, ObservationsConfig::default());
    check(&engine, "7");
    let mut verdict = check(&engine, "7");
    assert!(verdict.is_admitted() && verdict.delay() > Nanos::ZERO);
    let entries = [Entry { key: "user", value: "7" }];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request::new("api", &descriptors);
    engine.turn_away(&request, &mut verdict, Nanos::from_secs(1));
    let limits = observations.recent().limits.into_iter();
    let mut limits: Vec<_> =
        limits.map(|row| (row.refusals, row.label.limit, row.label.shadow)).collect();
    limits.sort();
    assert_eq!(limits, [(1, "1".to_owned(), false), (1, "dark".to_owned(), true)]);
}

#[test]
fn hits_by_value_of_who_is_turned_away_are_over() {
    let rules = "- {key: user, detailed_metric: true, \
                 limits: [{algorithm: leaky_bucket, unit: hour, requests_per_unit: 1, queue: 9}]}";
    let (engine, observations) = watched(rules, ObservationsConfig::default());
    let entries = [Entry { key: "user", value: "7" }];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request::new("api", &descriptors);
    let before = {
        check(&engine, "7");
        observations.values()[0].tally
    };
    for _ in 0..2 {
        let mut verdict = check(&engine, "7");
        engine.turn_away(&request, &mut verdict, Nanos::from_secs(1));
    }
    assert_eq!(observations.values()[0].tally, Tally { over: 2, ..before });
}

#[test]
fn who_only_looks_or_gives_back_is_not_listed() {
    let rules = one_a_day(", detailed_metric: true");
    let (engine, observations) = watched(&rules, ObservationsConfig::default());
    check(&engine, "7");
    let entries = [Entry { key: "user", value: "7" }];
    let descriptors = [Descriptor::new(&entries)];
    let peeked = engine.apply_now(Verb::Peek, &Request::new("api", &descriptors));
    assert!(!peeked.is_admitted());
    for verb in [Verb::Refund, Verb::Reset] {
        engine.apply_now(verb, &Request::new("api", &descriptors));
    }
    assert_eq!(observations.recent().refusals, 0);
    assert_eq!(observations.values()[0].tally, Tally { within: 1, near: 1, ..Tally::default() });
}

#[test]
fn what_is_switched_off_is_not_observed() {
    let (engine, observations) = watched(&one_a_day(""), ObservationsConfig::default());
    engine.switch_off(true);
    for _ in 0..3 {
        check(&engine, "7");
    }
    assert_eq!(observations.recent().refusals, 0);
    assert!(observations.unknown_domains().is_empty());
}

#[test]
fn hits_near_a_limit_are_those_of_its_last_fifth() {
    let rules =
        "- {key: user, rate_limit: {unit: day, requests_per_unit: 7}, detailed_metric: true}";
    let (engine, observations) = watched(rules, ObservationsConfig::default());
    let near = |_| {
        check(&engine, "7");
        observations.values()[0].tally.near
    };
    // Four fifths of seven are five and a bit.
    assert_eq!([(); 9].map(near), [0, 0, 0, 0, 0, 1, 2, 2, 2]);
}

#[test]
fn callers_cannot_forge_lines_or_fill_them() {
    let (engine, observations) = watched(&one_a_day(""), ObservationsConfig::default());
    let nasty = "a\n\u{1b}[31m\"b".to_owned();
    let long = "ä".repeat(100_000);
    for user in [&nasty, &long, &nasty, &long] {
        check(&engine, user);
    }
    let keys: Vec<String> =
        observations.recent().keys.into_iter().map(|row| row.label.key).collect();
    assert!(keys.contains(&r#"user="a\n\u{1b}[31m\"b""#.to_owned()), "{keys:?}");
    assert!(keys.iter().all(|key| key.len() < 220), "{keys:?}");
    assert!(keys.iter().all(|key| !key.contains(char::is_control)), "{keys:?}");
}

#[test]
fn the_most_refused_are_found_in_a_flood_of_callers() {
    let config = ObservationsConfig { top: 5, ..ObservationsConfig::default() };
    let (engine, observations) = watched(&one_a_day(""), config);
    check(&engine, "0");
    let refused = check(&engine, "0");
    observations.clear_top();
    // The same verdict for everyone: what is counted depends on the request.
    let mut truly: HashMap<String, u64> = HashMap::new();
    for number in 0..200_000_u64 {
        let user = if number % 10 < 5 {
            format!("heavy-{}", number % 5)
        } else {
            format!("light-{number}")
        };
        let entries = [Entry { key: "user", value: &user }];
        observations.observe(
            Verb::Check,
            &Request::new("api", &[Descriptor::new(&entries)]),
            &refused,
        );
        *truly.entry(format!("user={user:?}")).or_default() += 1;
    }
    let reading = observations.recent();
    assert_eq!(reading.refusals, 200_000);
    assert_eq!(reading.keys.len(), 5);
    for row in reading.keys {
        assert!(row.label.key.starts_with("user=\"heavy-"), "{row:?}");
        let truly = truly[&row.label.key];
        assert!((row.refusals - row.error..=row.refusals).contains(&truly), "{row:?}, {truly}");
    }
}

#[test]
fn refusals_of_all_threads_are_counted_or_missed() {
    const EACH: u64 = 5_000;
    let (engine, observations) = watched(&one_a_day(""), ObservationsConfig::default());
    check(&engine, "7");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    check(&engine, "7");
                }
            });
        }
    });
    let reading = observations.recent();
    let by_limit: u64 = reading.limits.iter().map(|row| row.refusals).sum();
    let by_key: u64 = reading.keys.iter().map(|row| row.refusals).sum();
    assert_eq!(by_limit + by_key + reading.missed, 2 * 4 * EACH);
    assert!(by_key > 0);
}

#[test]
fn hits_are_kept_by_value_where_a_rule_asks_for_it() {
    let rules = format!(
        "{}\n- {{key: plain, rate_limit: {{unit: day, requests_per_unit: 5}}}}",
        one_a_day(", value_to_metric: true")
    );
    let (engine, observations) = watched(&rules, ObservationsConfig::default());
    for user in ["7", "8", "8"] {
        check(&engine, user);
    }
    let entries = [Entry { key: "plain", value: "secret" }];
    engine.check_now(&Request::new("api", &[Descriptor::new(&entries)]));
    let series: Vec<_> = observations
        .values()
        .into_iter()
        .map(|series| (series.labels.path, series.tally.within, series.tally.over))
        .collect();
    assert_eq!(series, [("user_7".to_owned(), 1, 0), ("user_8".to_owned(), 1, 1)]);
}

#[test]
fn a_million_values_stay_within_the_maximum_of_series_and_add_up() {
    const VALUES: u64 = 1_000_000;
    let config = ObservationsConfig { detailed_series_max: 100, ..ObservationsConfig::default() };
    let (engine, observations) = watched(&one_a_day(", detailed_metric: true"), config);
    let admitted = check(&engine, "0");
    let mut value = String::new();
    for number in 1..VALUES {
        value.clear();
        let _ = std::fmt::Write::write_fmt(&mut value, format_args!("{number}"));
        let entries = [Entry { key: "user", value: &value }];
        observations.observe(
            Verb::Check,
            &Request::new("api", &[Descriptor::new(&entries)]),
            &admitted,
        );
    }
    let series = observations.values();
    assert_eq!(series.len(), 101);
    assert_eq!(series.iter().map(|series| series.tally.within).sum::<u64>(), VALUES);
    assert_eq!(observations.hits_beyond_series(), VALUES - 100);
    let others =
        series.iter().find(|series| series.labels.path == tidegate_engine::OTHERS).unwrap();
    assert_eq!(others.tally.within, VALUES - 100);
}

#[test]
fn long_values_that_are_cut_alike_share_a_series() {
    let rules = one_a_day(", detailed_metric: true");
    let (engine, observations) = watched(&rules, ObservationsConfig::default());
    let start = "x".repeat(10_000);
    check(&engine, &format!("{start}1"));
    check(&engine, &format!("{start}2"));
    let series = observations.values();
    assert_eq!(series.len(), 1);
    assert_eq!(series[0].tally.within, 2);
}

#[test]
fn requests_for_unknown_domains_are_counted_by_descriptor() {
    let (engine, observations) = watched(&one_a_day(""), ObservationsConfig::default());
    let entries = [Entry { key: "user", value: "7" }];
    let descriptors = [Descriptor::new(&entries), Descriptor::new(&entries)];
    engine.check_now(&Request::new("nowhere", &descriptors));
    assert_eq!(observations.unknown_domains(), [("nowhere".to_owned(), 2)]);
}

/// A store that cannot be asked.
struct Broken;

impl CounterStore for Broken {
    async fn apply(&self, _batch: &Batch<'_>, _answers: &mut Answers) -> Result<(), StoreError> {
        Err(StoreError::Unavailable { kind: FailureKind::Refused, reason: "cable cut".to_owned() })
    }

    fn give_back(&self, _: &Batch<'_>) {}
}

#[tokio::test]
async fn what_could_not_be_decided_is_counted_by_reason_and_never_as_a_refusal() {
    let text = format!("domain: api\ndescriptors:\n{}", one_a_day(""));
    let rules = compile(&[Source::new("rules.yaml", text)], &Options::default()).unwrap();
    let observations = Arc::new(Observations::default());
    let engine = Engine::new(Broken, ManualClock::at(START))
        .with_rules(rules)
        .with_failure_mode(tidegate_engine::FailureMode::Refuse)
        .with_observer(Arc::clone(&observations) as Arc<dyn Observer>);
    let entries = [Entry { key: "user", value: "7" }];
    assert!(!engine.check(&Request::new("api", &[Descriptor::new(&entries)])).await.is_admitted());
    assert_eq!(observations.undecided(Reason::StoreUnavailable), 1);
    assert_eq!(observations.recent().refusals, 0);

    let many = vec![Descriptor::new(&entries); tidegate_engine::DESCRIPTORS_MAX + 1];
    engine.check(&Request::new("api", &many)).await;
    assert_eq!(observations.undecided(Reason::TooManyDescriptors), 1);
}
