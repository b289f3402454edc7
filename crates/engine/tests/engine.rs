//! The engine as its users meet it: rules in, verdicts out, on a clock turned by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_engine::{
    Clock, ConfigError, CounterStore, Descriptor, Engine, Entry, FailureMode, LimiterKind,
    ManualClock, MemoryConfig, MemoryStore, Mode, Observer, Options, Outcome, Request, Retry,
    Snapshot, Source, StoreError, Switch, Target, Timestamp, Undecided, Verb, Verdict, compile,
};
use tidegate_stores::{Answers, Batch};

type TestEngine = Engine<MemoryStore, Arc<ManualClock>>;

fn rules(text: &str) -> Snapshot {
    let source = Source { name: "test.yaml".to_owned(), text: text.to_owned() };
    compile(&[source], &Options::default()).unwrap_or_else(|report| panic!("{report}"))
}

fn engine(text: &str) -> (TestEngine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default budget is enough");
    (Engine::new(store, Arc::clone(&clock)).with_rules(rules(text)).with_seed(5), clock)
}

fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Entry<'a>> {
    pairs.iter().map(|(key, value)| Entry { key, value }).collect()
}

/// Applies a verb to one descriptor.
fn apply(engine: &TestEngine, verb: Verb, pairs: &[(&str, &str)]) -> Verdict {
    let entries = entries(pairs);
    engine.apply_now(verb, &Request::new("api", &[Descriptor::new(&entries)]))
}

fn check(engine: &TestEngine, pairs: &[(&str, &str)]) -> Verdict {
    apply(engine, Verb::Check, pairs)
}

/// How many of `tries` requests pass.
fn admitted(engine: &TestEngine, tries: usize, pairs: &[(&str, &str)]) -> usize {
    (0..tries).filter(|_| check(engine, pairs).is_admitted()).count()
}

const LAYERED: &str = "
domain: api
descriptors:
  - key: user
    limits:
      - {name: per_second, requests_per_unit: 2, unit: second}
      - {name: per_day, requests_per_unit: 5, unit: day}
";

#[test]
fn layered_limits_apply_together_and_the_verdict_names_the_one_that_refused() {
    let (engine, clock) = engine(LAYERED);
    assert_eq!(admitted(&engine, 3, &[("user", "ada")]), 2);
    let verdict = check(&engine, &[("user", "ada")]);
    let refusal = verdict.refusal().expect("over the limit per second");
    assert_eq!((refusal.domain, refusal.path, refusal.limit), ("api", "user", Some("per_second")));
    assert_eq!(verdict.retry(), Retry::After(Duration::from_secs(1).into()));
    assert_eq!(verdict.rulings().len(), 2);

    clock.advance(Duration::from_secs(1));
    assert_eq!(admitted(&engine, 3, &[("user", "ada")]), 2);
    clock.advance(Duration::from_secs(1));
    assert_eq!(admitted(&engine, 3, &[("user", "ada")]), 1);
    let verdict = check(&engine, &[("user", "ada")]);
    assert_eq!(verdict.refusal().and_then(|refusal| refusal.limit), Some("per_day"));
}

#[test]
fn a_refusal_charges_no_other_limit() {
    let (engine, clock) = engine(LAYERED);
    assert_eq!(admitted(&engine, 100, &[("user", "ada")]), 2);
    clock.advance(Duration::from_secs(1));
    let verdict = apply(&engine, Verb::Peek, &[("user", "ada")]);
    let left: Vec<u64> = verdict.rulings().iter().map(|ruling| ruling.decision.remaining).collect();
    assert_eq!(left, [2, 3]);
}

#[test]
fn charge_always_charges_every_limit_as_envoy_ratelimit_does() {
    let (engine, clock) = engine(&format!("charge: always\n{}", LAYERED.trim_start()));
    for _ in 0..4 {
        check(&engine, &[("user", "ada")]);
    }
    clock.advance(Duration::from_secs(1));
    let verdict = apply(&engine, Verb::Peek, &[("user", "ada")]);
    let left: Vec<u64> = verdict.rulings().iter().map(|ruling| ruling.decision.remaining).collect();
    assert_eq!(left, [2, 1]);
}

#[test]
fn values_that_a_rule_does_not_name_have_a_counter_each() {
    let (engine, _clock) = engine(LAYERED);
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
    assert_eq!(admitted(&engine, 5, &[("user", "bob")]), 2);
}

#[test]
fn all_descriptors_of_a_request_must_pass_and_a_refusal_charges_none() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 10, unit: minute}
  - key: path
    rate_limit: {requests_per_unit: 1, unit: minute}
",
    );
    let (user, path) = (entries(&[("user", "ada")]), entries(&[("path", "/export")]));
    let both = [Descriptor::new(&user), Descriptor::new(&path)];
    assert!(engine.check_now(&Request::new("api", &both)).is_admitted());
    for _ in 0..3 {
        let verdict = engine.check_now(&Request::new("api", &both));
        assert_eq!(verdict.refusal().map(|refusal| refusal.path), Some("path"));
    }
    assert_eq!(admitted(&engine, 20, &[("user", "ada")]), 9);
}

#[test]
fn a_cost_is_charged_as_a_whole_and_a_descriptors_own_cost_wins() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 10, unit: minute}
",
    );
    let user = entries(&[("user", "ada")]);
    let descriptor = Descriptor::new(&user);
    let request = |cost| Request::new("api", std::slice::from_ref(&descriptor)).with_cost(cost);
    assert!(engine.check_now(&request(7)).is_admitted());
    assert!(!engine.check_now(&request(4)).is_admitted());
    assert!(engine.check_now(&request(3)).is_admitted());
    assert!(engine.check_now(&request(0)).is_admitted());
    assert_eq!(engine.check_now(&request(11)).retry(), Retry::Never);
    engine.apply_now(Verb::Refund, &request(5));
    let own = [Descriptor { cost: Some(5), ..descriptor }];
    assert!(engine.check_now(&Request::new("api", &own)).is_admitted());
    assert!(!engine.check_now(&Request::new("api", &own)).is_admitted());
}

#[test]
fn unknown_domains_and_unmatched_descriptors_pass() {
    let (engine, _clock) = engine(LAYERED);
    let user = entries(&[("user", "ada")]);
    for _ in 0..10 {
        let verdict = engine.check_now(&Request::new("other", &[Descriptor::new(&user)]));
        assert!(verdict.is_admitted() && verdict.rulings().is_empty());
        assert_eq!(verdict.met().collect::<Vec<_>>().len(), 1);
    }
    assert_eq!(admitted(&engine, 10, &[("nobody", "knows")]), 10);
    assert_eq!(admitted(&engine, 10, &[("user", "ada"), ("deeper", "still")]), 10);
    assert!(engine.check_now(&Request::new("api", &[])).is_admitted());
    assert!(engine.check_now(&Request::new("api", &[Descriptor::new(&[])])).is_admitted());
}

#[test]
fn a_shadow_limit_is_reported_and_refuses_nothing() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - key: user
    shadow_mode: true
    rate_limit: {requests_per_unit: 1, unit: minute}
",
    );
    assert!(!check(&engine, &[("user", "ada")]).refused_in_shadow());
    let verdict = check(&engine, &[("user", "ada")]);
    assert!(verdict.is_admitted() && verdict.refused_in_shadow());
    assert!(verdict.refusal().is_none() && verdict.tightest().is_none());
}

#[test]
fn one_quota_that_is_left_is_enough() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - {key: backend, value: a, quota_mode: true, rate_limit: {requests_per_unit: 1, unit: minute}}
  - {key: backend, value: b, quota_mode: true, rate_limit: {requests_per_unit: 2, unit: minute}}
",
    );
    let (a, b) = (entries(&[("backend", "a")]), entries(&[("backend", "b")]));
    let both = [Descriptor::new(&a), Descriptor::new(&b)];
    let outcomes: Vec<bool> =
        (0..3).map(|_| engine.check_now(&Request::new("api", &both)).is_admitted()).collect();
    assert_eq!(outcomes, [true, true, false]);
}

#[test]
fn a_retry_waits_for_the_required_limit_and_for_a_quota() {
    let (engine, clock) = engine(
        "
domain: api
descriptors:
  - {key: user, rate_limit: {name: short, requests_per_unit: 1, unit: second}}
  - {key: backend, quota_mode: true, rate_limit: {name: long, requests_per_unit: 1, unit: minute}}
",
    );
    let (user, backend) = (entries(&[("user", "ada")]), entries(&[("backend", "a")]));
    let both = [Descriptor::new(&user), Descriptor::new(&backend)];
    let request = Request::new("api", &both);
    assert!(engine.check_now(&request).is_admitted());
    let refused = engine.check_now(&request);
    assert_eq!(refused.refusal().and_then(|refusal| refusal.limit), Some("long"));
    let Retry::After(wait) = refused.retry() else { panic!("the quota comes back") };
    clock.advance(wait);
    assert!(engine.check_now(&request).is_admitted());
}

#[test]
fn a_limit_that_another_one_replaces_does_not_count() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - {key: user, rate_limit: {name: common, requests_per_unit: 1, unit: minute}}
  - {key: user, value: vip, rate_limit: {requests_per_unit: 3, unit: minute, replaces: [{name: common}]}}
  - {key: any, rate_limit: {name: common, requests_per_unit: 1, unit: minute}}
",
    );
    let (vip, any) = (entries(&[("user", "vip")]), entries(&[("any", "x")]));
    let both = [Descriptor::new(&vip), Descriptor::new(&any)];
    let passed =
        (0..5).filter(|_| engine.check_now(&Request::new("api", &both)).is_admitted()).count();
    assert_eq!(passed, 3);
    assert_eq!(admitted(&engine, 3, &[("any", "x")]), 1);
}

#[test]
fn a_mode_is_switched_at_run_time_and_stays_over_a_reload() {
    let (engine, _clock) = engine(LAYERED);
    let target = Target { domain: "api", path: "user", limit: None };
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);

    let shadow = Switch { mode: Mode::Shadow, enforce_percent: 100 };
    assert_eq!(engine.set_switch(target, shadow), Ok(2));
    let verdict = check(&engine, &[("user", "ada")]);
    assert!(verdict.is_admitted() && verdict.refused_in_shadow());

    engine.install(rules(LAYERED));
    assert!(check(&engine, &[("user", "ada")]).is_admitted());

    let off = Switch { mode: Mode::Off, enforce_percent: 100 };
    assert_eq!(engine.set_switch(target, off), Ok(2));
    assert!(check(&engine, &[("user", "ada")]).rulings().is_empty());

    assert_eq!(engine.unset_switch(target), Ok(2));
    assert!(!check(&engine, &[("user", "ada")]).is_admitted());
}

#[test]
fn a_limiter_is_switched_as_a_whole_and_never_makes_a_limit_stronger() {
    let text = "
domain: api
descriptors:
- key: user
  limits:
  - {name: rate, requests_per_unit: 1, unit: minute}
  - {name: quiet, requests_per_unit: 1, unit: hour, mode: shadow}
- key: flight
  limits: [{name: slots, algorithm: concurrency, requests_per_unit: 1}]
";
    let (engine, _clock) = engine(text);
    let engine = Arc::new(engine);
    let at_once = |name: &str| {
        let flight = entries(&[("flight", name)]);
        let one = [Descriptor::new(&flight)];
        let held = [(); 3].map(|()| engine.admit_now(&Request::new("api", &one)));
        held.iter().filter(|(verdict, _)| verdict.is_admitted()).count()
    };
    assert_eq!((admitted(&engine, 3, &[("user", "ada")]), at_once("a")), (1, 1));

    let mode = |mode| Switch { mode, enforce_percent: 100 };
    engine.set_limiter(LimiterKind::Rate, mode(Mode::Shadow));
    assert!(check(&engine, &[("user", "ada")]).refused_in_shadow());
    assert_eq!((admitted(&engine, 3, &[("user", "ada")]), at_once("b")), (3, 1));

    engine.set_limiter(LimiterKind::Concurrency, mode(Mode::Off));
    engine.install(rules(text));
    assert_eq!((admitted(&engine, 3, &[("user", "ada")]), at_once("c")), (3, 3));
    assert_eq!(engine.limiter(LimiterKind::Concurrency).mode, Mode::Off);

    let target = Target { domain: "api", path: "user", limit: Some("rate") };
    engine.set_switch(target, Switch::FULL).expect("a limit");
    assert_eq!(admitted(&engine, 3, &[("user", "ada")]), 3, "the limiter is still dark");
    engine.set_limiter(LimiterKind::Rate, Switch::FULL);
    let verdict = check(&engine, &[("user", "ada")]);
    assert!(!verdict.is_admitted());
    engine.set_limiter(LimiterKind::Rate, Switch { mode: Mode::Enforce, enforce_percent: 0 });
    assert!(check(&engine, &[("user", "ada")]).refused_in_shadow());
}

#[test]
fn one_limit_is_switched_by_its_name_and_an_unknown_one_is_an_error() {
    let (engine, _clock) = engine(LAYERED);
    let target = Target { domain: "api", path: "user", limit: Some("per_second") };
    let off = Switch { mode: Mode::Off, enforce_percent: 100 };
    assert_eq!(engine.set_switch(target, off), Ok(1));
    assert_eq!(admitted(&engine, 9, &[("user", "ada")]), 5);
    let unknown = Target { limit: Some("per_year"), ..target };
    let error = engine.set_switch(unknown, off).expect_err("no such limit");
    assert_eq!(error.to_string(), "no limit of domain `api` is at `user` with the name `per_year`");
}

#[test]
fn a_limit_without_a_name_is_switched_by_its_place() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - key: user
    limits:
      - {requests_per_unit: 2, unit: minute}
      - {requests_per_unit: 4, unit: hour}
",
    );
    let off = Switch { mode: Mode::Off, enforce_percent: 100 };
    let first = Target { domain: "api", path: "user", limit: Some("1") };
    assert_eq!(engine.set_switch(first, off), Ok(1));
    assert_eq!(admitted(&engine, 9, &[("user", "ada")]), 4);
    for unknown in ["0", "3", "01", ""] {
        assert!(engine.set_switch(Target { limit: Some(unknown), ..first }, off).is_err());
    }
}

#[test]
fn a_percentage_enforces_for_the_same_keys_each_time_and_for_that_share_of_them() {
    let text = "
domain: api
descriptors:
  - key: user
    enforce_percent: 30
    rate_limit: {requests_per_unit: 1, unit: minute}
";
    let limited = |engine: &TestEngine| -> Vec<bool> {
        let users: Vec<String> = (0..1_000).map(|number| format!("user {number}")).collect();
        users.iter().map(|user| admitted(engine, 3, &[("user", user)]) == 1).collect()
    };
    let (one, _clock) = engine(text);
    let (other, _clock) = engine(text);
    let (one, other) = (limited(&one), limited(&other.with_seed(99)));
    assert_eq!(one, other, "every process picks the same keys");
    let share = one.iter().filter(|limited| **limited).count();
    assert!((250..350).contains(&share), "{share} of 1000");
}

#[test]
fn the_kill_switch_admits_everything_at_once() {
    let (engine, _clock) = engine(LAYERED);
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
    engine.switch_off(true);
    let verdict = check(&engine, &[("user", "ada")]);
    assert!(verdict.is_admitted() && verdict.is_switched_off());
    engine.switch_off(false);
    assert!(!check(&engine, &[("user", "ada")]).is_admitted());
}

#[test]
fn counters_survive_new_rules_and_a_raised_limit_gives_room_at_once() {
    let (engine, _clock) = engine(LAYERED);
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
    engine.install(rules(&LAYERED.replace("requests_per_unit: 2", "requests_per_unit: 4")));
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
}

#[test]
fn a_limit_keeps_its_counters_when_another_one_is_put_before_it() {
    let (engine, _clock) = engine(LAYERED);
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
    let first = "    limits:\n      - {name: per_hour, requests_per_unit: 9, unit: hour}";
    engine.install(rules(&LAYERED.replace("    limits:", first)));
    let refusal = check(&engine, &[("user", "ada")]);
    assert_eq!(refusal.refusal().and_then(|refusal| refusal.limit), Some("per_second"));
}

#[test]
fn usage_survives_a_change_between_plans_whose_first_limits_differ() {
    let (engine, _clock) = engine(
        "
domain: api
plans:
  free:
    limits:
      - {name: burst, algorithm: token_bucket, requests_per_unit: 9, unit: minute}
      - {name: rate, requests_per_unit: 2, unit: minute}
  pro: {limits: [{name: rate, requests_per_unit: 5, unit: minute}]}
descriptors:
  - key: user
    descriptors:
      - {key: plan, plan: {from: value, default: free}}
",
    );
    assert_eq!(admitted(&engine, 9, &[("user", "ada"), ("plan", "free")]), 2);
    assert_eq!(admitted(&engine, 9, &[("user", "ada"), ("plan", "pro")]), 3);
}

#[test]
fn a_verdict_keeps_the_rules_that_it_rests_on() {
    let (engine, _clock) = engine(LAYERED);
    admitted(&engine, 2, &[("user", "ada")]);
    let verdict = check(&engine, &[("user", "ada")]);
    engine.install(Snapshot::default());
    assert_eq!(verdict.refusal().and_then(|refusal| refusal.limit), Some("per_second"));
    assert!(check(&engine, &[("user", "ada")]).rulings().is_empty());
}

#[test]
fn a_soft_limit_is_exceeded_for_a_while_and_the_verdict_says_so() {
    let (engine, clock) = engine(
        "
domain: api
descriptors:
  - key: user
    limits:
      - {requests_per_unit: 10, unit: minute, soft: {over: 20%, for: 5s}}
",
    );
    let soft = |engine: &TestEngine| check(engine, &[("user", "ada")]).is_soft();
    assert!((0..10).all(|_| !soft(&engine)));
    assert!(soft(&engine) && soft(&engine));
    assert!(!check(&engine, &[("user", "ada")]).is_admitted());
    clock.advance(Duration::from_secs(61));
    assert_eq!(admitted(&engine, 20, &[("user", "ada")]), 10, "the limit rests for a period");
}

#[test]
fn a_plan_is_chosen_by_a_value_and_usage_survives_an_upgrade() {
    let (engine, _clock) = engine(
        "
domain: api
plans:
  free: {limits: [{name: rate, requests_per_unit: 2, unit: minute}]}
  pro: {limits: [{name: rate, requests_per_unit: 5, unit: minute}]}
descriptors:
  - key: user
    descriptors:
      - {key: plan, plan: {from: value, default: free}}
",
    );
    assert_eq!(admitted(&engine, 9, &[("user", "ada"), ("plan", "free")]), 2);
    assert_eq!(admitted(&engine, 9, &[("user", "ada"), ("plan", "pro")]), 3);
    assert_eq!(admitted(&engine, 9, &[("user", "bob"), ("plan", "unheard of")]), 2);
}

#[test]
fn addresses_of_one_subscriber_share_a_counter() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - {key: remote_address, address: true, rate_limit: {requests_per_unit: 2, unit: minute}}
",
    );
    assert_eq!(admitted(&engine, 2, &[("remote_address", "2001:db8:1:2::1")]), 2);
    assert_eq!(admitted(&engine, 2, &[("remote_address", "2001:db8:1:2:ffff::9")]), 0);
    assert_eq!(admitted(&engine, 2, &[("remote_address", "2001:db8:1:3::1")]), 2);
    assert_eq!(admitted(&engine, 2, &[("remote_address", "192.0.2.1")]), 2);
    assert_eq!(admitted(&engine, 2, &[("remote_address", "::ffff:192.0.2.1")]), 0);
}

#[test]
fn a_permit_gives_its_slot_back_when_it_is_dropped() {
    let (engine, clock) = engine(
        "
domain: api
descriptors:
  - key: user
    limits: [{algorithm: concurrency, requests_per_unit: 2, time_to_live: 10s}]
",
    );
    let engine = Arc::new(engine);
    let user = entries(&[("user", "ada")]);
    let descriptors = [Descriptor::new(&user)];
    let request = Request::new("api", &descriptors);
    let (first, held) = engine.admit_now(&request);
    let (second, _also_held) = engine.admit_now(&request);
    assert!(first.is_admitted() && second.is_admitted());
    let (third, nothing) = engine.admit_now(&request);
    assert!(!third.is_admitted() && nothing.is_empty());
    drop(held);
    let (fourth, kept) = engine.admit_now(&request);
    assert!(fourth.is_admitted());
    // Whatever was asked without a permit expires, what a permit holds does not.
    drop(kept);
    assert!(engine.check_now(&request).is_admitted());
    clock.advance(Duration::from_secs(30));
    let left = || engine.apply_now(Verb::Peek, &request).rulings()[0].decision.remaining;
    assert_eq!(left(), 1);
}

#[test]
fn a_request_that_takes_three_times_its_time_to_live_keeps_its_slot() {
    let text = "
domain: api
descriptors:
  - key: user
    limits:
      - {unit: day, requests_per_unit: 100}
      - {algorithm: concurrency, requests_per_unit: 2, time_to_live: 10s}
";
    let soft = text.replace("10s}", "10s, soft: {over: 50%, for: 1s}}");
    for text in [text, &soft] {
        let (engine, clock) = engine(text);
        let engine = Arc::new(engine);
        let user = entries(&[("user", "ada")]);
        let descriptors = [Descriptor::new(&user)];
        let request = Request::new("api", &descriptors);
        let held = [engine.admit_now(&request).1, engine.admit_now(&request).1];
        for _ in 0..6 {
            clock.advance(Duration::from_secs(5));
            engine.store().sweep(0, clock.now());
        }
        let slots = |verdict: Verdict| verdict.rulings()[1].decision.remaining;
        let peeked = engine.apply_now(Verb::Peek, &request);
        assert_eq!(slots(peeked), u64::from(text == soft), "both are still held");
        drop(held);
        assert_eq!(slots(engine.apply_now(Verb::Peek, &request)), 2 + u64::from(text == soft));
    }
}

#[test]
fn what_is_lent_comes_back_by_itself() {
    let (engine, clock) = engine(
        "
domain: api
descriptors:
  - key: user
    limits: [{algorithm: concurrency, requests_per_unit: 1, time_to_live: 10s}]
",
    );
    let engine = Arc::new(engine);
    let user = entries(&[("user", "ada")]);
    let descriptors = [Descriptor::new(&user)];
    let request = Request::new("api", &descriptors);
    let mut lending = std::pin::pin!(engine.lend(&request));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready((_, lent)) = lending.as_mut().poll(&mut context) else {
        panic!("a store in memory answers at once")
    };
    clock.advance(Duration::from_secs(10));
    let (verdict, again) = engine.admit_now(&request);
    assert!(verdict.is_admitted());
    drop(lent);
    let left = || engine.apply_now(Verb::Peek, &request).rulings()[0].decision.remaining;
    assert_eq!(left(), 0, "a late release frees nobody else's slot");
    drop(again);
    assert_eq!(left(), 1);
}

#[test]
fn a_permit_from_before_a_reload_shortens_nobody_elses_time() {
    let text = "
domain: api
descriptors:
  - key: user
    limits: [{algorithm: concurrency, requests_per_unit: 2, time_to_live: 10s}]
";
    let (engine, clock) = engine(text);
    let engine = Arc::new(engine);
    let user = entries(&[("user", "ada")]);
    let descriptors = [Descriptor::new(&user)];
    let request = Request::new("api", &descriptors);
    let (_, old) = engine.admit_now(&request);
    engine.install(rules(&text.replace("10s", "60s")));
    assert!(engine.check_now(&request).is_admitted());
    drop(old);
    clock.advance(Duration::from_secs(30));
    let left = engine.apply_now(Verb::Peek, &request).rulings()[0].decision.remaining;
    assert_eq!(left, 1, "a slot that nobody holds has its minute");
}

#[test]
fn a_leaky_bucket_tells_each_request_when_to_leave() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - key: job
    limits: [{algorithm: leaky_bucket, requests_per_unit: 10, unit: second, queue: 2}]
",
    );
    let delays: Vec<u64> =
        (0..3).map(|_| check(&engine, &[("job", "mail")]).delay().get() / 1_000_000).collect();
    assert_eq!(delays, [0, 100, 200]);
    let verdict = check(&engine, &[("job", "mail")]);
    assert_eq!(verdict.retry(), Retry::After(Duration::from_millis(100).into()));
}

/// A store that fails in a chosen way.
enum Broken {
    Errs,
    Panics,
    AnswersTooLittle,
}

impl CounterStore for Broken {
    async fn apply(&self, _: &Batch<'_>, _: &mut Answers) -> Result<(), StoreError> {
        match self {
            Broken::Errs => Err(StoreError::Timeout { waited: Duration::from_millis(10) }),
            Broken::Panics => panic!("the store broke"),
            Broken::AnswersTooLittle => Ok(()),
        }
    }

    fn give_back(&self, _: &Batch<'_>) {}
}

#[tokio::test]
async fn what_cannot_be_decided_is_admitted_and_never_called_over_limit() {
    let user = entries(&[("user", "ada")]);
    let descriptors = [Descriptor::new(&user)];
    let request = Request::new("api", &descriptors);
    for broken in [Broken::Errs, Broken::Panics, Broken::AnswersTooLittle] {
        let engine = Engine::new(broken, ManualClock::default()).with_rules(rules(LAYERED));
        let verdict = engine.check(&request).await;
        assert!(verdict.is_admitted());
        assert!(verdict.undecided().is_some());
        assert!(verdict.refusal().is_none() && verdict.rulings().is_empty());
    }
    let engine = Engine::new(Broken::Panics, ManualClock::default()).with_rules(rules(LAYERED));
    let undecided = engine.check(&request).await.undecided().cloned();
    assert_eq!(undecided, Some(Undecided::Panicked { message: "the store broke".to_owned() }));
}

#[tokio::test]
async fn a_rule_that_denies_on_a_failing_store_refuses_without_a_refusal() {
    let text = LAYERED.replace("unit: day", "unit: day, on_store_error: deny");
    let engine = Engine::new(Broken::Errs, ManualClock::default()).with_rules(rules(&text));
    let user = entries(&[("user", "ada")]);
    let verdict = engine.check(&Request::new("api", &[Descriptor::new(&user)])).await;
    assert_eq!(verdict.outcome(), Outcome::Refused);
    assert!(verdict.refusal().is_none() && verdict.undecided().is_some());
}

#[tokio::test]
async fn the_failure_mode_refuses_if_asked_to_but_not_what_all_limits_allow() {
    let user = entries(&[("user", "ada")]);
    let descriptors = [Descriptor::new(&user)];
    let request = Request::new("api", &descriptors);
    let strict = |text: &str| {
        Engine::new(Broken::Panics, ManualClock::default())
            .with_failure_mode(FailureMode::Refuse)
            .with_rules(rules(text))
    };
    assert!(!strict(LAYERED).check(&request).await.is_admitted());
    let one_allows = LAYERED.replace("unit: day", "unit: day, on_store_error: allow");
    assert!(!strict(&one_allows).check(&request).await.is_admitted());
    let all_allow = one_allows.replace("unit: second", "unit: second, on_store_error: allow");
    assert!(strict(&all_allow).check(&request).await.is_admitted());
}

#[tokio::test]
async fn more_descriptors_than_a_request_may_have_are_not_decided() {
    let (engine, _clock) = engine(LAYERED);
    let many = vec![Descriptor::new(&[]); 1_001];
    let expected = Undecided::TooManyDescriptors { descriptors: 1_001 };
    let verdict = engine.check_now(&Request::new("api", &many));
    assert!(verdict.is_admitted());
    assert_eq!(verdict.undecided(), Some(&expected));
    let verdict = engine.check(&Request::new("api", &many)).await;
    assert_eq!(verdict.undecided(), Some(&expected));
}

#[test]
fn a_request_takes_one_slot_whatever_it_costs() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - key: user
    limits:
      - {name: rate, requests_per_unit: 100, unit: minute}
      - {name: slots, algorithm: concurrency, requests_per_unit: 2}
",
    );
    let user = entries(&[("user", "ada")]);
    let descriptors = [Descriptor::new(&user)];
    let verdict = engine.check_now(&Request::new("api", &descriptors).with_cost(30));
    let taken: Vec<u64> = verdict.rulings().iter().map(|ruling| ruling.decision.taken).collect();
    assert_eq!(taken, [30, 1]);
}

#[test]
fn a_limit_that_was_gone_for_a_while_comes_back_as_it_was_switched() {
    let (engine, _clock) = engine(LAYERED);
    let target = Target { domain: "api", path: "user", limit: None };
    let off = Switch { mode: Mode::Off, enforce_percent: 100 };
    assert_eq!(engine.set_switch(target, off), Ok(2));
    engine.install(Snapshot::default());
    engine.install(rules(LAYERED));
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 5);
}

#[tokio::test]
async fn asking_by_await_and_asking_now_give_the_same_answers() {
    let (now, _clock) = engine(LAYERED);
    let (later, _clock) = engine(LAYERED);
    let user = entries(&[("user", "ada")]);
    let descriptors = [Descriptor::new(&user)];
    let request = Request::new("api", &descriptors);
    for _ in 0..4 {
        let one = now.check_now(&request);
        let other = later.check(&request).await;
        assert_eq!(one.outcome(), other.outcome());
        let decisions = |verdict: &Verdict| {
            verdict.rulings().iter().map(|ruling| ruling.decision).collect::<Vec<_>>()
        };
        assert_eq!(decisions(&one), decisions(&other));
    }
}

struct PanickingClock;

impl Clock for PanickingClock {
    fn now(&self) -> Timestamp {
        panic!("what time is it?")
    }
}

#[test]
fn a_panic_inside_is_contained_on_the_calling_thread() -> Result<(), ConfigError> {
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Engine::new(store, PanickingClock).with_rules(rules(LAYERED));
    let user = entries(&[("user", "ada")]);
    let verdict = engine.check_now(&Request::new("api", &[Descriptor::new(&user)]));
    assert!(verdict.is_admitted());
    assert!(matches!(verdict.undecided(), Some(Undecided::Panicked { .. })));
    Ok(())
}

#[derive(Default)]
struct Counting {
    seen: AtomicU64,
    refused: AtomicU64,
}

impl Observer for Counting {
    fn observe(&self, _: Verb, _: &Request<'_>, verdict: &Verdict) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        self.refused.fetch_add(u64::from(!verdict.is_admitted()), Ordering::Relaxed);
        assert!(verdict.is_admitted(), "an observer that panics changes no verdict");
    }
}

#[test]
fn an_observer_is_told_of_every_verdict_and_cannot_change_one() {
    let (engine, _clock) = engine(LAYERED);
    let counting = Arc::new(Counting::default());
    let engine = engine.with_observer(Arc::clone(&counting) as Arc<dyn Observer>);
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
    assert_eq!(counting.seen.load(Ordering::Relaxed), 5);
    assert_eq!(counting.refused.load(Ordering::Relaxed), 3);
}

#[test]
fn threads_that_share_an_engine_admit_exactly_the_limit_while_rules_are_reloaded() {
    let text = LAYERED.replace("requests_per_unit: 2", "requests_per_unit: 300");
    let text = text.replace("requests_per_unit: 5", "requests_per_unit: 1000");
    let (engine, _clock) = engine(&text);
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let count = admitted(&engine, 500, &[("user", "ada")]);
                passed.fetch_add(count as u64, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                engine.install(rules(&text));
            }
        });
    });
    assert_eq!(passed.into_inner(), 300);
}
