//! Requests that cannot be answered.

use http::Method;
use proptest::prelude::*;
use serde_json::json;
use tidegate_http_api::HttpApiSettings;

use crate::bench::{Bench, asking, request, settings};

/// The routes that take a body of ours.
const BODIED: [&str; 6] =
    ["/v1/check", "/v1/peek", "/v1/refund", "/v1/reset", "/v1/explain", "/v1/release"];

#[tokio::test]
async fn a_path_that_is_not_there_is_answered_with_a_guess() {
    let bench = Bench::new();
    for (path, hint) in [
        ("/v1/chek", "did you mean `/v1/check`?"),
        ("/v1/check/", "did you mean `/v1/check`?"),
        ("/", "`/v1/openapi.json` says what there is"),
        ("/json", "`POST /v1/check` decides requests"),
    ] {
        let answer = bench.post_text(path, "").await;
        assert_eq!((answer.status, answer.json()["hint"].as_str()), (404, Some(hint)), "{path}");
        assert_eq!(answer.field("content-type"), Some("application/problem+json"));
    }
    assert_eq!(bench.meter.read().answers, [0, 0, 0, 0, 4, 0]);
}

#[tokio::test]
async fn a_method_that_a_route_does_not_take_is_answered_with_those_that_it_does() {
    let bench = Bench::new();
    for path in BODIED {
        let answer = bench.get(path).await;
        assert_eq!((answer.status, answer.field("allow")), (405, Some("POST")), "{path}");
    }
    for path in ["/livez", "/readyz", "/healthcheck", "/v1/rules", "/v1/openapi.json"] {
        let answer = bench.post_text(path, "").await;
        assert_eq!((answer.status, answer.field("allow")), (405, Some("GET, HEAD")), "{path}");
    }
}

#[tokio::test]
async fn a_bad_body_is_told_what_is_wrong_and_where_on_every_route() {
    let bench = Bench::new();
    for path in BODIED {
        let answer = bench.post_text(path, "{\n \"x\": 1}").await;
        assert_eq!(answer.status, 400, "{path}");
        let problem = answer.json();
        assert_eq!((&problem["line"], &problem["path"]), (&json!(2), &json!("x")), "{path}");
        assert_eq!((&problem["type"], &problem["status"]), (&json!("about:blank"), &json!(400)));
        assert!(problem["detail"].as_str().unwrap().starts_with("there is no field `x`"));
        assert_eq!(bench.post_text(path, "").await.status, 400, "{path}");
        assert_eq!(bench.post_text(path, "{\"domain\"").await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read() {
    let settings = HttpApiSettings { body_bytes_max: 200, ..settings() };
    let bench = Bench::with(settings);
    for path in BODIED {
        let answer = bench.post_text(path, &" ".repeat(201)).await;
        assert_eq!(answer.status, 413, "{path}");
        assert_eq!(answer.json()["detail"], "the body is larger than 200 bytes");
    }
    assert_eq!(bench.post("/v1/check", &asking("user", "ada")).await.status, 200);
}

#[tokio::test]
async fn only_a_content_type_that_is_not_json_is_refused() {
    let bench = Bench::new();
    let body = asking("user", "ada").to_string();
    for (kind, status) in [
        (Some("application/json; charset=utf-8"), 200),
        (None, 200),
        (Some("application/x-www-form-urlencoded"), 415),
        (Some(""), 415),
    ] {
        let mut request = request(Method::POST, "/v1/peek", &body);
        if let Some(kind) = kind {
            request.headers_mut().insert("content-type", kind.parse().unwrap());
        }
        assert_eq!(bench.send(request).await.status, status, "{kind:?}");
    }
}

#[tokio::test]
async fn a_parameter_that_is_not_there_is_refused() {
    let bench = Bench::new();
    for path in ["/v1/check?status=204", "/v1/check?x", "/v1/reset?status=200"] {
        let answer = bench.post(path, &asking("user", "ada")).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.text.contains("there is no parameter"), "{}", answer.text);
    }
    let answer = bench.post("/v1/check?&status=200&", &asking("user", "ada")).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_batch_is_bounded_and_not_for_every_route() {
    let bench = Bench::new();
    let batch = |count| json!({"requests": vec![asking("free", "x"); count]});
    assert_eq!(bench.post("/v1/check", &batch(100)).await.status, 200);
    assert_eq!(bench.post("/v1/check", &batch(101)).await.status, 400);
    assert_eq!(bench.post("/v1/explain", &batch(1)).await.status, 400);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_on_any_route_are_answered(
        path in prop::sample::select(&BODIED), body: Vec<u8>, query in "[ -~&&[^#<>\"`{}\\\\^| ]]{0,20}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(async {
            let body = http_body_util::Full::new(bytes::Bytes::from(body));
            let request = http::Request::post(format!("{path}?{query}")).body(body).unwrap();
            Bench::new().send(request).await
        });
        prop_assert_eq!(answer.status, 400);
    }

    #[test]
    fn any_path_is_answered(path in "/[a-z0-9/.]{0,30}") {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(async { Bench::new().get(&path).await });
        prop_assert!(matches!(answer.status, 200 | 404 | 405), "{}", answer.status);
    }
}
