//! Long responses, whose bodies are read without hyper.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use http_body_util::BodyExt as _;
use tidegate_gateway::{PathMatch, RouteSettings, UpstreamProtocol, UpstreamSettings};
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

/// A chunked response with chunks of this size, and what follows it.
fn chunked(fields: &str, size: usize, after: &str) -> String {
    let mut answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n");
    let mut rest = BYTES;
    while rest > 0 {
        let bytes = size.min(rest);
        answer += &format!("{bytes:X};n=1\r\n{}\r\n", "x".repeat(bytes));
        rest -= bytes;
    }
    answer + after
}

#[tokio::test]
async fn a_chunked_response_is_complete_and_its_connection_is_used_again() {
    for size in [1_000, 70_000, BYTES] {
        for (fields, after, expected) in [
            ("", "0\r\n\r\n", 1),
            ("", "0\r\nx-sum: 42\r\n\r\n", 1),
            ("trailer: x-sum\r\n", "0\r\nx-sum: 42\r\n\r\n", 1),
            ("connection: close\r\n", "0\r\n\r\n", 4),
            ("content-length: 5\r\n", "0\r\n\r\n", 4),
            ("", "0\r\n\r\nHTTP/1.1 200 OK", 4),
        ] {
            let (url, connections) = serving(chunked(fields, size, after), false).await;
            let harness = Harness::open(to(&[url]));
            let (mut one, mut two) = (harness.one().await, harness.two().await);
            for client in [&mut one, &mut two] {
                assert_eq!(client.send(Request::get("/"), "").await.body.len(), BYTES);
                let posted = client.send(Request::post("/"), "body").await;
                assert_eq!(posted.body.len(), BYTES, "{size} {fields}{after}");
            }
            let opened = connections.load(Ordering::Relaxed);
            assert_eq!(opened, expected, "{size} {fields}{after}");
            assert_eq!(harness.gateway.read().broken, 0);
        }
    }
}

#[tokio::test]
async fn trailer_fields_that_were_not_announced_pass_over_http2() {
    // Read at once by hyper, and as it comes by the gateway.
    let short = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
    for begin in [short.to_owned(), chunked("", 10_000, "")] {
        let trailers = "0\r\nx-sum: 42\r\nconnection: x-a\r\ntransfer-encoding: gzip\r\n\
                        content-length: 1\r\nx-a: 1\r\n\r\n";
        let (url, connections) = serving(begin + trailers, false).await;
        let harness = Harness::open(to(&[url]));
        let reply = harness.two().await.send(Request::get("/"), "").await;
        let trailers = reply.trailers.expect("there are trailer fields");
        assert_eq!((trailers.len(), trailers["x-sum"].as_bytes()), (1, b"42".as_slice()));
        // Over HTTP/1.1 only those that are announced may be sent.
        let request = Request::get("/").header("te", "trailers");
        let reply = harness.one().await.send(request, "").await;
        assert!(reply.trailers.is_none() && !reply.body.is_empty());
        assert_eq!((connections.load(Ordering::Relaxed), harness.gateway.read().broken), (1, 0));
    }
}

#[tokio::test]
async fn a_chunked_response_that_breaks_off_is_not_complete_for_the_client_either() {
    for after in ["", "5\r\nab", "0\r\n", "x\r\n\r\n", "3\r\nabcd\r\n", "0\r\na b: c\r\n\r\n"] {
        let (url, _) = serving(chunked("", 10_000, after), true).await;
        let harness = Harness::open(to(&[url]));
        let response = harness.one().await.begin(Request::get("/"), "");
        let response = within("a response", response).await.unwrap();
        assert!(within("a body", response.into_body().collect()).await.is_err(), "{after:?}");
        until("the end of the request", || harness.gateway.read().broken == 1).await;
    }
}

/// More requests than a worker has before they are awaited without hyper.
const MANY: usize = 600;

#[tokio::test]
async fn requests_that_wait_for_an_upstream_while_there_are_many_are_answered_as_usual() {
    let (slow, upstream) = (Upstream::start().await, Upstream::start().await);
    let mut settings = to(&[upstream.url()]);
    let mut many = RouteSettings::new("many", "slow");
    many.path = PathMatch::Prefix("/slow/many".into());
    settings.routes.insert(0, many);
    // HTTP/2: a connection for each would need too many descriptors.
    let protocol = UpstreamProtocol::Http2;
    settings
        .upstreams
        .push(UpstreamSettings { protocol, ..UpstreamSettings::new("slow", vec![slow.url()]) });
    let harness = Harness::open(settings);
    let mut crowd = harness.two().await;
    let waiting: Vec<_> =
        (0..MANY).map(|_| tokio::spawn(crowd.begin(Request::get("/slow/many"), ""))).collect();
    until("many requests", || slow.seen().len() == MANY).await;
    for is_http2 in [false, true] {
        let mut client = match is_http2 {
            false => harness.one().await,
            true => harness.two().await,
        };
        for _ in 0..2 {
            assert_eq!(client.send(Request::get("/"), "").await.body, "hello");
            assert_eq!(client.send(Request::head("/medium"), "").await.body, "");
            assert_eq!(client.send(Request::get("/status/404"), "").await.status, 404);
            assert_eq!(client.send(Request::post("/echo"), "body").await.body, "body");
            let long = "0123456789".repeat(30_000);
            assert!(client.send(Request::post("/echo"), long.clone()).await.body == long);
            assert_eq!(client.send(Request::post("/large"), "body").await.body.len(), 8 << 20);
            assert_eq!(client.send(Request::get("/large"), "").await.body.len(), 8 << 20);
            assert_eq!(client.send(Request::get("/trailers"), "").await.body, "part");
        }
    }
    assert_eq!(upstream.connections(), 1, "it is used again");
    assert_eq!(upstream.seen().len(), 32, "each request was sent once");
    let chunked = harness
        .raw(
            "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x-check\r\n\r\n\
             3\r\nabc\r\n0\r\nx-check: sound\r\n\r\nGET /after HTTP/1.1\r\nhost: a\r\n\r\n",
        )
        .await;
    // Without its head, the server does not know whether there was a length too.
    assert!(chunked.ends_with("\r\n\r\nabc") && chunked.contains("connection: close"), "{chunked}");
    assert_eq!(upstream.last().trailers.unwrap()["x-check"], "sound");
    let expecting = Request::post("/echo").header("expect", "100-continue");
    assert_eq!(harness.one().await.send(expecting, "body").await.body, "body");
    let unwilling = Request::post("/unwilling").header("expect", "100-continue");
    assert_eq!(harness.one().await.send(unwilling, "body").await.status, 417);
    let broken = harness.one().await.send(Request::post("/break"), "body").await;
    assert_eq!(broken.status, 502);
    let broken = harness.one().await.send(Request::get("/break"), "").await;
    assert_eq!(broken.status, 502);
    let response = harness.one().await.begin(Request::get("/slow"), "");
    let response = tokio::spawn(response);
    until("the request", || upstream.last().uri == "/slow").await;
    response.abort();
    until("the end of the upstream request", || upstream.open() == 0).await;
    slow.let_go();
    for response in waiting {
        let response = within("a response", response).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
    }
}
