//! Units that clients take ahead.

use serde_json::{Value, json};
use tidegate_engine::Nanos;

use crate::bench::{Bench, asking};

fn body(key: &str, value: &str, members: &Value) -> Value {
    let mut body = asking(key, value);
    body.as_object_mut().unwrap().remove("cost");
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

async fn exchange(bench: &Bench, key: &str, value: &str, members: Value) -> (u16, Value) {
    let answer = bench.post("/v1/slices", &body(key, value, &members)).await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn clients_share_a_limit_by_slices_and_then_nothing_is_left() {
    let bench = Bench::new();
    let (status, first) = exchange(&bench, "ip", "10.0.0.1", json!({"units": 3})).await;
    assert_eq!((status, &first["units"]), (200, &json!(3)));
    let (_, second) = exchange(&bench, "ip", "10.0.0.1", json!({"units": 3})).await;
    assert_eq!(second["units"], 2, "as many as are left");
    assert_ne!(first["slice"], second["slice"]);
    let (status, refused) = exchange(&bench, "ip", "10.0.0.1", json!({"units": 3})).await;
    assert_eq!((status, &refused["units"], &refused["slice"]), (429, &json!(0), &Value::Null));
    assert!(refused["retry_after_ms"].as_u64().unwrap() > 0, "{refused}");
    let check = bench.post("/v1/check", &asking("ip", "10.0.0.1")).await;
    assert_eq!(check.status, 429, "units that were taken are charged");
}

#[tokio::test]
async fn what_was_not_spent_comes_back_once() {
    let bench = Bench::new();
    let (_, taken) = exchange(&bench, "ip", "10.0.0.1", json!({"units": 5})).await;
    let back = json!({"units": 0, "slice": taken["slice"], "unused": 2});
    let (status, returned) = exchange(&bench, "ip", "10.0.0.1", back.clone()).await;
    assert_eq!((status, &returned["returned"]), (200, &json!(2)));
    let (_, again) = exchange(&bench, "ip", "10.0.0.1", back).await;
    assert_eq!(again["returned"], 0);
    let (_, rest) = exchange(&bench, "ip", "10.0.0.1", json!({"units": 9})).await;
    assert_eq!(rest["units"], 2);
}

#[tokio::test]
async fn a_slice_is_renewed_in_one_call() {
    let bench = Bench::new();
    let (_, taken) = exchange(&bench, "ip", "10.0.0.1", json!({"units": 4})).await;
    let renewal = json!({"units": 4, "slice": taken["slice"], "unused": 1});
    let (_, renewed) = exchange(&bench, "ip", "10.0.0.1", renewal).await;
    assert_eq!((&renewed["returned"], &renewed["units"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn a_slice_gives_back_no_more_than_it_had_and_only_to_its_own_limits() {
    let bench = Bench::new();
    let (_, taken) = exchange(&bench, "ip", "10.0.0.1", json!({"units": 3})).await;
    let other = json!({"units": 0, "slice": taken["slice"], "unused": 3});
    assert_eq!(exchange(&bench, "ip", "10.0.0.2", other).await.1["returned"], 0);
    let (_, taken) = exchange(&bench, "ip", "10.0.0.2", json!({"units": 3})).await;
    let more = json!({"units": 0, "slice": taken["slice"], "unused": 1_000});
    assert_eq!(exchange(&bench, "ip", "10.0.0.2", more).await.1["returned"], 3);
    let unknown = json!({"units": 0, "slice": "no slice", "unused": 3});
    assert_eq!(exchange(&bench, "ip", "10.0.0.1", unknown).await.1["returned"], 0);
}

#[tokio::test]
async fn a_slice_ends_with_its_life_and_with_its_window() {
    let bench = Bench::new();
    let (_, day) = exchange(&bench, "ip", "10.0.0.1", json!({"units": 1})).await;
    assert_eq!(day["expires_in_ms"], 1_000);
    let long = json!({"units": 1, "life_ms": 3_600_000});
    assert_eq!(exchange(&bench, "ip", "10.0.0.1", long).await.1["expires_in_ms"], 60_000);
    let (_, second) = exchange(&bench, "plan", "free", json!({"units": 1, "life_ms": 5_000})).await;
    assert_eq!(second["expires_in_ms"], 1_000, "the window of a second ends");
    bench.engine.clock().advance(Nanos::from_secs(1));
    let late = json!({"units": 0, "slice": day["slice"], "unused": 1});
    assert_eq!(exchange(&bench, "ip", "10.0.0.1", late).await.1["returned"], 0);
}

#[tokio::test]
async fn every_limit_of_the_request_gives_the_units_or_none_does() {
    let bench = Bench::new();
    let (_, taken) = exchange(&bench, "both", "a", json!({"units": 5})).await;
    assert_eq!(taken["units"], 1, "the limit of an hour has one");
    let (status, refused) = exchange(&bench, "both", "a", json!({"units": 5})).await;
    assert_eq!((status, &refused["units"]), (429, &json!(0)));
}

#[tokio::test]
async fn limits_without_units_to_take_ahead_and_costs_of_descriptors_are_refused() {
    let bench = Bench::new();
    for (key, algorithm) in [("job", "concurrency"), ("queue", "leaky_bucket")] {
        let (status, problem) = exchange(&bench, key, "a", json!({"units": 1})).await;
        assert_eq!(status, 409, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(algorithm), "{problem}");
    }
    let mut costly = body("ip", "10.0.0.1", &json!({"units": 1}));
    costly["descriptors"][0]["cost"] = json!(2);
    let answer = bench.post("/v1/slices", &costly).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn without_a_limit_all_units_are_given() {
    let bench = Bench::new();
    let (status, taken) = exchange(&bench, "stranger", "a", json!({"units": 7})).await;
    assert_eq!((status, &taken["units"]), (200, &json!(7)));
}
