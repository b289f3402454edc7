//! A panic of limiter code at any stage admits the request. One test: injected panics reach the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "gateway/harness.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod harness;
#[path = "gateway/upstream.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod upstream;

use std::sync::Arc;

use harness::{Harness, START, by_user, engine, remaining, to};
use tidegate_engine::fault_injection::panic_in;
use tidegate_engine::{LimiterStage, ManualClock};
use tidegate_gateway::GatewayParts;
use tidegate_metrics::{AnswerKind, Meter};
use upstream::Upstream;

/// One request a day, and one in flight.
const RULES: &str = "- {key: user, limits: [{unit: day, requests_per_unit: 1}, \
                     {algorithm: concurrency, requests_per_unit: 1}]}";

#[tokio::test]
async fn a_panic_at_any_stage_admits_the_request() {
    let upstream = Upstream::start().await;
    let meter = Arc::new(Meter::new("gateway"));
    for stage in LimiterStage::ALL {
        let parts = GatewayParts { meter: Some(Arc::clone(&meter)), ..GatewayParts::default() };
        let engine = engine(RULES, ManualClock::at(START));
        let gateway = Harness::with(engine, by_user(to(&[upstream.url()])), parts, |at| at);
        panic_in(Some(stage));
        let first = gateway.get_as("7").await;
        panic_in(None);
        assert_eq!(first.status, 200, "{stage:?}");
        // Whether or not the first one was counted, the limit is spent now.
        drop(gateway.get_as("7").await);
        assert_eq!(gateway.get_as("7").await.status, 429, "{stage:?}");
        panic_in(Some(stage));
        let refused_or_admitted = gateway.get_as("7").await.status;
        panic_in(None);
        match stage {
            // The refusal stands, and is not counted.
            LimiterStage::Record => assert_eq!(refused_or_admitted, 429),
            _ => assert_eq!(refused_or_admitted, 200, "{stage:?}"),
        }
        assert_eq!(remaining(&gateway.engine, 1), 1, "{stage:?}: no slot stays held");
    }
    let counts = AnswerKind::ALL.into_iter().zip(meter.read().answers).collect::<Vec<_>>();
    // Describe and decide, the first and the last request; render, the last.
    assert!(counts.contains(&(AnswerKind::ErrorOpen, 5)), "{counts:?}");
}
