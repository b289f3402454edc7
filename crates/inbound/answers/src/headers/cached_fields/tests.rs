//! Cached fields compared with the same fields written again.

use proptest::prelude::*;
use tidegate_engine::{
    Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, Mode, Nanos, Options,
    Request, Source, Target, Timestamp, Verdict, compile,
};

use super::super::{HeaderFormat, HeaderSet, ResetAs};
use super::{CacheLookup, CachedFields};
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

/// The fields of a verdict, cached or not.
fn fields(set: HeaderSet, verdict: &Verdict) -> Vec<String> {
    let fields = set.fields_of(verdict, || START);
    fields.iter().map(|(name, value)| format!("{name}: {value:?}")).collect()
}

/// The fields of a verdict: written, then inserted, then found in the cache.
fn fields_thrice(set: HeaderSet, verdict: &Verdict) -> Vec<String> {
    let [first, second, third] = [(); 3].map(|()| fields(set, verdict));
    assert_eq!((&first, &first), (&second, &third));
    first
}

#[test]
fn fields_are_cached_the_second_time_and_not_before() {
    let engine = engine("{name: a, unit: day, requests_per_unit: 1000}", Options::default());
    let set = HeaderSet::default();
    let is_cached = |verdict: &Verdict| {
        drop(set.fields_of(verdict, || START));
        matches!(CachedFields::look_up(set, verdict), CacheLookup::Hit(_))
    };
    let first = check(&engine, "7", 1);
    assert!(!is_cached(&first));
    assert!(is_cached(&first));
    // Fields that are needed once do not evict it.
    for _ in 0..900 {
        drop(set.fields_of(&check(&engine, "8", 1), || START));
    }
    assert!(is_cached(&first));
}

/// The fields of a verdict without the cache.
fn written(set: HeaderSet, verdict: &Verdict) -> Vec<String> {
    let fields = set.fields(&Notice::of(verdict), START);
    fields.iter().map(|(name, value)| format!("{name}: {value:?}")).collect()
}

#[test]
fn rules_with_other_names_are_told_by_their_own() {
    let named = |name: &str| {
        let limits = format!("{{name: {name}, unit: minute, requests_per_unit: 5}}");
        let engine = engine(&limits, Options::default());
        fields_thrice(HeaderSet::default(), &check(&engine, "7", 1))
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
        assert_eq!(fields_thrice(HeaderSet::default(), &verdict), expected);
    }
}

#[test]
fn a_limit_in_shadow_has_no_fields() {
    let limits = "{name: a, unit: hour, requests_per_unit: 9}, \
                  {name: b, unit: day, requests_per_unit: 99}";
    let engine = engine(limits, Options::default());
    let both = fields_thrice(HeaderSet::default(), &check(&engine, "7", 1));
    assert!(both.contains(&r#"ratelimit: "\"a\";r=8;t=3600, \"b\";r=98;t=86400""#.to_owned()));
    let target = Target { domain: "api", path: "user", limit: Some("a") };
    let shadow = Mode::Shadow;
    assert_eq!(engine.set_switch(target, shadow), Ok(1));
    let one = fields_thrice(HeaderSet::default(), &check(&engine, "8", 1));
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
    fn cached_fields_equal_written_ones(
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
        for (index, user, cost, millis, set) in steps {
            let engine = &engines[index];
            engine.clock().advance(Nanos::from_millis(millis));
            let verdict = check(engine, &user.to_string(), cost);
            let expected = written(set, &verdict);
            // Written, inserted and found.
            for _ in 0..3 {
                prop_assert_eq!(fields(set, &verdict), expected.clone());
            }
        }
    }
}
