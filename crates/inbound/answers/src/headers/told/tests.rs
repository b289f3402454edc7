//! Remembered fields beside the same fields written anew.

use proptest::prelude::*;
use tidegate_engine::{
    Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, Mode, Nanos, Options,
    Request, Source, Target, Timestamp, Verdict, compile,
};

use super::super::{HeaderFormat, HeaderSet, ResetAs};
use super::{Recalled, Told};
use crate::notice::Notice;

type TestEngine = Engine<MemoryStore, ManualClock>;

const START: Timestamp = Timestamp::from_secs(1_699_920_000);

fn engine(limits: &str, options: Options) -> TestEngine {
    let text = format!("domain: api\ndescriptors:\n- {{key: user, limits: [{limits}]}}");
    let rules = compile(&[Source::new("rules.yaml", text)], &options)
        .unwrap_or_else(|report| panic!("{report}"));
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default fits");
    Engine::new(store, ManualClock::at(START)).with_rules(rules)
}

fn check(engine: &TestEngine, user: &str, cost: u64) -> Verdict {
    let entries = [Entry { key: "user", value: user }];
    let descriptors = [Descriptor::new(&entries)];
    engine.check_now(&Request::new("api", &descriptors).with_cost(cost))
}

/// What a request is told, remembered or not.
fn told(set: HeaderSet, verdict: &Verdict) -> Vec<String> {
    let fields = set.fields_of(verdict, || START);
    fields.iter().map(|(name, value)| format!("{name}: {value:?}")).collect()
}

/// What is written, then remembered, then recalled.
fn told_thrice(set: HeaderSet, verdict: &Verdict) -> Vec<String> {
    let [first, second, third] = [(); 3].map(|()| told(set, verdict));
    assert_eq!((&first, &first), (&second, &third));
    first
}

#[test]
fn what_is_told_a_second_time_is_remembered_and_nothing_else_is() {
    let engine = engine("{name: a, unit: day, requests_per_unit: 1000}", Options::default());
    let set = HeaderSet::default();
    let is_recalled = |verdict: &Verdict| {
        drop(set.fields_of(verdict, || START));
        matches!(Told::recall(set, verdict), Recalled::Known(_))
    };
    let first = check(&engine, "7", 1);
    assert!(!is_recalled(&first));
    assert!(is_recalled(&first));
    // Whatever others are told once, it stays.
    for _ in 0..900 {
        drop(set.fields_of(&check(&engine, "8", 1), || START));
    }
    assert!(is_recalled(&first));
}

/// What it is told by the way that remembers no answers.
fn written(set: HeaderSet, verdict: &Verdict) -> Vec<String> {
    let fields = set.fields(&Notice::of(verdict), START);
    fields.iter().map(|(name, value)| format!("{name}: {value:?}")).collect()
}

#[test]
fn rules_with_other_names_are_told_by_their_own() {
    let named = |name: &str| {
        let limits = format!("{{name: {name}, unit: minute, requests_per_unit: 5}}");
        let engine = engine(&limits, Options::default());
        told_thrice(HeaderSet::default(), &check(&engine, "7", 1))
    };
    assert!(named("first").contains(&r#"ratelimit: "\"first\";r=4;t=60""#.to_owned()));
    assert!(named("other").contains(&r#"ratelimit: "\"other\";r=4;t=60""#.to_owned()));
}

#[test]
fn a_month_is_told_as_long_as_it_is_taken_to_be() {
    let limits = "{name: a, unit: month, requests_per_unit: 5}";
    for calendar_months in [false, true, false] {
        let engine = engine(limits, Options { calendar_months, ..Options::default() });
        let verdict = check(&engine, "7", 1);
        let expected = written(HeaderSet::default(), &verdict);
        assert_eq!(told_thrice(HeaderSet::default(), &verdict), expected);
    }
}

#[test]
fn a_limit_that_is_put_into_shadow_is_told_no_more() {
    let limits = "{name: a, unit: hour, requests_per_unit: 9}, \
                  {name: b, unit: day, requests_per_unit: 99}";
    let engine = engine(limits, Options::default());
    let both = told_thrice(HeaderSet::default(), &check(&engine, "7", 1));
    assert!(both.contains(&r#"ratelimit: "\"a\";r=8;t=3600, \"b\";r=98;t=86400""#.to_owned()));
    let target = Target { domain: "api", path: "user", limit: Some("a") };
    let shadow = Mode::Shadow;
    assert_eq!(engine.set_switch(target, shadow), Ok(1));
    let one = told_thrice(HeaderSet::default(), &check(&engine, "8", 1));
    assert!(one.contains(&r#"ratelimit: "\"b\";r=98;t=86400""#.to_owned()), "{one:?}");
}

fn sets() -> impl Strategy<Value = HeaderSet> {
    let formats = prop::sample::subsequence(
        vec![
            HeaderFormat::XRetryAfter,
            HeaderFormat::XReset(ResetAs::DeltaSeconds),
            HeaderFormat::XReset(ResetAs::EpochSeconds),
            HeaderFormat::Legacy,
            HeaderFormat::Draft11,
        ],
        0..=4,
    );
    formats.prop_map(|formats| formats.into_iter().fold(HeaderSet::NONE, HeaderSet::with))
}

proptest! {
    #[test]
    fn what_is_remembered_is_what_would_be_written(
        steps in prop::collection::vec(
            (0..3_usize, 0..4_u32, 0..4_u64, 0..3_000_u64, sets()),
            1..80,
        ),
    ) {
        let limits = [
            "{name: a, algorithm: token_bucket, unit: second, requests_per_unit: 9}",
            "{unit: minute, requests_per_unit: 30}, \
             {algorithm: concurrency, requests_per_unit: 50}",
            "{name: a, unit: minute, requests_per_unit: 30}, \
             {unit: hour, requests_per_unit: 40, mode: shadow}",
        ];
        let engines = limits.map(|limits| engine(limits, Options::default()));
        for (place, user, cost, millis, set) in steps {
            let engine = &engines[place];
            engine.clock().advance(Nanos::from_millis(millis));
            let verdict = check(engine, &user.to_string(), cost);
            let expected = written(set, &verdict);
            // Written, remembered and recalled.
            for _ in 0..3 {
                prop_assert_eq!(told(set, &verdict), expected.clone());
            }
        }
    }
}
