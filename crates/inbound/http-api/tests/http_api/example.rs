//! The example does what it says.

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../../examples/http_api.rs"]
mod http_api;

#[tokio::test]
async fn the_example_limits_each_user() {
    let answers = http_api::demo().await.unwrap();
    let statuses: Vec<&str> =
        answers.iter().map(|answer| answer.lines().nth(1).unwrap_or_default()).collect();
    let (ok, refused) = ("HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests");
    assert_eq!(statuses, [ok, ok, refused, ok, ok, "HTTP/1.1 400 Bad Request"], "{answers:#?}");
    assert!(answers[2].contains("\"refused_by\":{\"descriptor\":0,\"path\":\"user\""));
    assert!(answers[5].contains("did you mean `domain`?"), "{}", answers[5]);
}
