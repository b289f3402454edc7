//! Which connections are accepted, which worker serves them, and when they are closed.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::future::{Ready, ready};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use parking_lot::Mutex;
use tempfile::TempDir;
use tidegate_server::{
    Address, ConnectionLimits, Endpoint, Keepalive, OpenError, Protocol, RequestBody, Server,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{
    Client, any_port, endpoint, limited, open, service, tcp, unix, until, within, workers,
};

#[tokio::test]
async fn connections_are_spread_evenly_over_workers() {
    let server = Server::start(workers(3)).unwrap();
    let (service, _control) = service();
    let listening = open(&server, endpoint(Protocol::Http2), service);
    let mut clients = Vec::new();
    for _ in 0..6 {
        let mut client = Client::two(tcp(&listening).await).await;
        client.text("/").await;
        clients.push(client);
    }
    assert_eq!(server.connections(), [2, 2, 2]);
    let mut threads = BTreeSet::new();
    for client in &mut clients {
        threads.insert(client.thread().await);
    }
    let expected = ["tidegate-0", "tidegate-1", "tidegate-2"].map(str::to_owned);
    assert_eq!(threads, BTreeSet::from(expected));
}

#[tokio::test]
async fn a_new_connection_goes_where_one_has_left() {
    let server = Server::start(workers(2)).unwrap();
    let (service, _control) = service();
    let listening = open(&server, endpoint(Protocol::Http2), service);
    let mut first = Client::two(tcp(&listening).await).await;
    let mut second = Client::two(tcp(&listening).await).await;
    let left = first.thread().await;
    assert_ne!(left, second.thread().await);
    drop(first);
    until("the end of the first connection", || listening.counts().open == 1).await;
    for _ in 0..3 {
        let mut next = Client::two(tcp(&listening).await).await;
        assert_eq!(next.thread().await, left);
        drop(next);
        until("the end of the next connection", || listening.counts().open == 1).await;
    }
}

#[tokio::test]
async fn one_connection_too_many_is_closed_at_once_and_counted() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let limits =
        ConnectionLimits { connections_max: 2, evict_after: None, ..ConnectionLimits::default() };
    let listening = open(&server, limited(Protocol::Http2, limits), service);
    let mut first = Client::two(tcp(&listening).await).await;
    let mut second = Client::two(tcp(&listening).await).await;
    assert_eq!((first.text("/1").await, second.text("/2").await), ("/1".into(), "/2".into()));

    let mut third = tcp(&listening).await;
    let read = within("the refusal", third.read(&mut [0])).await;
    assert!(!read.is_ok_and(|bytes| bytes > 0));
    assert_eq!(listening.counts().refused, 1);
    assert_eq!(listening.counts().open, 2);

    drop(second);
    until("the end of the second connection", || listening.counts().open == 1).await;
    assert_eq!(Client::two(tcp(&listening).await).await.text("/3").await, "/3");
}

#[tokio::test]
async fn a_silent_connection_is_closed_for_a_new_one() {
    let server = Server::start(workers(1)).unwrap();
    for start in ["", "GET / HTTP/1.1\r\nhost: te", "PRI * HTTP/2.0\r\n"] {
        let (service, _control) = service();
        let evict_after = Some(Duration::ZERO);
        let limits =
            ConnectionLimits { connections_max: 2, evict_after, ..ConnectionLimits::default() };
        let listening = open(&server, limited(Protocol::Auto, limits), service);
        let mut silent = Vec::new();
        for _ in 0..2 {
            let mut stream = tcp(&listening).await;
            stream.write_all(start.as_bytes()).await.unwrap();
            silent.push(stream);
        }
        until("both connections", || listening.counts().open == 2).await;
        assert_eq!(Client::one(tcp(&listening).await).await.text("/alive").await, "/alive");
        until("the end of one", || listening.counts().open <= 2).await;
    }
}

#[tokio::test]
async fn a_connection_with_a_request_in_flight_is_not_closed_for_a_new_one() {
    let server = Server::start(workers(1)).unwrap();
    let (service, mut control) = service();
    let evict_after = Some(Duration::ZERO);
    let limits =
        ConnectionLimits { connections_max: 1, evict_after, ..ConnectionLimits::default() };
    let listening = open(&server, limited(Protocol::Auto, limits), service);
    let mut client = Client::one(tcp(&listening).await).await;
    let slow = tokio::spawn(client.send("/slow"));
    control.slow_request().await;
    let mut second = tcp(&listening).await;
    let read = within("the refusal", second.read(&mut [0])).await;
    assert!(!read.is_ok_and(|bytes| bytes > 0));
    until("the count", || listening.counts().refused == 1).await;
    control.let_go();
    assert_eq!(slow.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_client_that_sends_its_head_slowly_is_cut_off() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let header_timeout = Duration::from_millis(50);
    let limits = ConnectionLimits { header_timeout, ..ConnectionLimits::default() };
    for protocol in [Protocol::Auto, Protocol::Http2] {
        let listening = open(&server, limited(protocol, limits), service.clone());
        for start in ["", "GET / HTTP/1.1\r\nhost: te", "PRI * HTTP/2.0\r\n"] {
            let mut stream = tcp(&listening).await;
            stream.write_all(start.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            // An HTTP/2 endpoint may answer HTTP/1.1 with a GOAWAY frame.
            drop(within("the cut", stream.read_to_end(&mut rest)).await);
        }
        until("the end of the slow connections", || listening.counts().open == 0).await;
        assert_eq!(listening.counts().accepted, 3);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let idle_timeout = Some(Duration::from_millis(50));
    let limits = ConnectionLimits { idle_timeout, ..ConnectionLimits::default() };
    let listening = open(&server, limited(Protocol::Auto, limits), service);
    let mut one = Client::one(tcp(&listening).await).await;
    let mut two = Client::two(tcp(&listening).await).await;
    assert_eq!((one.text("/1").await, two.text("/2").await), ("/1".into(), "/2".into()));
    one.closed().await;
    two.closed().await;
}

#[tokio::test]
async fn an_old_connection_is_closed_once_its_requests_are_answered() {
    let server = Server::start(workers(1)).unwrap();
    let (service, mut control) = service();
    let age_max = Some(Duration::from_millis(50));
    let limits = ConnectionLimits { age_max, ..ConnectionLimits::default() };
    let listening = open(&server, limited(Protocol::Http2, limits), service);
    let mut client = Client::two(tcp(&listening).await).await;
    let slow = tokio::spawn(client.send("/slow"));
    control.slow_request().await;
    // After the GOAWAY frame the connection accepts no more requests.
    let refused = async { while client.get("/").await.is_ok() {} };
    within("the GOAWAY frame", refused).await;
    control.let_go();
    assert_eq!(slow.await.unwrap().unwrap().status(), 200);
    client.closed().await;
}

#[tokio::test]
async fn a_client_that_does_not_answer_pings_is_closed() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let soon = Duration::from_millis(20);
    let keepalive = Some(Keepalive { interval: soon, timeout: soon });
    let limits = ConnectionLimits { keepalive, ..ConnectionLimits::default() };
    let listening = open(&server, limited(Protocol::Http2, limits), service);
    let mut stream = tcp(&listening).await;
    // The preface, empty settings, and then silence.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut rest = Vec::new();
    drop(within("the cut", stream.read_to_end(&mut rest)).await);
    until("the end of the connection", || listening.counts().open == 0).await;
    assert_eq!(listening.counts().accepted, 1);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let limits = ConnectionLimits { header_bytes_max: 8 * 1024, ..ConnectionLimits::default() };
    let listening = open(&server, limited(Protocol::Auto, limits), service);
    let long = format!("/{}", "x".repeat(20_000));
    let mut one = Client::one(tcp(&listening).await).await;
    assert!(one.get(&long).await.is_ok_and(|(response, _)| response.status().is_client_error()));
    let mut two = Client::two(tcp(&listening).await).await;
    assert!(two.get(&long).await.map_or(true, |(response, _)| response.status() == 431));
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let first = open(&server, endpoint(Protocol::Auto), service.clone());
    let again = Endpoint::new("again", Protocol::Auto, first.address().clone());
    let error = server.open(again, service).unwrap_err();
    assert_eq!(error.to_string(), format!("{} is in use already", first.address()));
}

#[tokio::test]
async fn an_endpoint_opens_at_all_of_its_addresses_or_at_none() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("door.sock");
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let taken = open(&server, endpoint(Protocol::Auto), service.clone());
    let both = Endpoint::new("both", Protocol::Auto, path.clone());
    let error = server.open(both.clone().also_at(taken.address().clone()), service.clone());
    assert!(matches!(error, Err(OpenError::InUse { .. })));
    assert!(!path.exists());

    let listening = server.open(both.also_at(any_port()), service).unwrap();
    assert_eq!(Client::one(unix(&path).await).await.text("/unix").await, "/unix");
    assert_eq!(Client::one(tcp(&listening[1]).await).await.text("/tcp").await, "/tcp");
    assert_eq!(listening[0].counts().accepted, 1);
    assert_eq!(listening[1].counts().accepted, 1);
}

#[tokio::test]
async fn a_unix_socket_has_the_requested_mode_and_is_removed_after_the_stop() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("door.sock");
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let address = Address::Unix { path: path.clone(), mode: Some(0o600) };
    let listening = open(&server, Endpoint::new("unix", Protocol::Http2, address), service);
    assert_eq!(listening.address().to_string(), format!("unix:{}", path.display()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Client::two(unix(&path).await).await.text("/").await, "/");
    server.stop(Duration::ZERO).await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_stale_unix_socket_is_replaced() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("door.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a listener leaves its file behind");
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    open(&server, Endpoint::new("unix", Protocol::Auto, path.clone()), service);
    assert_eq!(Client::one(unix(&path).await).await.text("/").await, "/");
}

#[tokio::test]
async fn a_unix_socket_in_use_is_left_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("door.sock");
    let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let door = Endpoint::new("unix", Protocol::Auto, path.clone());
    let error = server.open(door, service).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(path.exists());
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_left_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("notes.txt");
    fs::write(&path, "mine").unwrap();
    let server = Server::start(workers(1)).unwrap();
    let (service, _control) = service();
    let door = Endpoint::new("unix", Protocol::Auto, path.clone());
    let error = server.open(door, service).unwrap_err();
    assert!(matches!(error, OpenError::NotASocket { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

/// Responds at once, except that `/block` blocks the thread of the worker until it may go on.
#[derive(Clone)]
struct BlockingService {
    arrived: Arc<AtomicBool>,
    go: Arc<Mutex<Receiver<()>>>,
}

impl hyper::service::Service<Request<RequestBody>> for BlockingService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<RequestBody>) -> Self::Future {
        if request.uri().path() == "/block" {
            self.arrived.store(true, Relaxed);
            self.go.lock().recv().expect("the test lives");
        }
        ready(Ok(Response::new(Full::new(Bytes::from_static(b"served")))))
    }
}

#[tokio::test]
async fn a_burst_of_connections_waits_for_a_worker_that_is_busy() {
    /// More than the queue of a worker.
    const BURST: usize = 300;
    let server = Server::start(workers(1)).unwrap();
    let (go, went) = sync_channel(1);
    let service = BlockingService { arrived: Arc::default(), go: Arc::new(Mutex::new(went)) };
    let listening = server.open(endpoint(Protocol::Auto), service.clone()).unwrap().remove(0);
    let mut blocking = tcp(&listening).await;
    blocking.write_all(b"GET /block HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    until("the blocked worker", || service.arrived.load(Relaxed)).await;
    let mut burst = Vec::new();
    for _ in 0..BURST {
        let mut stream = tcp(&listening).await;
        let request = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        burst.push(stream);
    }
    go.send(()).unwrap();
    for mut stream in burst {
        let mut response = String::new();
        within("a response", stream.read_to_string(&mut response)).await.unwrap();
        assert!(response.ends_with("served"), "{response}");
    }
    assert_eq!(listening.counts().refused, 0);
}
