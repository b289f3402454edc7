//! A panic of limiter code at any stage admits the request. One test: injected panics reach the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "http_api/bench.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod bench;
#[path = "http_api/document.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod document;

use bench::Bench;
use serde_json::json;
use tidegate_engine::LimiterStage;
use tidegate_engine::fault_injection::panic_in;
use tidegate_metrics::AnswerKind;

#[tokio::test]
async fn a_panic_at_any_stage_admits_the_request() {
    let bench = Bench::new();
    let request = json!({
        "domain": "api",
        "descriptors": [{ "entries": [{ "key": "user", "value": "7" }] }],
    });
    for stage in LimiterStage::ALL {
        // Spends the limit.
        while bench.post("/v1/check", &request).await.status == 200 {}
        panic_in(Some(stage));
        let one = bench.post("/v1/check", &request).await;
        let batch = bench.post("/v1/check", &json!({ "requests": [request, request] })).await;
        let reset = bench.post("/v1/reset", &request).await;
        panic_in(None);
        if stage == LimiterStage::Record {
            // The answer stands, and is not counted.
            assert_eq!(one.status, 429, "{stage:?}");
            continue;
        }
        assert_eq!(one.status, 200, "{stage:?}");
        assert_eq!(batch.text.matches("\"admitted\":true").count(), 2, "{stage:?}: {}", batch.text);
        assert_eq!(reset.status, 503, "{stage:?}: a reset may not have been done");
    }
    let counts = AnswerKind::ALL.into_iter().zip(bench.meter.read().answers).collect::<Vec<_>>();
    assert!(counts.contains(&(AnswerKind::ErrorOpen, 9)), "{counts:?}");
}
