//! The layer on a store that has to be waited for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use support::elsewhere::Elsewhere;
use support::{START, by_user, get, hello, send};
use tidegate_engine::{Engine, ManualClock, Options, Source, compile};
use tidegate_tower_layer::RateLimitLayer;
use tower::{Layer, Service, ServiceExt};

fn layer(limit: &str) -> RateLimitLayer<Elsewhere, ManualClock> {
    let text = format!("domain: api\ndescriptors:\n- {{key: user, limits: [{limit}]}}");
    let rules = compile(&[Source::new("rules.yaml", text)], &Options::default())
        .unwrap_or_else(|report| panic!("{report}"));
    let store = Elsewhere::new();
    let engine = Engine::new(store, ManualClock::at(START)).with_rules(rules);
    RateLimitLayer::new(Arc::new(engine), "api", by_user)
}

#[tokio::test]
async fn a_request_is_decided_once_the_store_has_answered() {
    let service = layer("{unit: minute, requests_per_unit: 1}").layer(hello());
    let answer = send(&service, get("/")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("0"));
    let answer = send(&service, get("/")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(send(&service, get("/health")).await.status, 200);
}

#[tokio::test]
async fn slots_come_back_when_the_answer_has_been_read() {
    let service = layer("{algorithm: concurrency, requests_per_unit: 1, time_to_live: 60s}");
    let service = service.layer(hello());
    let held = service.clone().oneshot(get("/")).await.unwrap();
    assert_eq!(send(&service, get("/")).await.status, 429);
    drop(held);
    assert_eq!(send(&service, get("/")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_later_turn_waits_for_it() {
    let service = layer("{algorithm: leaky_bucket, unit: second, requests_per_unit: 10, queue: 5}");
    let mut service = service.layer(hello());
    let began = tokio::time::Instant::now();
    for _ in 0..3 {
        std::future::poll_fn(|context| service.poll_ready(context)).await.unwrap();
        service.call(get("/")).await.unwrap();
    }
    // Three turns of a tenth of a second apart; the engine's clock stands still.
    assert_eq!(began.elapsed().as_millis(), 100 + 200);
}
