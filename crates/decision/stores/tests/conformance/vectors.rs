//! Single requests with the answers written out.

use std::time::Duration;

use tidegate_algorithms::{
    Concurrency, Decision, FixedWindow, Holder, Limit, Nanos, Period, Retry, Timestamp, Window,
};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CounterStore, Fingerprinter, Key, Role, Verb,
};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn per_minute(limit: u64) -> Limit {
    Limit::new(FixedWindow::new(limit, Window::Every(Period::MINUTE)))
}

fn check<'a>(key: &str, limit: &'a Limit, role: Role) -> Check<'a> {
    let fingerprint = Fingerprinter::seeded(1).of(0, key.as_bytes());
    let key = Key { fingerprint, group: 0 };
    Check { holder: Holder(1), role, ..Check::new(key, limit, 1) }
}

async fn apply(
    store: &impl CounterStore,
    verb: Verb,
    charge: Charge,
    checks: &[Check<'_>],
) -> Vec<bool> {
    let mut answers = Answers::new();
    let batch = Batch::new(verb, charge, NOW, checks);
    store.apply(&batch, &mut answers).await.expect("the store answers");
    answers.iter().map(|answer| answer.decision.is_admitted()).collect()
}

async fn remaining(store: &impl CounterStore, check: &Check<'_>) -> u64 {
    let mut answers = Answers::new();
    let checks = [*check];
    let charge = Charge::AllOrNothing;
    let batch = Batch::new(Verb::Peek, charge, NOW, &checks);
    store.apply(&batch, &mut answers).await.expect("the store answers");
    answers[0].decision.remaining
}

/// The decisions on checks after some seconds.
async fn decide_after(
    store: &impl CounterStore,
    verb: Verb,
    seconds: u64,
    checks: &[Check<'_>],
) -> Vec<Decision> {
    let mut answers = Answers::new();
    let now = NOW.after(Nanos::from_secs(seconds));
    let batch = Batch::new(verb, Charge::AllOrNothing, now, checks);
    store.apply(&batch, &mut answers).await.expect("the store answers");
    answers.iter().map(|answer| answer.decision).collect()
}

fn seconds(seconds: u64) -> Period {
    Period::new(Duration::from_secs(seconds)).expect("in range")
}

pub(crate) async fn a_refusal_charges_nothing(store: &impl CounterStore) {
    let (wide, narrow) = (per_minute(10), per_minute(1));
    let both = [check("wide", &wide, Role::Required), check("narrow", &narrow, Role::Required)];
    let charge = Charge::AllOrNothing;
    assert_eq!(apply(store, Verb::Check, charge, &both).await, [true, true]);
    for _ in 0..5 {
        assert_eq!(apply(store, Verb::Check, charge, &both).await, [true, false]);
    }
    assert_eq!(remaining(store, &both[0]).await, 9);
    assert_eq!(remaining(store, &both[1]).await, 0);
}

pub(crate) async fn charge_always_charges_each_limit_by_itself(store: &impl CounterStore) {
    let (wide, narrow) = (per_minute(10), per_minute(1));
    let both = [check("wide", &wide, Role::Required), check("narrow", &narrow, Role::Required)];
    for _ in 0..5 {
        apply(store, Verb::Check, Charge::Always, &both).await;
    }
    assert_eq!(remaining(store, &both[0]).await, 5);
    assert_eq!(remaining(store, &both[1]).await, 0);
}

pub(crate) async fn an_observed_refusal_refuses_nothing(store: &impl CounterStore) {
    let (wide, narrow) = (per_minute(10), per_minute(1));
    let both = [check("wide", &wide, Role::Required), check("narrow", &narrow, Role::Observed)];
    for _ in 0..5 {
        apply(store, Verb::Check, Charge::AllOrNothing, &both).await;
    }
    assert_eq!(remaining(store, &both[0]).await, 5);
}

pub(crate) async fn one_alternative_that_admits_is_enough(store: &impl CounterStore) {
    let (small, large, other) = (per_minute(1), per_minute(2), per_minute(10));
    let checks = [
        check("small", &small, Role::Alternative),
        check("large", &large, Role::Alternative),
        check("other", &other, Role::Required),
    ];
    let charge = Charge::AllOrNothing;
    assert_eq!(apply(store, Verb::Check, charge, &checks).await, [true, true, true]);
    assert_eq!(apply(store, Verb::Check, charge, &checks).await, [false, true, true]);
    assert_eq!(apply(store, Verb::Check, charge, &checks).await, [false, false, true]);
    assert_eq!(remaining(store, &checks[2]).await, 8);
}

pub(crate) async fn a_key_that_stands_twice_is_charged_twice(store: &impl CounterStore) {
    let limit = per_minute(3);
    let twice = [check("same", &limit, Role::Required), check("same", &limit, Role::Required)];
    let charge = Charge::AllOrNothing;
    assert_eq!(apply(store, Verb::Check, charge, &twice).await, [true, true]);
    assert_eq!(remaining(store, &twice[0]).await, 1);
    assert_eq!(apply(store, Verb::Check, charge, &twice).await, [true, false]);
    assert_eq!(remaining(store, &twice[0]).await, 1);
}

pub(crate) async fn reset_forgets_one_key_only(store: &impl CounterStore) {
    let limit = per_minute(1);
    let (one, other) =
        (check("one", &limit, Role::Required), check("other", &limit, Role::Required));
    let charge = Charge::AllOrNothing;
    apply(store, Verb::Check, charge, &[one, other]).await;
    apply(store, Verb::Reset, charge, &[one]).await;
    assert_eq!(remaining(store, &one).await, 1);
    assert_eq!(remaining(store, &other).await, 0);
}

pub(crate) async fn a_slot_comes_back_once_however_often_it_is_given_back(
    store: &impl CounterStore,
) {
    let limit = Limit::new(Concurrency::new(2, Period::MINUTE).expect("small"));
    let slot = check("slots", &limit, Role::Required);
    let other = Check { holder: Holder(2), ..slot };
    let charge = Charge::AllOrNothing;
    assert_eq!(apply(store, Verb::Check, charge, &[slot]).await, [true]);
    assert_eq!(apply(store, Verb::Check, charge, &[other]).await, [true]);
    assert_eq!(apply(store, Verb::Check, charge, &[slot]).await, [false]);
    for _ in 0..3 {
        apply(store, Verb::Refund, charge, &[slot]).await;
    }
    assert_eq!(remaining(store, &slot).await, 1);
}

pub(crate) async fn a_slot_on_a_lease_comes_back_when_that_is_over(store: &impl CounterStore) {
    let limit = Limit::new(Concurrency::new(4, Period::MINUTE).expect("small"));
    let slot = check("leases", &limit, Role::Required);
    let leases = [None, Some(seconds(10)), Some(Period::MINUTE), Some(Period::HOUR)];
    for (lease, holder) in leases.into_iter().zip(1..) {
        let taken = Check { tenure: lease.into(), holder: Holder(holder), ..slot };
        let decision = decide_after(store, Verb::Check, 0, &[taken]).await[0];
        assert_eq!((decision.taken, decision.reset_after), (1, Nanos::from_secs(60)), "{lease:?}");
    }
    let more = Check { holder: Holder(9), ..slot };
    let refused = decide_after(store, Verb::Check, 0, &[more]).await[0];
    assert_eq!(refused.retry, Retry::After(Nanos::from_secs(10)));
    for (at, left) in [(9, 0), (10, 1), (59, 1), (60, 4)] {
        let seen = decide_after(store, Verb::Peek, at, &[slot]).await[0];
        assert_eq!(seen.remaining, left, "after {at} seconds");
    }
}

/// One holder takes more, and another check of the same request waits for those of others.
pub(crate) async fn what_a_holder_has_lives_on_with_what_it_takes_more(store: &impl CounterStore) {
    let limit = Limit::new(Concurrency::new(10, Period::MINUTE).expect("small"));
    let slot = check("more", &limit, Role::Required);
    for (holder, cost) in [(1, 5), (2, 3), (3, 1)] {
        let taken = Check { holder: Holder(holder), cost, ..slot };
        assert!(decide_after(store, Verb::Check, holder, &[taken]).await[0].is_admitted());
    }
    for lease in [None, Some(seconds(2)), Some(seconds(58))] {
        let more = [Check { tenure: lease.into(), ..slot }, Check { holder: Holder(4), ..slot }];
        let decisions = decide_after(store, Verb::Check, 4, &more).await;
        assert!(decisions[0].is_admitted() && !decisions[1].is_admitted());
        // Those of the first holder expire at 61, unless they move to the end.
        let first = if lease == Some(seconds(2)) { 61 } else { 62 };
        assert_eq!(decisions[1].retry, Retry::After(Nanos::from_secs(first - 4)), "{lease:?}");
    }
}

pub(crate) async fn a_batch_of_nothing_answers_nothing(store: &impl CounterStore) {
    for verb in [Verb::Check, Verb::Peek, Verb::Take, Verb::Refund, Verb::Reset] {
        assert!(apply(store, verb, Charge::AllOrNothing, &[]).await.is_empty());
    }
}
