//! A panic of limiter code at any stage admits the call. One test: injected panics reach the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "rls/support.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod support;

use support::{Later, door, door_to, memory, request, rules, user};
use tidegate_engine::LimiterStage;
use tidegate_engine::fault_injection::panic_in;
use tidegate_metrics::AnswerKind;
use tidegate_rls::RlsSettings;

/// Refuses every request.
const RULES: &str = "- {key: user, rate_limit: {unit: minute, requests_per_unit: 0}}";
const JSON: &[u8] =
    br#"{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "7"}]}]}"#;

#[tokio::test]
async fn a_panic_at_any_stage_admits_the_call() {
    let (near, far) = (door(RULES), door_to(Later(memory()), rules(RULES), RlsSettings::default()));
    for stage in LimiterStage::ALL {
        panic_in(Some(stage));
        let codes = [
            near.answer(request([user()])).await.overall_code,
            far.answer(request([user()])).await.overall_code,
            i32::from(near.rls.answer_json(JSON).await.status().as_u16()),
        ];
        panic_in(None);
        let expected = match stage {
            // The answer stands, and is not counted.
            LimiterStage::Record => [2, 2, 429],
            // `/json` has its own decoder, which is not a stage of limiter code.
            LimiterStage::Describe => [1, 1, 429],
            LimiterStage::Decide | LimiterStage::Render => [1, 1, 200],
        };
        assert_eq!(codes, expected, "{stage:?}");
    }
    let counted = near.meter.read().answers;
    let counts = AnswerKind::ALL.into_iter().zip(counted).collect::<Vec<_>>();
    assert!(counts.contains(&(AnswerKind::ErrorOpen, 3)), "{counts:?}");
}
