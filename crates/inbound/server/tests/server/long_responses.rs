//! Responses that are written without hyper: long ones, and those whose client does not read at once.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::service::Service;
use parking_lot::Mutex;
use tidegate_server::{BoundEndpoint, ConnectionLimits, Protocol, RequestBody, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::client::{
    Client, Control, endpoint, limited, open, port_of, service, tcp, until, within, workers,
};

/// More than all buffers between the server and a client that does not read.
const BYTES: usize = 16 * 1024 * 1024;
const PIECE_BYTES: usize = 10_000;

/// The byte at a position of every body.
fn byte_at(position: usize) -> u8 {
    u8::try_from((position ^ (position >> 8) ^ (position >> 16)) & 0xff).unwrap_or(0)
}

/// A body of which hyper has all before it is written, and what it returns at once: more than hyper buffers.
const SHORT_BYTES: usize = 60_000;
const SHORT_PIECE_BYTES: usize = 20_000;

/// A body of numbered bytes, with or without a length.
struct NumberedBody {
    position: usize,
    length: usize,
    piece: usize,
    /// Where it ends; before its length it breaks off.
    end: usize,
    has_length: bool,
    /// Where it is silent for ever.
    silent_at: Option<usize>,
    passed: Arc<AtomicUsize>,
    alive: Arc<AtomicUsize>,
}

impl Drop for NumberedBody {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

impl Body for NumberedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.silent_at.is_some_and(|at| self.position >= at) {
            return Poll::Pending;
        }
        if self.position >= self.end {
            let broken = io::Error::from(io::ErrorKind::ConnectionReset);
            return Poll::Ready((self.end < self.length).then_some(Err(broken)));
        }
        let end = (self.position + self.piece).min(self.end);
        let data: Vec<u8> = (self.position..end).map(byte_at).collect();
        self.position = end;
        self.passed.fetch_add(1, Relaxed);
        Poll::Ready(Some(Ok(Frame::data(data.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        match self.has_length {
            true => SizeHint::with_exact(u64::try_from(self.length - self.position).unwrap_or(0)),
            false => SizeHint::new(),
        }
    }
}

/// Responds with a [`NumberedBody`]: the path says of which kind.
#[derive(Clone, Default)]
struct NumberService {
    /// Pieces that were fetched.
    passed: Arc<AtomicUsize>,
    /// Bodies that exist.
    alive: Arc<AtomicUsize>,
    /// The paths of all requests.
    seen: Arc<Mutex<Vec<String>>>,
    /// The body of a request that is read after its response.
    kept: Arc<Mutex<Option<RequestBody>>>,
    /// Lets requests go that wait.
    go: Arc<watch::Sender<bool>>,
}

impl Service<Request<RequestBody>> for NumberService {
    type Response = Response<NumberedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<RequestBody>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            this.seen.lock().push(path.clone());
            if path.contains("keep") {
                *this.kept.lock() = Some(request.into_body());
            } else if !path.contains("unread") {
                drop(request.into_body().collect().await);
            }
            if path.contains("wait") {
                this.seen.lock().push("waits".into());
                drop(this.go.subscribe().wait_for(|go| *go).await);
            }
            this.alive.fetch_add(1, Relaxed);
            let is_short = path.contains("short");
            let length = if is_short { SHORT_BYTES } else { BYTES };
            let body = NumberedBody {
                position: 0,
                length,
                piece: if is_short { SHORT_PIECE_BYTES } else { PIECE_BYTES },
                end: if path.contains("broken") { length / 2 } else { length },
                has_length: path.contains("length"),
                silent_at: path.contains("silent").then_some(200_000),
                passed: this.passed,
                alive: this.alive,
            };
            let mut response = Response::new(body);
            if path.contains("closing") {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert("connection", close);
            }
            Ok(response)
        })
    }
}

fn start() -> (Server, BoundEndpoint, NumberService) {
    let server = Server::start(workers(1)).expect("threads start");
    let service = NumberService::default();
    let limits = ConnectionLimits { send_rate_min: 0, ..ConnectionLimits::default() };
    let listening = server.open(limited(Protocol::Auto, limits), service.clone());
    (server, listening.expect("a port is free").remove(0), service)
}

/// A request for a path.
fn request(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: test\r\n{fields}\r\n").into_bytes()
}

impl NumberService {
    /// Forgets the pieces of earlier responses. Called before a request that is to block.
    fn begin(&self) {
        self.passed.store(0, Relaxed);
    }

    fn has_seen(&self, path: &str) -> bool {
        self.seen.lock().iter().any(|seen| seen == path)
    }

    /// How many requests have been read and wait.
    fn waiting(&self) -> usize {
        self.seen.lock().iter().filter(|seen| *seen == "waits").count()
    }
}

/// Waits until the server has fetched pieces since [`NumberService::begin`], and stopped because nothing can be written.
async fn until_blocked(service: &NumberService) {
    let (mut before, mut equal) = (service.passed.load(Relaxed), 0);
    let blocked = async {
        while equal < 20 || before == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let now = service.passed.load(Relaxed);
            equal = if now == before { equal + 1 } else { 0 };
            before = now;
        }
    };
    within("a client that blocks", blocked).await;
}

/// Reads responses from a connection.
struct Reader {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Reader {
    /// Reads more. Returns false at the end.
    async fn fill(&mut self) -> bool {
        within("data", self.stream.read_buf(&mut self.bytes)).await.unwrap_or(0) > 0
    }

    /// The bytes up to and including a text.
    async fn until(&mut self, end: &[u8]) -> String {
        loop {
            if let Some(at) = self.bytes.windows(end.len()).position(|part| part == end) {
                let rest = self.bytes.split_off(at + end.len());
                let text = std::mem::replace(&mut self.bytes, rest);
                return String::from_utf8(text).expect("heads are text");
            }
            assert!(self.fill().await, "the connection ended");
        }
    }

    async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.bytes.len() < count {
            assert!(self.fill().await, "the connection ended");
        }
        let rest = self.bytes.split_off(count);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// The head and the body of a response.
    async fn response(&mut self) -> (String, Vec<u8>) {
        let head = self.until(b"\r\n\r\n").await.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if let Some(length) = length {
            return (head.clone(), self.exactly(length.parse().expect("a number")).await);
        }
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let mut body = Vec::new();
        loop {
            let size = self.until(b"\r\n").await;
            let size = usize::from_str_radix(size.trim(), 16).expect("a number");
            body.extend(self.exactly(size).await);
            assert_eq!(self.exactly(2).await, b"\r\n");
            if size == 0 {
                return (head, body);
            }
        }
    }

    /// Reads a response and checks its body.
    async fn whole_response(&mut self) -> String {
        let (head, body) = self.response().await;
        assert_eq!(body.len(), BYTES);
        let wrong = body.iter().enumerate().find(|(position, byte)| **byte != byte_at(*position));
        assert_eq!(wrong, None, "a byte differs");
        head
    }
}

#[tokio::test]
async fn long_responses_are_whole_and_their_connection_is_kept() {
    let (_server, listening, service) = start();
    for path in ["/length", "/chunks"] {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        for waits in [false, true, true] {
            service.begin();
            reader.stream.write_all(&request(path, "")).await.unwrap();
            if waits {
                until_blocked(&service).await;
            }
            let head = reader.whole_response().await;
            assert!(head.starts_with("http/1.1 200"), "{head}");
            assert!(!head.contains("connection: close"), "{head}");
        }
    }
    assert_eq!(listening.counts().accepted, 2, "no connection was opened again");
}

#[tokio::test]
async fn requests_that_are_sent_during_a_long_response_are_answered_after_it() {
    let (_server, listening, service) = start();
    for path in ["/length", "/chunks"] {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        service.begin();
        reader.stream.write_all(&request(path, "").repeat(2)).await.unwrap();
        until_blocked(&service).await;
        reader.stream.write_all(&request(path, "x-late: 1\r\n")).await.unwrap();
        for _ in 0..3 {
            reader.whole_response().await;
        }
    }
}

#[tokio::test]
async fn a_long_response_is_whole_after_a_request_with_a_body() {
    let (_server, listening, service) = start();
    for path in ["/length", "/chunks", "/unread/length", "/unread/chunks"] {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        for _ in 0..2 {
            service.begin();
            let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\n");
            // hyper closes a connection if a body that the service does not read comes later than its head.
            let together = if path.contains("unread") { "hello" } else { "" };
            reader.stream.write_all((head + together).as_bytes()).await.unwrap();
            reader
                .stream
                .write_all(if together.is_empty() { b"hello" } else { b"" })
                .await
                .unwrap();
            until_blocked(&service).await;
            reader.whole_response().await;
        }
    }
}

/// A request whose end depends on which of two fields a server believes; what another server takes for a second
/// request follows.
fn ambiguous(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled/length HTTP/1.1\r\nhost: test\r\n\r\n"
    )
}

#[tokio::test]
async fn a_length_beside_chunks_closes_the_connection_after_a_long_response() {
    let (_server, listening, service) = start();
    for path in ["/length", "/chunks"] {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        service.begin();
        reader.stream.write_all(ambiguous(path).as_bytes()).await.unwrap();
        until_blocked(&service).await;
        let head = reader.whole_response().await;
        assert!(head.contains("connection: close"), "{head}");
        assert!(!reader.fill().await, "the connection is closed");
    }
    assert!(!service.has_seen("/smuggled/length"));
}

#[tokio::test]
async fn chunks_without_a_length_keep_the_connection_after_a_long_response() {
    let (_server, listening, service) = start();
    for path in ["/length", "/chunks"] {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        service.begin();
        let request = ambiguous(path).replace("content-length: 4\r\n", "");
        reader.stream.write_all(request.as_bytes()).await.unwrap();
        until_blocked(&service).await;
        let head = reader.whole_response().await;
        assert!(!head.contains("connection: close"), "{head}");
        reader.whole_response().await;
    }
}

#[tokio::test]
async fn a_body_that_is_read_after_its_response_does_not_end_the_body_of_the_next_request() {
    let (_server, listening, service) = start();
    let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
    let body = "GET /smuggled/length HTTP/1.1\r\nhost: test\r\n\r\n";
    let requests = format!(
        "POST /keep/short/length HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhello\
         POST /unread/length HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    reader.stream.write_all(requests.as_bytes()).await.unwrap();
    reader.response().await;
    until("the second request", || service.has_seen("/unread/length")).await;
    until_blocked(&service).await;
    let kept = service.kept.lock().take().expect("the body is kept");
    assert_eq!(kept.collect().await.unwrap().to_bytes(), "hello");
    reader.whole_response().await;
    // The server may have closed the connection already.
    drop(reader.stream.write_all(body.as_bytes()).await);
    drop(reader.stream.shutdown().await);
    while within("the end", reader.stream.read_buf(&mut reader.bytes)).await.unwrap_or(0) > 0 {}
    assert!(!service.has_seen("/smuggled/length"), "a body was read as a request");
}

#[tokio::test]
async fn a_client_that_does_not_read_gets_no_answers_to_further_requests() {
    const REQUESTS: usize = 400;
    let (_server, listening, service) = start();
    let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
    reader.stream.write_all(&request("/short/length", "").repeat(REQUESTS)).await.unwrap();
    until_blocked(&service).await;
    let answered = service.seen.lock().len();
    assert!(answered < REQUESTS, "all were answered: the server holds their responses");
    for _ in 0..REQUESTS {
        assert_eq!(reader.response().await.1.len(), SHORT_BYTES);
    }
}

#[tokio::test]
async fn requests_with_bodies_that_wait_while_there_are_many_are_answered_as_usual() {
    let (_server, listening, service) = start();
    let mut crowd = Client::two(tcp(&listening).await).await;
    let waiting: Vec<_> =
        (0..MANY).map(|_| tokio::spawn(crowd.send("/wait/short/length"))).collect();
    until("many requests", || service.waiting() == MANY).await;
    let post =
        |fields: &str| format!("POST /wait/short/length HTTP/1.1\r\nhost: test\r\n{fields}\r\n");
    let more = "GET /short/chunks HTTP/1.1\r\nhost: test\r\n\r\n";
    let mut readers = Vec::new();
    for (head, body, is_kept) in [
        (post("content-length: 5\r\n"), format!("hello{more}"), true),
        (post("content-length: 5\r\nconnection: close\r\n"), format!("hello{more}"), false),
        // Only hyper knew whether there was a length too.
        (post("transfer-encoding: chunked\r\n"), format!("5\r\nhello\r\n0\r\n\r\n{more}"), false),
        (
            post("content-length: 4\r\ntransfer-encoding: chunked\r\n"),
            format!("0\r\n\r\n{more}"),
            false,
        ),
    ] {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        reader.stream.write_all(head.as_bytes()).await.unwrap();
        reader.stream.write_all(body.as_bytes()).await.unwrap();
        readers.push((reader, is_kept));
    }
    until("their bodies", || service.waiting() == MANY + readers.len()).await;
    service.go.send_replace(true);
    for (mut reader, is_kept) in readers {
        let (head, body) = reader.response().await;
        assert_eq!((body.len(), head.contains("connection: close")), (SHORT_BYTES, !is_kept));
        match is_kept {
            true => assert_eq!(reader.response().await.1.len(), SHORT_BYTES),
            false => assert!(!reader.fill().await, "the connection is closed"),
        }
    }
    for response in waiting {
        assert_eq!(within("a response", response).await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_connection_is_closed_after_a_long_response_if_either_side_says_so() {
    let (_server, listening, _service) = start();
    for (path, fields) in [
        ("/length", "connection: close\r\n"),
        ("/chunks", "connection: keep-alive, close\r\n"),
        ("/closing/length", ""),
        ("/closing/chunks", ""),
    ] {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        reader.stream.write_all(&request(path, fields)).await.unwrap();
        let head = reader.whole_response().await;
        assert!(head.contains("connection: close"), "{head}");
        assert!(!reader.fill().await, "{path} {fields}");
    }
}

#[tokio::test]
async fn a_long_response_that_breaks_off_closes_its_connection() {
    let (_server, listening, _service) = start();
    for path in ["/broken/length", "/broken/chunks"] {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        reader.stream.write_all(&request(path, "")).await.unwrap();
        while reader.fill().await {}
        assert!(reader.bytes.len() >= BYTES / 2 && reader.bytes.len() < BYTES);
        assert!(!reader.bytes.ends_with(b"\r\n0\r\n\r\n"), "it must not look complete");
    }
}

#[tokio::test]
async fn a_client_that_disconnects_ends_its_long_response() {
    let (_server, listening, service) = start();
    for path in ["/length", "/chunks", "/silent/length", "/silent/chunks"] {
        let mut stream = tcp(&listening).await;
        service.begin();
        stream.write_all(&request(path, "")).await.unwrap();
        until_blocked(&service).await;
        assert_eq!(service.alive.load(Relaxed), 1);
        drop(stream);
        until("the end of the response", || service.alive.load(Relaxed) == 0).await;
    }
}

#[tokio::test]
async fn a_server_that_stops_finishes_a_long_response_and_closes_its_connection() {
    let (server, listening, service) = start();
    let mut readers = Vec::new();
    for path in ["/length", "/chunks"] {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        service.begin();
        reader.stream.write_all(&request(path, "")).await.unwrap();
        until_blocked(&service).await;
        readers.push(reader);
    }
    let stopping = tokio::spawn(server.stop(Duration::from_secs(60)));
    for mut reader in readers {
        reader.whole_response().await;
        assert!(!reader.fill().await, "the connection is closed");
    }
    assert_eq!(within("the stop", stopping).await.unwrap(), 0);
}

/// More requests than a worker has before it takes those over HTTP/1.1 from hyper.
const MANY: usize = 600;

/// Makes a worker have many requests, which wait in the service.
async fn occupy(listening: &BoundEndpoint, control: &mut Control) -> Client {
    let mut client = Client::two(tcp(listening).await).await;
    for _ in 0..MANY {
        tokio::spawn(client.send("/slow"));
        control.slow_request().await;
    }
    client
}

#[tokio::test]
async fn requests_that_wait_while_there_are_many_are_answered_as_usual() {
    let server = Server::start(workers(1)).unwrap();
    let (service, mut control) = service();
    let listening = open(&server, endpoint(Protocol::Auto), service);
    let many = occupy(&listening, &mut control).await;
    let mut readers = Vec::new();
    for (method, fields, more) in
        [("GET", "", true), ("GET", "connection: close\r\n", false), ("HEAD", "", true)]
    {
        let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
        let first = format!("{method} /slow-{method} HTTP/1.1\r\nhost: test\r\n{fields}\r\n");
        reader.stream.write_all(first.as_bytes()).await.unwrap();
        control.slow_request().await;
        reader.stream.write_all(&request("/second", "")).await.unwrap();
        readers.push((reader, method, more));
    }
    let mut posted = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
    let post = b"POST /slow-post HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\n";
    posted.stream.write_all(post).await.unwrap();
    control.slow_request().await;
    control.let_go();
    posted.stream.write_all(b"hello").await.unwrap();
    assert_eq!(posted.response().await.1, b"/slow-post");
    for (mut reader, method, more) in readers {
        let head = match method {
            "HEAD" => reader.until(b"\r\n\r\n").await.to_ascii_lowercase(),
            _ => {
                let (head, body) = reader.response().await;
                assert_eq!(body, b"/slow-GET");
                head
            }
        };
        assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
        assert!(head.contains(if method == "HEAD" { "content-length: 10" } else { "9" }), "{head}");
        match more {
            true => assert_eq!(reader.response().await.1, b"/second"),
            false => assert!(!reader.fill().await, "the connection is closed"),
        }
    }
    drop(many);
}

#[tokio::test]
async fn a_client_that_disconnects_while_there_are_many_ends_its_request() {
    let server = Server::start(workers(1)).unwrap();
    let (service, mut control) = service();
    let listening = open(&server, endpoint(Protocol::Auto), service);
    let many = occupy(&listening, &mut control).await;
    let before = control.alive();
    let mut stream = tcp(&listening).await;
    stream.write_all(&request("/slow", "")).await.unwrap();
    control.slow_request().await;
    assert!(control.alive() > before);
    drop(stream);
    until("the end of the request", || control.alive() == before).await;
    drop(many);
}

#[tokio::test]
async fn a_server_that_stops_while_there_are_many_answers_them_all() {
    let server = Server::start(workers(1)).unwrap();
    let (service, mut control) = service();
    let listening = open(&server, endpoint(Protocol::Auto), service);
    let many = occupy(&listening, &mut control).await;
    let mut idle = Client::two(tcp(&listening).await).await;
    assert_eq!(idle.text("/idle").await, "/idle");
    let mut reader = Reader { stream: tcp(&listening).await, bytes: Vec::new() };
    reader.stream.write_all(&request("/slow-one", "")).await.unwrap();
    control.slow_request().await;
    let stopping = tokio::spawn(server.stop(Duration::from_secs(60)));
    // The worker tells all of its connections at once.
    idle.closed().await;
    assert!(std::net::TcpStream::connect(port_of(&listening)).is_err(), "it listens no more");
    control.let_go();
    let (head, body) = reader.response().await;
    assert_eq!(body, b"/slow-one");
    assert!(head.contains("connection: close"), "{head}");
    assert!(!reader.fill().await, "the connection is closed");
    drop(many);
    assert_eq!(within("the stop", stopping).await.unwrap(), 0);
}
