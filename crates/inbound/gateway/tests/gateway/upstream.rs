//! Upstream servers for tests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;

use crate::harness::until;

/// A request as the server received it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) at: Instant,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// An HTTP server whose behaviour depends on the path.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<Mutex<u32>>,
    /// Each connection's task holds a clone.
    open: Arc<()>,
    go: watch::Sender<bool>,
    sick: watch::Sender<bool>,
}

type Body = BoxBody<Bytes, std::io::Error>;

fn text(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Upstream::on(listener)
    }

    pub(crate) fn on(listener: TcpListener) -> Self {
        let upstream = Upstream {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            connections: Arc::default(),
            open: Arc::default(),
            go: watch::channel(false).0,
            sick: watch::channel(false).0,
        };
        let this = Upstream { open: Arc::default(), ..upstream.clone() };
        let open = Arc::clone(&upstream.open);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                *this.connections.lock() += 1;
                let (this, open) = (this.clone(), Arc::clone(&open));
                tokio::spawn(async move {
                    this.serve(stream).await;
                    drop(open);
                });
            }
        });
        upstream
    }

    async fn serve(self, stream: TcpStream) {
        let service = service_fn(move |request| self.clone().answer(request));
        let builder = auto::Builder::new(TokioExecutor::new());
        // The test checks how the connection ends.
        drop(builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests received so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen.lock().last().cloned().expect("a request came")
    }

    pub(crate) fn connections(&self) -> u32 {
        *self.connections.lock()
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        // One clone is ours, one the listener's.
        Arc::strong_count(&self.open).saturating_sub(2)
    }

    /// Releases slow requests.
    pub(crate) fn let_go(&self) {
        self.go.send_replace(true);
    }

    /// Sets the result of health checks.
    pub(crate) fn fall_sick(&self, sick: bool) {
        self.sick.send_replace(sick);
    }

    async fn answer(
        self,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, std::io::Error> {
        let upgrade = hyper::upgrade::on(&mut request);
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        if path == "/unwilling" {
            self.note(head, String::new(), None);
            let mut answer = Response::new(text("no"));
            *answer.status_mut() = StatusCode::EXPECTATION_FAILED;
            return Ok(answer);
        }
        if path == "/health" {
            let status = if *self.sick.borrow() { 500 } else { 200 };
            return Ok(Response::builder().status(status).body(text("")).unwrap());
        }
        let whole = body.collect().await.map_err(std::io::Error::other)?;
        let trailers = whole.trailers().cloned();
        let body = String::from_utf8(whole.to_bytes().to_vec()).unwrap();
        let protocol = head.headers.get("upgrade").cloned();
        let slow = path.starts_with("/slow");
        self.note(head, body.clone(), trailers);
        if slow {
            let mut go = self.go.subscribe();
            go.wait_for(|go| *go).await.map_err(std::io::Error::other)?;
        }
        if let Some(status) = path.strip_prefix("/status/") {
            let answer = Response::builder().status(status);
            return Ok(answer.body(text("as asked")).unwrap());
        }
        let mut answer = Response::new(text("hello"));
        match path.as_str() {
            "/echo" => *answer.body_mut() = text(body),
            "/break" => return Err(std::io::Error::other("asked to break")),
            "/upgrade" => {
                tokio::spawn(async move {
                    let mut io = TokioIo::new(upgrade.await.unwrap());
                    let (mut read, mut write) = tokio::io::split(&mut io);
                    drop(tokio::io::copy(&mut read, &mut write).await);
                });
                *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                let headers = answer.headers_mut();
                headers.insert("connection", "upgrade".parse().unwrap());
                headers.insert("upgrade", protocol.unwrap());
                *answer.body_mut() =
                    Empty::new().map_err(|never: Infallible| match never {}).boxed();
            }
            "/trailers" => {
                let trailers =
                    HeaderMap::from_iter([("x-sum".parse().unwrap(), "42".parse().unwrap())]);
                let frames = [Frame::data(Bytes::from("part")), Frame::trailers(trailers)];
                let frames = tokio_stream::iter(frames.map(Ok));
                *answer.body_mut() = BodyExt::boxed(StreamBody::new(frames));
                answer.headers_mut().insert("trailer", "x-sum".parse().unwrap());
            }
            "/stall" => {
                let first = tokio_stream::iter([Ok(Frame::data(Bytes::from("first")))]);
                let stalled = first.chain(tokio_stream::pending());
                *answer.body_mut() = BodyExt::boxed(StreamBody::new(stalled));
            }
            "/medium" => *answer.body_mut() = text(vec![b'x'; 4_000]),
            "/large" => *answer.body_mut() = text(vec![b'x'; 8 << 20]),
            "/hop" => {
                let headers = answer.headers_mut();
                headers.insert("keep-alive", "timeout=5".parse().unwrap());
                headers.insert("connection", "x-between".parse().unwrap());
                headers.insert("x-between", "us".parse().unwrap());
                headers.insert("x-beyond", "all".parse().unwrap());
            }
            "/costly" => {
                answer.headers_mut().insert("x-cost", "5".parse().unwrap());
            }
            _ => {}
        }
        Ok(answer)
    }

    fn note(&self, head: http::request::Parts, body: String, trailers: Option<HeaderMap>) {
        let http::request::Parts { method, uri, version, headers, .. } = head;
        let at = Instant::now();
        self.seen.lock().push(Seen { method, uri, version, headers, body, trailers, at });
    }
}

/// A server that records the bytes it receives, and always sends the same response.
pub(crate) struct RawUpstream {
    pub(crate) address: SocketAddr,
    got: Arc<Mutex<Vec<u8>>>,
    connections: Arc<Mutex<u32>>,
}

impl RawUpstream {
    /// Responds with these bytes as soon as it receives any.
    pub(crate) async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = RawUpstream {
            address: listener.local_addr().unwrap(),
            got: Arc::default(),
            connections: Arc::default(),
        };
        let (got, connections) = (Arc::clone(&upstream.got), Arc::clone(&upstream.connections));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                *connections.lock() += 1;
                let got = Arc::clone(&got);
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    let mut answered = false;
                    while let Ok(read) = stream.read(&mut buffer).await
                        && read > 0
                    {
                        got.lock().extend_from_slice(&buffer[..read]);
                        if !answered {
                            answered = true;
                            drop(stream.write_all(answer.as_bytes()).await);
                        }
                    }
                });
            }
        });
        upstream
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn got(&self) -> String {
        String::from_utf8_lossy(&self.got.lock()).into_owned()
    }

    pub(crate) fn connections(&self) -> u32 {
        *self.connections.lock()
    }

    /// Waits until the received bytes contain a text.
    pub(crate) async fn gets(&self, text: &str) {
        until(text, || self.got().contains(text)).await;
    }
}

/// A bound port without a listener: it refuses connections.
pub(crate) struct Nobody {
    _taken: TcpSocket,
    address: SocketAddr,
}

impl Nobody {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Nobody { address: socket.local_addr().unwrap(), _taken: socket }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
