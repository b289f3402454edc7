//! Envoy's rate limit service, as its clients meet it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod json;
mod support;
mod verdicts;

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../../examples/rls_service.rs"]
mod rls_service;

#[tokio::test]
async fn the_example_limits_each_user() {
    let expected = ["ada: OK, 2 left", "ada: OK, 1 left", "ada: OK, 0 left"];
    let answers = rls_service::demo().await.unwrap();
    assert_eq!(answers[..3], expected);
    assert_eq!(answers[3..], ["ada: OVER_LIMIT, 0 left", "bob: OK, 2 left"]);
}
