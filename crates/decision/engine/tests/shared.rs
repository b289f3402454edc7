//! The engine with a store that several processes share.

use std::sync::{Arc, Mutex};

use tidegate_engine::{
    Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, Options, Period, Request,
    Snapshot, Source, Tenure, Timestamp, compile,
};
use tidegate_stores::{Answers, Batch, CounterStore, Fingerprint, StoreError};

const RULES: &str = "
domain: api
descriptors:
  - key: user
    limits:
      - {requests_per_unit: 5, unit: minute}
      - {requests_per_unit: 50, unit: hour}
  - key: path
    value: /files/*
    share_threshold: true
    rate_limit: {requests_per_unit: 5, unit: minute}
    descriptors:
      - key: method
        rate_limit: {requests_per_unit: 5, unit: minute}
  - key: slots
    rate_limit: {algorithm: concurrency, requests_per_unit: 9}
";

/// The key, the holder and the name of a check.
type RecordedCheck = (Fingerprint, u64, Option<String>);

/// The holder and the lease of slots: when taken, when held, when given back.
type Slots = [Vec<(u64, Option<Period>)>; 3];

/// A store that records its calls.
#[derive(Clone, Default)]
struct RecordingStore {
    asked: Arc<Mutex<Vec<RecordedCheck>>>,
    slots: Arc<Mutex<Slots>>,
}

impl RecordingStore {
    fn note(&self, when: usize, batch: &Batch<'_>) {
        let checks = batch.checks.iter().filter(|check| check.holder.0 != 0);
        let noted = checks.map(|check| (check.holder.0, check.tenure.lease()));
        self.slots.lock().expect("nobody panics")[when].extend(noted);
    }
}

impl CounterStore for RecordingStore {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        let store = MemoryStore::new(MemoryConfig::default()).expect("enough");
        for (at, check) in batch.checks.iter().enumerate() {
            let name = batch.names.get(at).cloned();
            let noted = (check.key.fingerprint, check.holder.0, name);
            self.asked.lock().expect("nobody panics").push(noted);
        }
        self.note(0, batch);
        store.apply(batch, answers).await
    }

    fn slot_lease(&self) -> Option<Period> {
        Some(Period::SECOND)
    }

    fn hold(&self, batch: &Batch<'_>) {
        self.note(1, batch);
    }

    fn give_back(&self, batch: &Batch<'_>) {
        self.note(2, batch);
    }
}

fn rules() -> Snapshot {
    compile(&[Source::new("test.yaml", RULES)], &Options::default())
        .unwrap_or_else(|report| panic!("{report}"))
}

type TestEngine = Engine<RecordingStore, Arc<ManualClock>>;

fn engine(store: &RecordingStore) -> TestEngine {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    Engine::new(store.clone(), clock).with_rules(rules())
}

async fn asked(
    engine: TestEngine,
    store: &RecordingStore,
    entries: &[Entry<'_>],
) -> Vec<(Fingerprint, u64, Option<String>)> {
    engine.check(&Request::new("api", &[Descriptor::new(entries)])).await;
    std::mem::take(&mut store.asked.lock().expect("nobody panics"))
}

#[tokio::test]
async fn counters_are_named_as_upstream_names_them() {
    let store = RecordingStore::default();
    let names = async |entries: &[Entry<'_>]| -> Vec<String> {
        let asked = asked(engine(&store).with_names(), &store, entries).await;
        asked.into_iter().filter_map(|(_, _, name)| name).collect()
    };
    let user = [Entry { key: "user", value: "ada" }];
    assert_eq!(names(&user).await, ["api_user_ada_", "api_user_ada_limit2_"]);
    let file = [Entry { key: "path", value: "/files/7" }];
    assert_eq!(names(&file).await, ["api_path_/files/*_"]);
    let deeper = [Entry { key: "path", value: "/files/7" }, Entry { key: "method", value: "GET" }];
    assert_eq!(names(&deeper).await, ["api_path_/files/*_method_GET_"]);
}

#[tokio::test]
async fn counters_have_no_names_unless_asked_for() {
    let store = RecordingStore::default();
    let asked = asked(engine(&store), &store, &[Entry { key: "user", value: "ada" }]).await;
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|(_, _, name)| name.is_none()));
}

#[tokio::test]
async fn engines_with_shared_fingerprints_find_the_same_counters() {
    let store = RecordingStore::default();
    let user = [Entry { key: "user", value: "ada" }];
    let keys = async |engine| -> Vec<Fingerprint> {
        asked(engine, &store, &user).await.into_iter().map(|(key, ..)| key).collect()
    };
    let shared = keys(engine(&store).with_shared_fingerprints()).await;
    assert_eq!(shared, keys(engine(&store).with_shared_fingerprints()).await);
    assert_ne!(shared, keys(engine(&store)).await);
}

#[tokio::test]
async fn holders_of_different_engines_do_not_meet() {
    let store = RecordingStore::default();
    let slot = [Entry { key: "slots", value: "a" }];
    let mut holders = Vec::new();
    for _ in 0..20 {
        holders.extend(asked(engine(&store), &store, &slot).await.into_iter().map(|(_, id, _)| id));
    }
    holders.sort_unstable();
    holders.dedup();
    assert_eq!(holders.len(), 20);
    assert!(!holders.contains(&0));
}

/// The calls that the store receives for one request for a slot.
async fn told(ask: impl AsyncFn(Arc<TestEngine>, &Request<'_>)) -> Slots {
    let store = RecordingStore::default();
    let slot = [Entry { key: "slots", value: "a" }];
    let user = [Entry { key: "user", value: "ada" }];
    let engine = Arc::new(engine(&store).with_seed(1));
    ask(engine, &Request::new("api", &[Descriptor::new(&slot), Descriptor::new(&user)])).await;
    let slots = store.slots.lock().expect("nobody panics");
    slots.clone()
}

#[tokio::test]
async fn slots_of_a_permit_are_taken_and_held_on_the_lease_of_the_store() {
    let told = told(async |engine, request| drop(engine.admit(request, Tenure::Held).await)).await;
    let lease = Some(Period::SECOND);
    assert_eq!(told, [vec![(1, lease)], vec![(1, lease)], vec![(1, None)]]);
}

#[tokio::test]
async fn slots_that_are_lent_to_somebody_outside_have_no_lease_and_are_not_kept_alive() {
    let told =
        told(async |engine, request| drop(engine.admit(request, Tenure::TimeToLive).await)).await;
    assert_eq!(told, [vec![(1, None)], vec![], vec![(1, None)]]);
}

#[tokio::test]
async fn slots_of_a_check_without_a_permit_have_no_lease() {
    let told = told(async |engine, request| drop(engine.check(request).await)).await;
    assert_eq!(told, [vec![(1, None)], vec![], vec![]]);
}
