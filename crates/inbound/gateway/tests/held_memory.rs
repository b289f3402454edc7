//! What clients that do not read make the gateway hold. One test: it counts the allocations of the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "gateway/harness.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod harness;

use std::alloc::System;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use harness::{Harness, to};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tidegate_server::ConnectionLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// More than enough to fill the gateway's budget for large pieces. Each takes four descriptors, of 1,024 in all.
const CLIENTS: usize = 230;
/// The budget for large pieces, and what may be read before it is noticed that it is spent.
const BUDGET_BYTES: usize = 9 * 1024 * 1024;
/// The most that a client may hold besides, with the task of the test's upstream.
const BYTES_MAX: usize = 20 * 1024;

static BODY: [u8; 1 << 20] = [b'x'; 1 << 20];

/// The bytes that are allocated now.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// A server whose response is 1 MiB.
async fn upstream() -> String {
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
    // Until buffers are full everywhere.
    let (mut before, mut equal) = (allocated(), 0);
    while equal < 100 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = allocated();
        equal = if now == before { equal + 1 } else { 0 };
        before = now;
    }
    streams
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_little_memory() {
    let limits =
        ConnectionLimits { send_rate_min: 0, idle_timeout: None, ..ConnectionLimits::default() };
    let harness = Harness::connected(to(&[upstream().await]), limits);
    let before = allocated();
    let streams = stall(&harness, CLIENTS).await;
    let held = allocated().saturating_sub(before);
    assert!(held <= BUDGET_BYTES + CLIENTS * BYTES_MAX, "{held} bytes");
    assert!(held > CLIENTS * 1_000, "{held} bytes: nothing was held");
    drop(streams);
}
