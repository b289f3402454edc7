//! Redirects: not followed unless asked for, and checked like any other destination.

use http::Response;
use http_body_util::Full;
use tidegate_delivery::AttemptOutcome;
use tidegate_queue::Payload;

use crate::harness::{TestServer, local_settings, ok, send};

fn redirect(code: u16, to: &str) -> Response<Full<bytes::Bytes>> {
    Response::builder().status(code).header("location", to).body(Full::default()).unwrap()
}

#[tokio::test]
async fn redirects_are_not_followed_by_default() {
    let server = TestServer::start(|_| redirect(307, "/other")).await;
    let outcome = send(local_settings(server.url("/")), Payload::default()).await.outcome;
    let AttemptOutcome::Rejected { detail } = outcome else { panic!("{outcome:?}") };
    assert!(detail.contains("a redirect that is not followed"), "{detail}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_followed_redirect_keeps_method_and_body_and_loses_credentials_elsewhere() {
    let other = TestServer::start(|_| ok("done")).await;
    let to = other.url("/there").to_string();
    let server = TestServer::start(move |_| redirect(308, &to)).await;
    let mut settings = local_settings(server.url("/"));
    settings.redirects_max = 1;
    settings.destinations.hosts.push(other.address.to_string().parse().unwrap());
    let payload = Payload::from_body("body").with_header("authorization", "Bearer secret");
    assert_eq!(send(settings, payload).await.outcome, AttemptOutcome::Delivered);
    assert!(server.seen()[0].headers.contains_key("authorization"));
    let seen = &other.seen()[0];
    assert_eq!((seen.method.as_str(), &seen.body[..]), ("POST", &b"body"[..]));
    assert!(!seen.headers.contains_key("authorization"));
    assert!(seen.headers.contains_key("idempotency-key"));
}

#[tokio::test]
async fn a_redirect_to_a_forbidden_destination_is_rejected() {
    for to in ["http://169.254.169.254/latest", "http://127.0.0.9:1/", "https://elsewhere.test/"] {
        let server = TestServer::start(move |_| redirect(307, to)).await;
        let mut settings = local_settings(server.url("/"));
        settings.redirects_max = 3;
        let outcome = send(settings, Payload::default()).await.outcome;
        let AttemptOutcome::Rejected { detail } = outcome else { panic!("{outcome:?}") };
        assert!(detail.starts_with("the target redirected to"), "{detail}");
    }
}

#[tokio::test]
async fn a_loop_of_redirects_ends() {
    let server = TestServer::start(|_| redirect(307, "/again")).await;
    let mut settings = local_settings(server.url("/"));
    settings.redirects_max = 3;
    let outcome = send(settings, Payload::default()).await.outcome;
    assert!(matches!(outcome, AttemptOutcome::Rejected { .. }), "{outcome:?}");
    assert_eq!(server.seen().len(), 4);
}
