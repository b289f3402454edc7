//! The features that a decision service needs: limits that requests carry, refunds, tallies, and charging as in
//! envoyproxy/ratelimit.

use std::sync::Arc;

use tidegate_engine::{
    Descriptor, Engine, Entry, FixedWindow, Limit, ManualClock, MemoryConfig, MemoryStore,
    NearLimit, Options, Period, Request, Role, Snapshot, Source, Tally, Timestamp, Verdict, Window,
    compile,
};

type TestEngine = Engine<MemoryStore, Arc<ManualClock>>;

const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 5, unit: minute}
  - key: slots
    rate_limit: {algorithm: concurrency, requests_per_unit: 1}
  - key: watched
    shadow_mode: true
    rate_limit: {requests_per_unit: 1, unit: minute}
";

fn rules(text: &str, options: Options) -> Snapshot {
    compile(&[Source::new("test.yaml", text)], &options).unwrap_or_else(|report| panic!("{report}"))
}

fn engine(options: Options) -> TestEngine {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default budget is enough");
    Engine::new(store, clock).with_rules(rules(RULES, options)).with_tallies(NearLimit::default())
}

const USER: [Entry<'_>; 1] = [Entry { key: "user", value: "ada" }];

fn ask(engine: &TestEngine, descriptor: Descriptor<'_>) -> Verdict {
    engine.check_now(&Request::new("api", &[descriptor]))
}

fn costing(cost: u64) -> Descriptor<'static> {
    Descriptor { cost: Some(cost), ..Descriptor::new(&USER) }
}

fn per_minute(amount: u64) -> Limit {
    Limit::new(FixedWindow::new(amount, Window::Every(Period::MINUTE)))
}

fn tally(engine: &TestEngine, path: &str) -> Tally {
    let mut found = Tally::default();
    engine.for_each_tally(|_, rule, _, tally| {
        if rule.path() == path {
            found = tally;
        }
    });
    found
}

#[test]
fn a_limit_that_the_request_brings_applies_instead_of_the_rules() {
    let engine = engine(Options::default());
    let (two, seven) = (per_minute(2), per_minute(7));
    let own = |limit| Descriptor { limit: Some(limit), ..Descriptor::new(&USER) };
    assert!(ask(&engine, own(&two)).is_admitted());
    assert!(ask(&engine, own(&two)).is_admitted());
    let refused = ask(&engine, own(&two));
    assert!(!refused.is_admitted());
    assert_eq!((refused.refusal(), refused.rulings()[0].limit), (None, None));
    // Another amount continues the count; the rule's counter does not change.
    assert_eq!(ask(&engine, own(&seven)).rulings()[0].decision.remaining, 4);
    assert_eq!(ask(&engine, costing(5)).rulings()[0].decision.remaining, 0);
}

#[test]
fn a_limit_that_the_request_brings_is_counted_apart_by_its_period() {
    let engine = engine(Options::default());
    let minute = per_minute(1);
    let hour = Limit::new(FixedWindow::new(1, Window::Every(Period::HOUR)));
    for limit in [&minute, &hour] {
        let own = Descriptor { limit: Some(limit), ..Descriptor::new(&USER) };
        assert!(ask(&engine, own).is_admitted());
        assert!(!ask(&engine, own).is_admitted());
    }
}

#[test]
fn a_limit_that_the_request_brings_needs_a_known_domain() {
    let engine = engine(Options::default());
    let none = per_minute(0);
    let own = [Descriptor { limit: Some(&none), ..Descriptor::new(&USER) }];
    let verdict = engine.check_now(&Request::new("elsewhere", &own));
    assert!(verdict.is_admitted() && !verdict.domain_is_known() && verdict.rulings().is_empty());
    assert!(engine.check_now(&Request::new("api", &own)).domain_is_known());
}

#[test]
fn what_one_descriptor_gives_back_another_can_use_in_the_same_request() {
    let engine = engine(Options::default());
    assert!(ask(&engine, costing(5)).is_admitted());
    let back = Descriptor { refund: true, ..costing(3) };
    let verdict = engine.check_now(&Request::new("api", &[costing(2), back]));
    assert!(verdict.is_admitted());
    let remaining = |index: usize| verdict.rulings_of(index)[0].decision.remaining;
    assert_eq!((remaining(0), remaining(1)), (1, 3));
    assert_eq!(verdict.rulings_of(1)[0].role, Role::Observed);
    assert!(verdict.rulings_of(2).is_empty());
}

#[test]
fn more_than_was_used_cannot_be_given_back() {
    let engine = engine(Options::default());
    let back = Descriptor { refund: true, ..costing(u64::MAX) };
    assert!(ask(&engine, back).is_admitted());
    assert!(!ask(&engine, costing(6)).is_admitted());
}

#[test]
fn a_refund_that_names_no_holder_gives_a_slot_back() {
    let engine = engine(Options::default());
    let slots = [Entry { key: "slots", value: "ada" }];
    let slot = Descriptor::new(&slots);
    assert!(ask(&engine, slot).is_admitted());
    assert!(!ask(&engine, slot).is_admitted());
    ask(&engine, Descriptor { refund: true, ..slot });
    assert!(ask(&engine, slot).is_admitted());
}

#[test]
fn tallies_count_hits_and_survive_new_rules() {
    let engine = engine(Options::default());
    ask(&engine, costing(4));
    ask(&engine, costing(3));
    ask(&engine, costing(1));
    ask(&engine, Descriptor { refund: true, ..costing(2) });
    let counted = Tally { within: 5, near: 1, over: 3, refunded: 2, ..Tally::default() };
    assert_eq!(tally(&engine, "user"), counted);
    engine.install(rules(
        &RULES.replace("requests_per_unit: 5", "requests_per_unit: 50"),
        Options::default(),
    ));
    assert_eq!(tally(&engine, "user"), counted);
}

#[test]
fn a_shadowed_refusal_is_tallied_as_over_and_as_shadow() {
    let engine = engine(Options::default());
    let watched = [Entry { key: "watched", value: "x" }];
    for _ in 0..3 {
        assert!(ask(&engine, Descriptor::new(&watched)).is_admitted());
    }
    let tally = tally(&engine, "watched");
    assert_eq!((tally.within, tally.over, tally.shadow), (1, 2, 2));
}

#[test]
fn under_compat_refused_hits_count_and_a_probe_of_an_exceeded_limit_is_refused() {
    let engine = engine(Options { compat: true, ..Options::default() });
    assert!(ask(&engine, costing(4)).is_admitted());
    assert!(ask(&engine, costing(1)).is_admitted());
    assert!(ask(&engine, costing(0)).is_admitted());
    assert!(!ask(&engine, costing(3)).is_admitted());
    assert!(!ask(&engine, costing(0)).is_admitted());
    // Three of the eight hits come back: five are left, the limit itself.
    ask(&engine, Descriptor { refund: true, ..costing(3) });
    assert!(ask(&engine, costing(0)).is_admitted());
}

#[test]
fn under_compat_a_refusal_charges_the_other_limits_too() {
    let others = [Entry { key: "user", value: "bob" }];
    let admitted_after = |options| {
        let engine = engine(options);
        ask(&engine, costing(5));
        let both = [costing(1), Descriptor { cost: Some(3), ..Descriptor::new(&others) }];
        assert!(!engine.check_now(&Request::new("api", &both)).is_admitted());
        ask(&engine, Descriptor { cost: Some(3), ..Descriptor::new(&others) }).is_admitted()
    };
    assert!(admitted_after(Options::default()));
    assert!(!admitted_after(Options { compat: true, ..Options::default() }));
}
