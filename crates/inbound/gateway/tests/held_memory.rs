//! What clients that do not read, and requests that wait, make the gateway hold. One test: it counts the allocations of
//! the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "gateway/harness.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod harness;
#[path = "gateway/upstream.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod upstream;

use std::alloc::System;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::{Harness, to, until};
use http::Request;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tidegate_gateway::{PathMatch, RouteSettings, UpstreamProtocol, UpstreamSettings};
use tidegate_server::ConnectionLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};
use upstream::Upstream;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// More than enough to fill the gateway's budget for large pieces. Each takes four descriptors, of 1,024 in all.
const CLIENTS: usize = 230;
/// The budget for large pieces, and what may be read before it is noticed that it is spent.
const BUDGET_BYTES: usize = 9 * 1024 * 1024;
/// The most that a client may hold besides, with the task of the test's upstream.
const BYTES_MAX: usize = 20 * 1024;

/// More requests than a worker has before it keeps little of each.
const MANY: usize = 600;
/// The bytes of a request's body.
const BODY_BYTES: usize = 700;
/// The most that a request with a body may hold while it waits, with the task of the test's upstream.
const WAITING_BYTES_MAX: usize = 20 * 1024;

static BODY: [u8; 1 << 20] = [b'x'; 1 << 20];

/// The bytes that are allocated now.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// A server whose response is 1 MiB.
async fn long_upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                drop(stream.read(&mut request).await);
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1048576\r\n\r\n";
                drop(stream.write_all(head).await);
                drop(stream.write_all(&BODY).await);
                drop(stream.read(&mut request).await);
            });
        }
    });
    url
}

/// Opens connections that ask for the response and read only its first bytes.
async fn stall(harness: &Harness, clients: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..clients {
        let mut stream = TcpStream::connect(harness.address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        streams.push(stream);
        tokio::task::yield_now().await;
    }
    for stream in &mut streams {
        stream.set_nonblocking(true).unwrap();
        let mut first = [0; 8];
        while stream.read(&mut first).is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(&first, b"HTTP/1.1");
    }
    until_settled().await;
    streams
}

/// Waits until buffers are full everywhere.
async fn until_settled() {
    let (mut before, mut equal) = (allocated(), 0);
    while equal < 100 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = allocated();
        equal = if now == before { equal + 1 } else { 0 };
        before = now;
    }
}

/// A server that reads requests and never responds, and the bytes that it has read.
async fn silent_upstream() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let read = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&read);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut request = [0; 256];
                while let Ok(bytes @ 1..) = stream.read(&mut request).await {
                    count.fetch_add(bytes, Ordering::Relaxed);
                }
            });
        }
    });
    (url, read)
}

/// A server whose queue of connections is full, so that no more are established, and what fills it.
async fn full_upstream() -> (String, TcpListener, Vec<tokio::net::TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    let patience = Duration::from_millis(300);
    while let Ok(stream) =
        tokio::time::timeout(patience, tokio::net::TcpStream::connect(address)).await
    {
        filling.push(stream.unwrap());
    }
    (format!("http://{address}"), listener, filling)
}

/// Opens connections with a request that has a body.
async fn post(harness: &Harness, framed: &str) -> Vec<TcpStream> {
    let body = "b".repeat(BODY_BYTES);
    let body = match framed {
        "content-length: 700" => body,
        _ => format!("{BODY_BYTES:x}\r\n{body}\r\n0\r\n\r\n"),
    };
    let mut streams = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(harness.address).unwrap();
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\n{framed}\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).unwrap();
        streams.push(stream);
        tokio::task::yield_now().await;
    }
    streams
}

#[tokio::test]
async fn a_client_that_does_not_read_and_a_request_that_waits_hold_little_memory() {
    a_client_that_does_not_read_holds_little().await;
    a_request_with_a_body_that_waits_holds_little().await;
}

async fn a_request_with_a_body_that_waits_holds_little() {
    let (url, read) = silent_upstream().await;
    let (full, _listener, _filling) = full_upstream().await;
    for (url, is_connected) in [(url, true), (full, false)] {
        let (harness, crowd) = crowded(url).await;
        for framed in ["content-length: 700", "transfer-encoding: chunked"] {
            until_settled().await;
            let (before, expected) =
                (allocated(), read.load(Ordering::Relaxed) + CLIENTS * BODY_BYTES);
            let streams = post(&harness, framed).await;
            until("the requests", || {
                harness.gateway.read().in_flight >= u64::try_from(MANY + CLIENTS).unwrap()
            })
            .await;
            let is_read = || !is_connected || read.load(Ordering::Relaxed) >= expected;
            until("the bodies", is_read).await;
            until_settled().await;
            let held = allocated().saturating_sub(before);
            assert!(held <= CLIENTS * WAITING_BYTES_MAX, "{held} bytes, {framed}, {is_connected}");
            assert!(held > CLIENTS * 1_000, "{held} bytes: nothing was held");
            drop(streams);
            until("their end", || harness.gateway.read().in_flight <= u64::try_from(MANY).unwrap())
                .await;
        }
        drop(crowd);
    }
}

/// A gateway in front of this upstream, with many requests to another one.
async fn crowded(url: String) -> (Harness, impl Sized) {
    let slow = Upstream::start().await;
    let mut settings = to(&[url]);
    settings.upstreams[0].timeouts.connect = Duration::from_secs(600);
    let mut many = RouteSettings::new("many", "slow");
    many.path = PathMatch::Prefix("/slow".into());
    settings.routes.insert(0, many);
    let protocol = UpstreamProtocol::Http2;
    settings
        .upstreams
        .push(UpstreamSettings { protocol, ..UpstreamSettings::new("slow", vec![slow.url()]) });
    let harness = Harness::open(settings);
    let mut crowd = harness.two().await;
    let waiting: Vec<_> =
        (0..MANY).map(|_| tokio::spawn(crowd.begin(Request::get("/slow"), ""))).collect();
    until("many requests", || slow.seen().len() == MANY).await;
    (harness, (waiting, crowd, slow))
}

async fn a_client_that_does_not_read_holds_little() {
    let limits =
        ConnectionLimits { send_rate_min: 0, idle_timeout: None, ..ConnectionLimits::default() };
    let harness = Harness::connected(to(&[long_upstream().await]), limits);
    let before = allocated();
    let streams = stall(&harness, CLIENTS).await;
    let held = allocated().saturating_sub(before);
    assert!(held <= BUDGET_BYTES + CLIENTS * BYTES_MAX, "{held} bytes");
    assert!(held > CLIENTS * 1_000, "{held} bytes: nothing was held");
    drop(streams);
}
