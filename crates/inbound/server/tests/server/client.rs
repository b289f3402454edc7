//! Clients and services for these tests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_server::{
    Address, BoundEndpoint, ConnectionLimits, Endpoint, Protocol, ResponseDeadline, Server,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;

/// The timeout of everything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn workers(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("tests start workers")
}

pub(crate) fn any_port() -> Address {
    Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
}

pub(crate) fn endpoint(protocol: Protocol) -> Endpoint {
    Endpoint::new("test", protocol, any_port())
}

pub(crate) fn limited(protocol: Protocol, limits: ConnectionLimits) -> Endpoint {
    endpoint(protocol).limits(limits)
}

pub(crate) fn port_of(listening: &BoundEndpoint) -> SocketAddr {
    match listening.address() {
        Address::Tcp(address) => *address,
        Address::Unix { path, .. } => panic!("{} is not a TCP address", path.display()),
    }
}

/// Opens an endpoint with one address: one for calls if its protocol is HTTP/2.
pub(crate) fn open(server: &Server, endpoint: Endpoint, service: TestService) -> BoundEndpoint {
    let opened = match endpoint.protocol {
        Protocol::Http2 => server.open_calls(endpoint, service),
        Protocol::Auto => server.open(endpoint, service),
    };
    opened.expect("a port is free").remove(0)
}

/// Polls until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    within(what, waiting).await;
}

/// Waits for a future, with a timeout.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not happen"),
    }
}

/// The number of pieces in the response to `/long`.
pub(crate) const LONG_PIECES: usize = 100;
pub(crate) const LONG_PIECE: &str = "a piece of text that is repeated many times over";

/// Responds with the path. Holds `/slow…` until [`Control::let_go`], and panics if the path asks for it.
#[derive(Clone)]
pub(crate) struct TestService {
    arrived: mpsc::Sender<()>,
    go: watch::Receiver<bool>,
}

/// Controls a [`TestService`].
pub(crate) struct Control {
    arrived: mpsc::Receiver<()>,
    go: watch::Sender<bool>,
}

impl Control {
    /// Waits until a slow request has arrived.
    pub(crate) async fn slow_request(&mut self) {
        within("a slow request", self.arrived.recv()).await.expect("the service lives");
    }

    /// The number of requests in flight and of clones of the service.
    pub(crate) fn alive(&self) -> usize {
        self.go.receiver_count()
    }

    pub(crate) fn let_go(&self) {
        self.go.send_replace(true);
    }
}

pub(crate) fn service() -> (TestService, Control) {
    let (arrived, arrivals) = mpsc::channel(16);
    let (let_go, go) = watch::channel(false);
    (TestService { arrived, go }, Control { arrived: arrivals, go: let_go })
}

impl<B> Service<Request<B>> for TestService {
    type Response = Response<UnsyncBoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let path = request.uri().path().to_owned();
        assert!(path != "/panic-at-once", "asked to panic at once");
        let mut this = self.clone();
        Box::pin(async move {
            assert!(path != "/panic", "asked to panic");
            if path.starts_with("/slow") {
                this.arrived.send(()).await.expect("the test lives");
                this.go.wait_for(|go| *go).await.expect("the test lives");
            }
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            let has_deadline = path == "/deadline";
            let body = match path.as_str() {
                "/panic-in-body" | "/slow-panic-in-body" => PanickingBody.boxed_unsync(),
                "/long" => long(),
                "/endless" | "/deadline" => endless(&this.go),
                "/silent" => silent(&this.go),
                _ => Full::new(Bytes::from(path)).boxed_unsync(),
            };
            let mut response = Response::new(body);
            if has_deadline {
                let soon = tokio::time::Instant::now() + Duration::from_millis(50);
                response.extensions_mut().insert(ResponseDeadline(soon));
            }
            let value = thread.parse().expect("names of threads are header values");
            response.headers_mut().insert("x-thread", value);
            Ok(response)
        })
    }
}

/// A body of many pieces.
fn long() -> UnsyncBoxBody<Bytes, Infallible> {
    let piece = || Ok(Frame::data(Bytes::from_static(LONG_PIECE.as_bytes())));
    let pieces = std::iter::repeat_with(piece).take(LONG_PIECES);
    StreamBody::new(tokio_stream::iter(pieces)).boxed_unsync()
}

/// A body that always has more. It counts as alive while it exists.
fn endless(alive: &watch::Receiver<bool>) -> UnsyncBoxBody<Bytes, Infallible> {
    let alive = alive.clone();
    let piece = move || {
        let _ = &alive;
        Ok(Frame::data(Bytes::from_static(&[b'x'; 8 * 1024])))
    };
    StreamBody::new(tokio_stream::iter(std::iter::repeat_with(piece))).boxed_unsync()
}

/// A body of one piece, whose end comes with [`Control::let_go`].
fn silent(go: &watch::Receiver<bool>) -> UnsyncBoxBody<Bytes, Infallible> {
    let go = go.clone();
    let first = tokio_stream::iter([Ok(Frame::data(Bytes::from_static(b"first")))]);
    let last = tokio_stream::once(()).then(move |()| {
        let mut go = go.clone();
        async move {
            go.wait_for(|go| *go).await.expect("the test lives");
            Ok(Frame::data(Bytes::from_static(b" last")))
        }
    });
    StreamBody::new(first.chain(last)).boxed_unsync()
}

/// Panics when it is polled.
struct PanickingBody;

impl Body for PanickingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("asked to panic in the body")
    }
}

/// One connection of either protocol.
pub(crate) enum Client {
    One(http1::SendRequest<Empty<Bytes>>, Closed),
    Two(http2::SendRequest<Empty<Bytes>>, Closed),
}

type Closed = tokio::task::JoinHandle<hyper::Result<()>>;

impl Client {
    pub(crate) async fn one(io: impl Io) -> Self {
        let (sender, connection) =
            http1::handshake(TokioIo::new(io)).await.expect("HTTP/1.1 begins");
        Client::One(sender, tokio::spawn(connection))
    }

    pub(crate) async fn two(io: impl Io) -> Self {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.expect("HTTP/2 begins");
        Client::Two(sender, tokio::spawn(connection))
    }

    /// A client with a flow-control window of this many bytes.
    pub(crate) async fn two_with_window(io: impl Io, bytes: u32) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(bytes);
        let (sender, connection) =
            builder.handshake(TokioIo::new(io)).await.expect("HTTP/2 begins");
        Client::Two(sender, tokio::spawn(connection))
    }

    /// Sends a request and returns the response to come.
    pub(crate) fn send(
        &mut self,
        path: &str,
    ) -> Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>> {
        let request = Request::get(format!("http://test{path}"));
        let request = request.header("host", "test").body(Empty::new()).expect("a request");
        match self {
            Client::One(sender, _) => Box::pin(sender.send_request(request)),
            Client::Two(sender, _) => Box::pin(sender.send_request(request)),
        }
    }

    /// Sends a request with a header field of this many bytes.
    pub(crate) fn send_with(
        &mut self,
        path: &str,
        bytes: usize,
    ) -> Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>> {
        let request =
            Request::get(format!("http://test{path}")).header("x-long", "x".repeat(bytes));
        let request = request.body(Empty::new()).expect("a request");
        match self {
            Client::One(sender, _) => Box::pin(sender.send_request(request)),
            Client::Two(sender, _) => Box::pin(sender.send_request(request)),
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> hyper::Result<(Response<()>, String)> {
        read(within("a response", self.send(path)).await?).await
    }

    /// The body of the response. Panics if the request fails.
    pub(crate) async fn text(&mut self, path: &str) -> String {
        self.get(path).await.expect("the request succeeds").1
    }

    /// The name of the thread that served the request.
    pub(crate) async fn thread(&mut self) -> String {
        let (response, _) = self.get("/").await.expect("the request succeeds");
        response.headers()["x-thread"].to_str().expect("text").to_owned()
    }

    /// Waits until the server has closed the connection.
    pub(crate) async fn closed(self) {
        let (Client::One(_, closed) | Client::Two(_, closed)) = self;
        // The result depends on the protocol.
        drop(within("the end of the connection", closed).await);
    }
}

pub(crate) async fn read(response: Response<Incoming>) -> hyper::Result<(Response<()>, String)> {
    let (head, body) = response.into_parts();
    let body = within("a body", body.collect()).await?.to_bytes();
    let text = String::from_utf8(body.to_vec()).expect("bodies are text");
    Ok((Response::from_parts(head, ()), text))
}

pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for T {}

pub(crate) async fn tcp(listening: &BoundEndpoint) -> TcpStream {
    TcpStream::connect(port_of(listening)).await.expect("the server listens")
}

pub(crate) async fn unix(path: &Path) -> UnixStream {
    UnixStream::connect(path).await.expect("the server listens")
}
