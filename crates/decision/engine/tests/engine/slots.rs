//! Slots of requests in flight, from the check to the permit.

use super::*;

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
    let (first, held) = engine.admit_now(&request, Tenure::Held);
    let (second, _also_held) = engine.admit_now(&request, Tenure::Held);
    assert!(first.is_admitted() && second.is_admitted());
    let (third, nothing) = engine.admit_now(&request, Tenure::Held);
    assert!(!third.is_admitted() && nothing.is_empty());
    drop(held);
    let (fourth, kept) = engine.admit_now(&request, Tenure::Held);
    assert!(fourth.is_admitted());
    // A slot without a permit expires; a slot that a permit holds does not.
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
        let held = [
            engine.admit_now(&request, Tenure::Held).1,
            engine.admit_now(&request, Tenure::Held).1,
        ];
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
    let mut lending = std::pin::pin!(engine.admit(&request, Tenure::TimeToLive));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready((_, lent)) = lending.as_mut().poll(&mut context) else {
        panic!("a store in memory answers at once")
    };
    clock.advance(Duration::from_secs(10));
    let (verdict, again) = engine.admit_now(&request, Tenure::Held);
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
    let (_, old) = engine.admit_now(&request, Tenure::Held);
    engine.install(rules(&text.replace("10s", "60s")));
    assert!(engine.check_now(&request).is_admitted());
    drop(old);
    clock.advance(Duration::from_secs(30));
    let left = engine.apply_now(Verb::Peek, &request).rulings()[0].decision.remaining;
    assert_eq!(left, 1, "a slot that nobody holds has its minute");
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
