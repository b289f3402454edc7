//! Verdicts, and which limits are charged.

use super::*;

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
        assert_eq!(verdict.matched_rules().collect::<Vec<_>>().len(), 1);
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

/// The memory store behind the interface of a remote one.
struct RemoteMemory(MemoryStore);

impl CounterStore for RemoteMemory {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        self.0.apply(batch, answers).await
    }

    fn give_back(&self, batch: &Batch<'_>) {
        self.0.give_back(batch);
    }
}

fn remote_engine(rules: &str) -> Engine<RemoteMemory, ManualClock> {
    let (local, clock) = engine(rules);
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default budget is enough");
    let clock = ManualClock::at(clock.now());
    let remote = Engine::new(RemoteMemory(store), clock);
    remote.install(local.snapshot());
    remote
}

#[tokio::test]
async fn asking_by_await_and_asking_now_give_the_same_answers() {
    let (now, _clock) = engine(LAYERED);
    let later = remote_engine(LAYERED);
    assert!(Arc::new(remote_engine(LAYERED)).local().is_none());
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

#[derive(Default)]
struct CountingObserver {
    seen: AtomicU64,
    refused: AtomicU64,
}

impl Observer for CountingObserver {
    fn observe(&self, _: Verb, _: &Request<'_>, verdict: &Verdict) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        self.refused.fetch_add(u64::from(!verdict.is_admitted()), Ordering::Relaxed);
        assert!(verdict.is_admitted(), "an observer that panics changes no verdict");
    }
}

#[test]
fn an_observer_is_told_of_every_verdict_and_cannot_change_one() {
    let (engine, _clock) = engine(LAYERED);
    let counting = Arc::new(CountingObserver::default());
    let engine = engine.with_observer(Arc::clone(&counting) as Arc<dyn Observer>);
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
    assert_eq!(counting.seen.load(Ordering::Relaxed), 5);
    assert_eq!(counting.refused.load(Ordering::Relaxed), 3);
}
