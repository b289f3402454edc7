//! The examples do what they say.

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/axum_service.rs"]
mod axum_service;

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/protected_service.rs"]
mod protected_service;

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/tonic_service.rs"]
mod tonic_service;

#[tokio::test]
async fn the_axum_service_limits_each_user() {
    let answers = axum_service::demo().await.unwrap();
    let statuses: Vec<&str> =
        answers.iter().map(|answer| answer.lines().nth(1).unwrap_or_default()).collect();
    let expected = [
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 429 Too Many Requests",
        "HTTP/1.1 429 Too Many Requests",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 OK",
    ];
    assert_eq!(statuses, expected, "{answers:#?}");
    let policies = "ratelimit-policy: \"hourly\";q=5;w=3600, \
                    \"in-flight\";q=2;qu=\"concurrent-requests\"";
    assert!(answers[0].contains(policies), "{}", answers[0]);
    assert!(answers[0].contains("x-ratelimit-limit: 5\nx-ratelimit-remaining: 4\n"));
    assert!(answers[1].contains("ratelimit: \"hourly\";r=1;"));
    assert!(answers[2].ends_with('}') && answers[2].contains("\"violated-policies\":[\"hourly\"]"));
    assert!(answers[3].ends_with("\n\n"), "a body after HEAD: {}", answers[3]);
    assert!(!answers[5].contains("ratelimit"), "{}", answers[5]);
}

#[tokio::test]
async fn a_head_tells_the_length_that_a_get_would_have() {
    let answers = axum_service::demo().await.unwrap();
    let length = |answer: &str| {
        let line = answer.lines().find(|line| line.starts_with("content-length: "));
        line.map(ToOwned::to_owned)
    };
    assert!(length(&answers[2]).is_some());
    let near = |answer: &str| length(answer).map(|line| line.len());
    assert_eq!(near(&answers[2]), near(&answers[3]));
}

#[tokio::test]
async fn the_tonic_service_refuses_with_a_status_that_clients_understand() {
    let answers = tonic_service::demo().await.unwrap();
    let served = ["ada: serving, 2 left", "ada: serving, 1 left", "ada: serving, 0 left"];
    assert_eq!(answers[..3], served);
    let refused = "ada: ResourceExhausted, pushed back for 20 minutes: The limit \"hourly\" allows 3 per \
                   3600s. Wait for the time in Retry-After, then try again.";
    assert_eq!(answers[3], refused);
    assert_eq!(answers[4], "bob: serving, 2 left");
}

#[tokio::test]
async fn the_protected_service_serves_payments_and_sheds_the_rest_while_it_is_full() {
    let answers = protected_service::demo().await.unwrap();
    let (shed, head, health) = (&answers[0], &answers[1], &answers[2]);
    assert!(shed.contains("HTTP/1.1 503 Service Unavailable"), "{shed}");
    for part in ["x-tidegate-shed: get", "\nretry-after: ", "application/problem+json"] {
        assert!(shed.contains(part) && head.contains(part), "{shed}\n{head}");
    }
    assert!(shed.contains("\"code\":\"queue_") && shed.ends_with('}'), "{shed}");
    assert!(head.ends_with("\n\n"), "a body after HEAD: {head}");
    assert!(health.contains("HTTP/1.1 200 OK"), "{health}");
    for served in &answers[3..] {
        assert!(served.contains("HTTP/1.1 200 OK") && served.ends_with("done\n"), "{served}");
    }
    assert_eq!(answers.len(), 8);
}
