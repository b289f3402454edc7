//! Long responses, whose bodies are read without hyper.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::harness::{Harness, to, until, within};
use crate::upstream::Upstream;

const BYTES: usize = 200_000;

/// A server that sends the same bytes for each request, and counts its connections.
async fn serving(answer: String, closes: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while stream.read(&mut request).await.is_ok_and(|bytes| bytes > 0) {
                    drop(stream.write_all(answer.as_bytes()).await);
                    if closes {
                        return;
                    }
                }
            });
        }
    });
    (url, connections)
}

fn answer(fields: &str, bytes: usize) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n{fields}\r\n{}", "x".repeat(bytes))
}

#[tokio::test]
async fn a_long_response_is_complete_and_its_connection_is_used_again() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    for is_http2 in [false, true] {
        let mut client = match is_http2 {
            false => harness.one().await,
            true => harness.two().await,
        };
        for _ in 0..3 {
            let large = client.send(Request::get("/large"), "").await;
            assert_eq!((large.status.as_u16(), large.body.len()), (200, 8 << 20));
            assert!(large.body.bytes().all(|byte| byte == b'x'));
            assert_eq!(client.send(Request::get("/"), "").await.body, "hello");
        }
        assert_eq!(client.send(Request::head("/large"), "").await.body, "");
        assert_eq!(client.send(Request::post("/large"), "body").await.body.len(), 8 << 20);
    }
    assert_eq!(upstream.connections(), 1);
    until("the end of all requests", || harness.gateway.read().in_flight == 0).await;
    assert_eq!(harness.gateway.read().broken, 0);
}

#[tokio::test]
async fn a_connection_is_closed_after_a_long_response_that_says_so_or_has_more_bytes() {
    for (answer, length) in [
        (answer("connection: keep-alive\r\n", BYTES), 1),
        (answer("connection: close\r\n", BYTES), 3),
        (answer("", BYTES + 5), 3),
        (answer("", BYTES).replace("HTTP/1.1", "HTTP/1.0"), 3),
    ] {
        let (url, connections) = serving(answer, false).await;
        let harness = Harness::open(to(&[url]));
        for _ in 0..3 {
            assert_eq!(harness.get("/").await.body.len(), BYTES);
        }
        assert_eq!(connections.load(Ordering::Relaxed), length);
    }
}

#[tokio::test]
async fn a_long_response_that_breaks_off_is_not_complete_for_the_client_either() {
    for bytes in [0, 10, BYTES - 1] {
        let (url, _) = serving(answer("", bytes), true).await;
        let harness = Harness::open(to(&[url]));
        let response = harness.one().await.begin(Request::get("/"), "");
        // The connection may be closed before the head is written.
        if let Ok(response) = within("a response", response).await {
            assert!(within("a body", response.into_body().collect()).await.is_err(), "{bytes}");
        }
        until("the end of the request", || harness.gateway.read().broken == 1).await;
    }
}

#[tokio::test]
async fn a_client_that_disconnects_ends_a_long_response() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let response = harness.one().await.begin(Request::get("/large"), "");
    drop(within("a response", response).await.unwrap());
    until("the end of the upstream request", || upstream.open() == 0).await;
    until("the end of the request", || harness.gateway.read().in_flight == 0).await;
    assert_eq!(harness.gateway.read().broken, 0, "the upstream did not break off");
}
