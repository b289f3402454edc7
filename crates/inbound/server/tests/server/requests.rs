//! Requests over every transport and protocol, and panics in services.

use http::Version;
use tidegate_server::{Protocol, Server};

use crate::client::{
    Client, LONG_PIECE, LONG_PIECES, endpoint, open, read, service, tcp, until, workers,
};

#[tokio::test]
async fn http1_and_http2_are_served_at_one_address() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let listening = open(&server, endpoint(Protocol::Auto), service);

    let mut one = Client::one(tcp(&listening).await).await;
    let (response, text) = one.get("/first").await.unwrap();
    assert_eq!((response.version(), text.as_str()), (Version::HTTP_11, "/first"));
    assert_eq!(one.text("/second").await, "/second", "the connection is kept");

    let mut two = Client::two(tcp(&listening).await).await;
    let (response, text) = two.get("/third").await.unwrap();
    assert_eq!((response.version(), text.as_str()), (Version::HTTP_2, "/third"));
    // A connection is counted after it was handed to its worker, which may serve it before.
    while listening.counts().accepted < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(listening.counts().accepted, 2);
}

#[tokio::test]
async fn an_http2_endpoint_rejects_http1() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let listening = open(&server, endpoint(Protocol::Http2), service);
    let mut one = Client::one(tcp(&listening).await).await;
    assert!(one.get("/").await.is_err());
    assert_eq!(Client::two(tcp(&listening).await).await.text("/").await, "/");
}

#[tokio::test]
async fn a_request_that_waits_does_not_hold_up_others_on_its_connection() {
    let server = Server::start(workers(1)).unwrap();
    let (service, mut control) = service();
    let listening = open(&server, endpoint(Protocol::Http2), service);
    let mut client = Client::two(tcp(&listening).await).await;
    let slow = tokio::spawn(client.send("/slow"));
    control.slow_request().await;
    assert_eq!(client.text("/quick").await, "/quick");
    control.let_go();
    let response = slow.await.unwrap().unwrap();
    assert_eq!(read(response).await.unwrap().1, "/slow");
}

#[tokio::test]
async fn many_requests_at_once_on_one_connection_are_all_answered() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let listening = open(&server, endpoint(Protocol::Http2), service);
    let mut client = Client::two(tcp(&listening).await).await;
    let sent: Vec<_> = (0..500).map(|number| client.send(&format!("/{number}"))).collect();
    for (number, response) in sent.into_iter().enumerate() {
        let text = read(response.await.unwrap()).await.unwrap().1;
        assert_eq!(text, format!("/{number}"));
    }
}

#[tokio::test]
async fn a_panic_fails_its_request_and_is_counted() {
    let server = Server::start(workers(1)).unwrap();
    for protocol in [Protocol::Auto, Protocol::Http2] {
        let (service, _control) = service();
        let listening = open(&server, endpoint(protocol), service);
        let mut two = Client::two(tcp(&listening).await).await;
        assert!(two.get("/panic").await.is_err());
        assert!(two.get("/panic-at-once").await.is_err());
        assert_eq!(two.text("/after").await, "/after", "other streams go on");
        assert_eq!(listening.counts().panics, 2);
    }
}

#[tokio::test]
async fn a_panic_closes_an_http1_connection() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let listening = open(&server, endpoint(Protocol::Auto), service);
    for path in ["/panic", "/panic-in-body"] {
        let mut one = Client::one(tcp(&listening).await).await;
        assert!(one.get(path).await.is_err());
        one.closed().await;
    }
    until("the count", || listening.counts().panics == 2).await;
    assert_eq!(Client::one(tcp(&listening).await).await.text("/").await, "/");
}

#[tokio::test]
async fn a_panic_in_a_response_body_fails_its_request_and_is_counted() {
    let server = Server::start(workers(1)).unwrap();
    for protocol in [Protocol::Auto, Protocol::Http2] {
        let (service, mut control) = service();
        let listening = open(&server, endpoint(protocol), service);
        let mut two = Client::two(tcp(&listening).await).await;
        assert!(two.get("/panic-in-body").await.is_err());
        let slow = tokio::spawn(two.send("/slow-panic-in-body"));
        control.slow_request().await;
        control.let_go();
        let answer = slow.await.unwrap();
        assert!(match answer {
            Ok(response) => read(response).await.is_err(),
            Err(_) => true,
        });
        assert_eq!(two.text("/after").await, "/after", "other streams go on");
        until("the count", || listening.counts().panics == 2).await;
    }
}

#[tokio::test]
async fn a_long_response_arrives_complete_at_a_client_with_a_small_window() {
    let server = Server::start(workers(1)).unwrap();
    for protocol in [Protocol::Auto, Protocol::Http2] {
        let (service, _control) = service();
        let listening = open(&server, endpoint(protocol), service);
        let mut client = Client::two_with_window(tcp(&listening).await, 1_000).await;
        let text = client.text("/long").await;
        assert_eq!(text.len(), LONG_PIECES * LONG_PIECE.len());
        assert_eq!(client.text("/after").await, "/after");
    }
}

#[tokio::test]
async fn a_request_that_its_client_resets_is_dropped() {
    let server = Server::start(workers(1)).unwrap();
    for protocol in [Protocol::Auto, Protocol::Http2] {
        let (service, mut control) = service();
        let listening = open(&server, endpoint(protocol), service);
        let mut client = Client::two(tcp(&listening).await).await;
        client.text("/before").await;
        let before = control.alive();
        let slow = tokio::spawn(client.send("/slow"));
        control.slow_request().await;
        assert!(control.alive() > before);
        slow.abort();
        until("the end of the request", || control.alive() == before).await;
        assert_eq!(client.text("/after").await, "/after");
    }
}
