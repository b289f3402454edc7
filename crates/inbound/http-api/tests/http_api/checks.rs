//! Deciding: check, peek, refund, reset, explain.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_engine::{
    CounterStore, Engine, FailureKind, FailureMode, ManualClock, Mode, Nanos, Percent, StoreError,
    Target,
};
use tidegate_http_api::HttpApiSettings;
use tidegate_stores::{Answers, Batch};

use crate::bench::{Bench, START, asking, costing, engine, parts, rules, settings};

#[tokio::test]
async fn a_check_is_admitted_until_the_burst_is_spent_and_then_names_the_limit() {
    let bench = Bench::new();
    let version = format!("{:016x}", bench.engine.rules_version());
    for remaining in [1, 0] {
        let answer = bench.post("/v1/check", &asking("user", "ada")).await;
        assert_eq!(answer.status, 200);
        let reset = (2 - remaining) * 30_000;
        let expected = json!({
            "admitted": true, "domain": "api", "rules_version": version,
            "decisions": [{
                "descriptor": 0, "path": "user", "limit": "burst", "admitted": true,
                "role": "required", "quota": 2, "remaining": remaining, "cost": 1,
                "reset_after_ms": reset,
            }],
        });
        assert_eq!(answer.json(), expected);
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(&*remaining.to_string()));
        assert_eq!(answer.field("ratelimit-policy"), Some("\"burst\";q=2;w=60"));
        assert_eq!(answer.field("retry-after"), None);
    }
    let refused = bench.post("/v1/check", &asking("user", "ada")).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("retry-after"), Some("30"));
    let expected = json!({
        "admitted": false, "domain": "api", "rules_version": version,
        "refused_by": {"descriptor": 0, "path": "user", "limit": "burst"},
        "retry_after_ms": 30_000,
        "decisions": [{
            "descriptor": 0, "path": "user", "limit": "burst", "admitted": false,
            "role": "required", "quota": 2, "remaining": 0, "cost": 1,
            "retry_after_ms": 30_000, "reset_after_ms": 60_000,
        }],
    });
    assert_eq!(refused.json(), expected);
    bench.engine.clock().advance(Nanos::from_millis(30_000));
    assert_eq!(bench.post("/v1/check", &asking("user", "ada")).await.status, 200);
    assert_eq!(bench.meter.read().answers, [3, 1, 0, 0, 0, 0]);
}

#[tokio::test]
async fn several_descriptors_and_costs_are_decided_together() {
    let bench = Bench::new();
    let asked = json!({
        "domain": "api", "cost": 2,
        "descriptors": [
            {"entries": [{"key": "user", "value": "ada"}]},
            {"entries": [{"key": "both", "value": "x"}], "cost": 1},
            {"entries": [{"key": "free", "value": "y"}]},
        ],
    });
    let answer = bench.post("/v1/check", &asked).await.json();
    let costs: Vec<&Value> =
        answer["decisions"].as_array().unwrap().iter().map(|one| &one["cost"]).collect();
    assert_eq!(costs, [2, 1, 1]);
    let refused = bench.post("/v1/check", &asked).await.json();
    // The hourly limit has no name, and is the one to wait longest for.
    assert_eq!(refused["refused_by"], json!({"descriptor": 1, "path": "both"}));
    assert_eq!(refused["retry_after_ms"], 3_600_000);
}

#[tokio::test]
async fn a_cost_that_can_never_fit_is_told_so() {
    let bench = Bench::new();
    let answer = bench.post("/v1/check", &costing(3, "user", "ada")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.field("retry-after"), None);
    let answer = answer.json();
    assert_eq!((&answer["never"], &answer["retry_after_ms"]), (&json!(true), &Value::Null));
    assert_eq!(answer["decisions"][0]["never"], true);
}

#[tokio::test]
async fn a_refusal_is_answered_with_200_when_asked_so() {
    let bench = Bench::new();
    let answer = bench.post("/v1/check?status=200", &costing(3, "user", "ada")).await;
    assert_eq!((answer.status, &answer.json()["admitted"]), (200, &json!(false)));
    let answer = bench.post("/v1/peek?status=200", &costing(3, "user", "ada")).await;
    assert_eq!((answer.status, &answer.json()["admitted"]), (200, &json!(false)));
}

#[tokio::test]
async fn a_batch_is_decided_in_order_and_answered_with_200() {
    let bench = Bench::new();
    let batch = json!({"requests": vec![asking("user", "ada"); 3]});
    let answer = bench.post("/v1/check", &batch).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("x-ratelimit-limit"), None);
    let answer = answer.json();
    let admitted: Vec<&Value> =
        answer["answers"].as_array().unwrap().iter().map(|one| &one["admitted"]).collect();
    assert_eq!(admitted, [true, true, false]);
    assert_eq!(bench.meter.read().answers, [0, 1, 0, 0, 0, 0], "a batch is one request");
    let reset = bench.post("/v1/reset", &json!({"requests": [asking("user", "ada")]})).await;
    assert_eq!(reset.json()["answers"][0]["reset"], 1);
}

#[tokio::test]
async fn one_bad_request_in_a_batch_charges_nobody() {
    let bench = Bench::new();
    let mut bad = asking("user", "ada");
    bad["cost"] = json!("two");
    let answer = bench.post("/v1/check", &json!({"requests": [asking("user", "ada"), bad]})).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["path"], "requests[1].cost");
    let peeked = bench.post("/v1/peek", &asking("user", "ada")).await.json();
    assert_eq!(peeked["decisions"][0]["remaining"], 2);
}

#[tokio::test]
async fn a_peek_charges_nothing() {
    let bench = Bench::new();
    for _ in 0..5 {
        let answer = bench.post("/v1/peek", &costing(2, "user", "ada")).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["decisions"][0]["remaining"], 2);
        assert_eq!(answer.field("x-ratelimit-remaining"), Some("2"));
    }
    assert_eq!(bench.post("/v1/peek", &costing(3, "user", "ada")).await.status, 429);
}

#[tokio::test]
async fn a_refund_gives_back_and_a_reset_forgets() {
    let bench = Bench::new();
    bench.post("/v1/check", &costing(2, "user", "ada")).await;
    let refunded = bench.post("/v1/refund", &asking("user", "ada")).await;
    assert_eq!(refunded.status, 200);
    assert_eq!(refunded.json()["decisions"][0]["remaining"], 1);
    assert_eq!(refunded.field("x-ratelimit-limit"), None);
    let reset = bench.post("/v1/reset", &asking("user", "ada")).await;
    assert_eq!((reset.status, &reset.json()["reset"]), (200, &json!(1)));
    let peeked = bench.post("/v1/peek", &asking("user", "ada")).await.json();
    assert_eq!(peeked["decisions"][0]["remaining"], 2);
    let two = bench.post("/v1/reset", &asking("both", "x")).await.json();
    assert_eq!(two["reset"], 2);
}

#[tokio::test]
async fn a_limit_that_the_request_brings_is_applied_in_place_of_the_rules() {
    let bench = Bench::new();
    let mut asked = asking("user", "ada");
    asked["descriptors"][0]["limit"] = json!({"requests_per_unit": 1, "per_ms": 5_000});
    let answer = bench.post("/v1/check", &asked).await.json();
    let expected = json!({
        "descriptor": 0, "own_limit": true, "admitted": true, "role": "required",
        "quota": 1, "remaining": 0, "cost": 1, "reset_after_ms": 5_000,
    });
    assert_eq!(answer["decisions"], json!([expected]));
    let refused = bench.post("/v1/check", &asked).await;
    assert_eq!((refused.status, refused.field("retry-after")), (429, Some("5")));
    let refused = refused.json();
    assert_eq!(refused["refused_by"], json!({"descriptor": 0, "own_limit": true}));
    assert_eq!(refused["retry_after_ms"], 5_000);
}

#[tokio::test]
async fn what_is_unusual_about_a_verdict_is_told() {
    let bench = Bench::new();
    let dark = bench.post("/v1/check", &asking("dark", "x")).await.json();
    assert_eq!((&dark["admitted"], &dark["refused_in_shadow"]), (&json!(true), &json!(true)));
    assert_eq!(dark["decisions"][0]["role"], "shadow");
    bench.post("/v1/check", &asking("queue", "x")).await;
    let delayed = bench.post("/v1/check", &asking("queue", "x")).await.json();
    assert_eq!(delayed["delay_ms"], 1_000);
    let soft = bench.post("/v1/check", &costing(11, "soft", "x")).await.json();
    assert_eq!((&soft["soft"], &soft["decisions"][0]["soft"]), (&json!(true), &json!(true)));
    let mut elsewhere = asking("user", "ada");
    elsewhere["domain"] = json!("nowhere");
    let answer = bench.post("/v1/check", &elsewhere).await.json();
    assert_eq!((&answer["admitted"], &answer["unknown_domain"]), (&json!(true), &json!(true)));
    bench.engine.switch_off(true);
    let answer = bench.post("/v1/check", &costing(9, "user", "ada")).await.json();
    assert_eq!((&answer["admitted"], &answer["switched_off"]), (&json!(true), &json!(true)));
    assert_eq!(answer["unknown_domain"], Value::Null);
}

#[tokio::test]
async fn in_shadow_every_request_is_admitted_and_told_what_would_have_been() {
    let bench = Bench::with(HttpApiSettings { shadow: true, ..settings() });
    let answer = bench.post("/v1/check", &costing(9, "user", "ada")).await;
    assert_eq!((answer.status, answer.field("retry-after")), (200, None));
    assert_eq!(answer.field("x-ratelimit-limit"), None);
    let answer = answer.json();
    assert_eq!((&answer["admitted"], &answer["refused_in_shadow"]), (&json!(true), &json!(true)));
    assert_eq!((&answer["refused_by"], &answer["never"]), (&Value::Null, &Value::Null));
    assert_eq!(answer["decisions"][0]["admitted"], false);
}

/// A store that never answers.
pub(crate) struct Down;

impl CounterStore for Down {
    async fn apply(&self, _: &Batch<'_>, _: &mut Answers) -> Result<(), StoreError> {
        Err(StoreError::Unavailable { kind: FailureKind::Refused, reason: "it is down".to_owned() })
    }

    fn give_back(&self, _: &Batch<'_>) {}
}

pub(crate) fn down(failure_mode: FailureMode) -> Bench<Down> {
    let engine = Engine::new(Down, ManualClock::at(START)).with_rules(rules(crate::bench::RULES));
    Bench::over(engine.with_failure_mode(failure_mode), parts(settings()))
}

#[tokio::test]
async fn what_cannot_be_decided_is_never_called_over_the_limit() {
    let bench = down(FailureMode::Refuse);
    let answer = bench.post("/v1/check", &asking("user", "ada")).await;
    assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")));
    assert_eq!(answer.field("x-ratelimit-limit"), None);
    let answer = answer.json();
    assert_eq!(answer["undecided"], "the store cannot be used: it is down");
    assert_eq!((&answer["admitted"], &answer["refused_by"]), (&json!(false), &Value::Null));
    assert_eq!(bench.meter.read().answers, [0, 0, 1, 0, 0, 0]);
}

#[tokio::test]
async fn the_failure_mode_admits_checks_but_what_was_not_done_is_not_claimed() {
    let bench = down(FailureMode::Admit);
    let answer = bench.post("/v1/check", &asking("user", "ada")).await;
    assert_eq!((answer.status, &answer.json()["admitted"]), (200, &json!(true)));
    assert_eq!(bench.post("/v1/refund", &asking("user", "ada")).await.status, 503);
    let reset = bench.post("/v1/reset", &asking("user", "ada")).await;
    assert_eq!((reset.status, &reset.json()["reset"]), (503, &json!(0)));
    assert!(reset.json()["undecided"].is_string());
    assert_eq!(bench.meter.read().answers, [0, 0, 3, 0, 0, 0]);
}

#[tokio::test]
async fn an_explanation_says_each_level_and_the_limits_as_they_are_switched() {
    let bench = Bench::new();
    let half = Mode::Enforce(Percent::new(50));
    let target = Target { domain: "api", path: "user", limit: None };
    bench.engine.set_switch(target, half).unwrap();
    let answer = bench.post("/v1/explain", &asking("user", "ada")).await.json();
    let explained = &answer["descriptors"][0];
    assert_eq!(explained["ending"], "rule");
    assert_eq!(explained["why"], "rule user applies: 1 limit");
    assert_eq!(explained["levels"][0]["counted_by"], "ada");
    let expected = json!({
        "name": "burst", "algorithm": "token_bucket", "amount": 2, "period_ms": 60_000, "cost": 1,
        "mode": "enforce", "enforce_percent": 50, "switched": true, "when_over": "refuse",
        "replaces": [],
    });
    assert_eq!(explained["rule"]["limits"], json!([expected]));
}

#[tokio::test]
async fn an_explanation_says_why_nothing_applies() {
    let bench = Bench::new();
    let nested = json!({"domain": "api", "descriptors": [
        {"entries": [{"key": "usr", "value": "ada"}]},
        {"entries": [{"key": "ip", "value": "10.1.2.3"}, {"key": "path", "value": "/"}]},
        {"entries": [{"key": "plan", "value": "gold"}]},
        {"entries": [{"key": "free", "value": "x"}]},
        {"entries": [{"key": "usr", "value": "x"}],
         "limit": {"requests_per_unit": 1, "unit": "day"}},
    ]});
    let answer = bench.post("/v1/explain", &nested).await.json();
    let endings: Vec<&Value> =
        answer["descriptors"].as_array().unwrap().iter().map(|one| &one["ending"]).collect();
    assert_eq!(endings, ["no_match", "no_limit_there", "no_such_plan", "rule", "own_limit"]);
    assert_eq!(answer["descriptors"][3]["rule"]["unlimited"], true);

    let mut elsewhere = asking("user", "ada");
    elsewhere["domain"] = json!("apy");
    let answer = bench.post("/v1/explain", &elsewhere).await;
    assert_eq!((answer.status, &answer.json()["hint"]), (404, &json!("did you mean `api`?")));
    elsewhere["domain"] = json!("somewhere");
    let answer = bench.post("/v1/explain", &elsewhere).await;
    assert_eq!(answer.json()["hint"], "there are: api");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_more_is_admitted_than_the_limit_and_no_number_is_below_zero(
        costs in prop::collection::vec(0_u64..8, 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::over(engine(), parts(settings()));
            let mut admitted = 0;
            for cost in costs {
                let answer = bench.post("/v1/check?status=200", &costing(cost, "soft", "x")).await;
                let answer = answer.json();
                if answer["admitted"] == true {
                    admitted += cost;
                } else {
                    prop_assert!(answer["refused_by"].is_object());
                    prop_assert!(answer["retry_after_ms"].is_u64() || answer["never"] == true);
                }
                prop_assert!(answer["decisions"][0]["remaining"].is_u64());
            }
            prop_assert!(admitted <= 20, "{admitted} of at most twice ten");
            Ok(())
        })?;
    }
}
