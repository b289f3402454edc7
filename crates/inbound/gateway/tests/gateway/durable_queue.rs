//! Requests that are queued in a durable queue, and their results.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use tidegate_engine::SystemClock;
use tidegate_gateway::{DurableQueue, GatewayParts, GatewaySettings};
use tidegate_queue::{Clock, ManualClock, QueueStore, SqliteStore, WallClock};

use crate::harness::{Harness, by_user, engine, to, within};
use crate::upstream::Upstream;

/// Five requests a second, others are queued.
const RULES: &str = "- key: user\n  limits: [{unit: second, requests_per_unit: 5, \
                     algorithm: token_bucket, burst: 1, when_over: queue}]";
/// None after the first, for as long as the test lasts.
const CLOSED: &str = "- key: user\n  limits: [{unit: hour, requests_per_unit: 1, \
                      algorithm: token_bucket, burst: 1, when_over: queue}]";

/// A store whose leases end when a test says so.
struct TestStore {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
}

impl TestStore {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(WallClock::new().now()));
        let store = Arc::new(SqliteStore::in_memory(Arc::clone(&clock) as _).unwrap());
        TestStore { store, clock }
    }

    /// A gateway on this store, as a new process.
    async fn open(&self, settings: GatewaySettings, rules: &str) -> Harness<SystemClock> {
        let is_secret = |name: &str| name == "authorization";
        let store: &dyn QueueStore = &*self.store;
        let queue = DurableQueue::open(store, settings.queue, is_secret).await.unwrap();
        let parts = GatewayParts { queue: Some(Arc::new(queue)), ..GatewayParts::default() };
        let engine = engine(rules, SystemClock::new());
        Harness::with(engine, settings, parts, |endpoint| endpoint)
    }
}

/// Requests wait longer than the test lasts.
fn patient(upstream: &Upstream) -> GatewaySettings {
    let mut settings = by_user(to(&[upstream.url()]));
    settings.queue.wait_max = Duration::from_hours(2);
    settings
}

fn post(user: &str) -> http::request::Builder {
    Request::post("/status/201").header("x-user", user).header("authorization", "Bearer secret")
}

async fn queued(harness: &Harness<SystemClock>, body: &'static str) -> String {
    within("a request that is kept", async {
        loop {
            let reply = harness.one().await.send(post("7"), body).await;
            if reply.status == 202 {
                return reply.header("location").to_owned();
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_result_can_be_read_with_the_link_also_after_a_restart() {
    let upstream = Upstream::start().await;
    let settings = patient(&upstream);
    let store = TestStore::new();
    let harness = store.open(settings.clone(), RULES).await;
    let place = queued(&harness, "work").await;
    within("the request", async { while harness.get(&place).await.json()["state"] != "done" {} })
        .await;
    let path = harness.get(&place).await.json()["response"].as_str().unwrap().to_owned();
    assert_eq!(harness.get(&path).await.status, 201);
    drop(harness);

    let next = store.open(settings, RULES).await;
    assert_eq!(next.get(&place).await.json()["status"], 201);
    assert_eq!(next.get(&path).await.status, 201);
    let other = path.replace(|digit: char| digit.is_ascii_digit(), "0");
    assert_eq!(next.get(&other).await.status, 404);
}

#[tokio::test]
async fn a_request_that_waits_during_a_restart_is_processed_by_the_next_process() {
    let upstream = Upstream::start().await;
    let settings = patient(&upstream);
    let store = TestStore::new();
    let harness = store.open(settings.clone(), CLOSED).await;
    harness.one().await.send(post("7"), "first").await;
    let place = queued(&harness, "waits").await;
    assert_eq!(harness.get(&place).await.json()["state"], "waiting");
    let before = upstream.seen().len();
    drop(harness);

    // The claim of the process that ended lapses.
    store.clock.advance(Duration::from_secs(61));
    let next = store.open(settings, RULES).await;
    let gateway = next.gateway.clone();
    let maintained = tokio::spawn(async move { gateway.maintain().await });
    within("the request", async { while next.get(&place).await.json()["state"] != "done" {} })
        .await;
    assert_eq!(upstream.seen().len(), before + 1);
    assert_eq!((upstream.last().body.as_str(), upstream.last().header("x-user")), ("waits", "7"));
    // Credentials were not written.
    assert!(upstream.last().headers.get("authorization").is_none());
    maintained.abort();
}

#[tokio::test]
async fn a_queued_request_knows_when_it_will_be_processed() {
    let upstream = Upstream::start().await;
    let settings = patient(&upstream);
    let harness = TestStore::new().open(settings, CLOSED).await;
    harness.one().await.send(post("7"), "first").await;
    let reply = harness.one().await.send(post("7"), "second").await;
    assert_eq!(reply.status, 202);
    let expected = reply.json()["expected_seconds"].as_f64().unwrap();
    assert!((3_000.0..=3_600.0).contains(&expected), "{expected}");
    let retry_after: f64 = reply.header("retry-after").parse().unwrap();
    assert!((expected..expected + 1.0).contains(&retry_after), "{retry_after} {expected}");
}

#[tokio::test]
async fn the_bounds_hold_for_the_durable_queue_too() {
    let upstream = Upstream::start().await;
    let mut settings = patient(&upstream);
    settings.queue.requests_max = 2;
    let harness = TestStore::new().open(settings, CLOSED).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(harness.one().await.send(post("7"), "x").await.status.as_u16());
    }
    assert_eq!(statuses, [201, 202, 202, 429]);
}
