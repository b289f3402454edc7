//! Slots in flight, held between two requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tidegate_engine::{CounterStore, Engine, ManualClock, MemoryStore, Nanos, Period};
use tidegate_http_api::HttpApiSettings;
use tidegate_stores::{Answers, Batch, StoreError};

use crate::bench::{Bench, RULES, START, asking, parts, rules, settings};

async fn take(bench: &Bench, job: &str) -> Option<String> {
    let answer = bench.post("/v1/check", &asking("job", job)).await.json();
    answer["permit"].as_str().map(ToOwned::to_owned)
}

async fn release(bench: &Bench, permit: &str) -> bool {
    let answer = bench.post("/v1/release", &json!({"permit": permit})).await;
    assert_eq!(answer.status, 200);
    answer.json()["released"].as_bool().unwrap()
}

#[tokio::test]
async fn a_slot_is_held_until_its_permit_comes_back() {
    let bench = Bench::new();
    let permit = take(&bench, "a").await.unwrap();
    let refused = bench.post("/v1/check", &asking("job", "a")).await;
    assert_eq!((refused.status, refused.field("retry-after")), (429, Some("1")));
    let refused = refused.json();
    assert_eq!((&refused["permit"], &refused["retry_after_ms"]), (&Value::Null, &json!(1_000)));
    let decision = &refused["decisions"][0];
    assert_eq!(
        (&decision["retry_after_ms"], &decision["reset_after_ms"]),
        (&Value::Null, &Value::Null)
    );
    assert!(take(&bench, "b").await.is_some(), "another key has its own slots");
    assert!(release(&bench, &permit).await);
    assert!(take(&bench, "a").await.is_some());
}

#[tokio::test]
async fn a_permit_gives_back_once() {
    let bench = Bench::new();
    let first = take(&bench, "a").await.unwrap();
    assert!(release(&bench, &first).await);
    let second = take(&bench, "a").await.unwrap();
    assert!(!release(&bench, &first).await, "it does not free another's slot");
    assert_eq!(take(&bench, "a").await, None);
    assert!(release(&bench, &second).await);
}

#[tokio::test]
async fn a_permit_is_worth_nothing_after_its_time_to_live() {
    let bench = Bench::new();
    let permit = take(&bench, "a").await.unwrap();
    bench.engine.clock().advance(Nanos::from_secs(60));
    let second = take(&bench, "a").await.unwrap();
    assert!(!release(&bench, &permit).await);
    assert_eq!(take(&bench, "a").await, None);
    assert!(release(&bench, &second).await);
}

#[tokio::test]
async fn what_is_no_permit_gives_nothing_back() {
    let bench = Bench::new();
    for permit in ["", "x", "0123456789abcdef0123456789abcdef", &"9".repeat(100_000)] {
        assert!(!release(&bench, permit).await);
    }
}

#[tokio::test]
async fn requests_that_hold_nothing_have_no_permit() {
    let bench = Bench::new();
    let answer = bench.post("/v1/check", &asking("user", "ada")).await.json();
    assert_eq!(answer["permit"], Value::Null);
    let peeked = bench.post("/v1/peek", &asking("job", "a")).await.json();
    assert_eq!((&peeked["admitted"], &peeked["permit"]), (&json!(true), &Value::Null));
    assert!(take(&bench, "a").await.is_some(), "a peek takes no slot");
}

#[tokio::test]
async fn a_request_without_a_permit_to_give_is_not_admitted_and_holds_nothing() {
    let bench = Bench::with(HttpApiSettings { permits_max: 1, ..settings() });
    let permit = take(&bench, "a").await.unwrap();
    let answer = bench.post("/v1/check", &asking("job", "b")).await;
    assert_eq!(answer.status, 503);
    let answer = answer.json();
    assert_eq!((&answer["admitted"], &answer["permit"]), (&json!(false), &Value::Null));
    assert!(answer["undecided"].as_str().unwrap().starts_with("too many permits"));
    assert!(release(&bench, &permit).await);
    assert!(take(&bench, "b").await.is_some());
}

#[tokio::test]
async fn every_request_of_a_batch_has_its_own_permit() {
    let bench = Bench::new();
    let batch = json!({"requests": [asking("job", "a"), asking("job", "a"), asking("job", "b")]});
    let answer = bench.post("/v1/check", &batch).await.json();
    let permits: Vec<Option<&str>> =
        answer["answers"].as_array().unwrap().iter().map(|one| one["permit"].as_str()).collect();
    assert!(matches!(permits[..], [Some(one), None, Some(other)] if one != other), "{permits:?}");
}

/// A store whose slots could be kept alive.
struct Leasing {
    counters: MemoryStore,
    leased: AtomicUsize,
}

impl CounterStore for Leasing {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        let leased = batch.checks.iter().filter(|check| check.tenure.lease().is_some()).count();
        self.leased.fetch_add(leased, Ordering::Relaxed);
        self.counters.apply(batch, answers).await
    }

    fn slot_lease(&self) -> Option<Period> {
        Some(Period::SECOND)
    }

    fn hold(&self, batch: &Batch<'_>) {
        self.leased.fetch_add(batch.checks.len(), Ordering::Relaxed);
    }

    fn give_back(&self, batch: &Batch<'_>) {
        self.counters.give_back(batch);
    }
}

#[tokio::test]
async fn slots_of_callers_outside_have_their_time_to_live_and_nobody_renews_them() {
    let counters = MemoryStore::new(Default::default()).unwrap();
    let store = Leasing { counters, leased: AtomicUsize::new(0) };
    let engine = Engine::new(store, ManualClock::at(START)).with_rules(rules(RULES));
    let bench = Bench::over(engine, parts(settings()));
    let answer = bench.post("/v1/check", &asking("job", "a")).await;
    assert!(answer.json()["permit"].is_string());
    assert_eq!(bench.engine.store().leased.load(Ordering::Relaxed), 0);
    bench.engine.clock().advance(Nanos::from_secs(59));
    assert_eq!(bench.post("/v1/check", &asking("job", "a")).await.status, 429);
}
