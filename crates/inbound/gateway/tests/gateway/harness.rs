//! A test driver: a gateway on a free port, and clients for it.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_engine::{
    Clock, Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, Options, Source,
    SystemClock, Timestamp, Verb, compile,
};
use tidegate_gateway::{
    DescriptorSettings, EntrySettings, Gateway, GatewayParts, GatewaySettings, RouteSettings,
    UpstreamSettings, ValueFrom,
};
use tidegate_server::{Address, ConnectionLimits, Endpoint, Protocol, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The timeout of everything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The start of a day.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_699_920_000);

/// Waits for a future, with a timeout.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not happen"),
    }
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

/// Settings with one route for all requests, to these upstreams.
pub(crate) fn to(hosts: &[String]) -> GatewaySettings {
    GatewaySettings {
        routes: vec![RouteSettings::new("all", "api")],
        upstreams: vec![UpstreamSettings::new("api", hosts.to_vec())],
        ..GatewaySettings::default()
    }
}

/// The same settings, limited by the field `x-user`.
pub(crate) fn by_user(mut settings: GatewaySettings) -> GatewaySettings {
    let user = EntrySettings::new("user", ValueFrom::Header("x-user".parse().unwrap()));
    settings.routes[0].descriptors = vec![DescriptorSettings::new([user])];
    settings
}

/// An engine with these descriptors in the gateway's domain.
pub(crate) fn engine<C: Clock>(descriptors: &str, clock: C) -> Arc<Engine<MemoryStore, C>> {
    engine_on(MemoryStore::new(MemoryConfig::default()).unwrap(), descriptors, clock)
}

/// Like [`engine`], with this store.
pub(crate) fn engine_on<S, C: Clock>(store: S, descriptors: &str, clock: C) -> Arc<Engine<S, C>> {
    let text = format!("domain: gateway\ndescriptors:\n{descriptors}\n");
    let rules = compile(&[Source::new("rules.yaml", text)], &Options::default());
    let rules = rules.unwrap_or_else(|report| panic!("{report}"));
    Arc::new(Engine::new(store, clock).with_rules(rules))
}

/// The units that user 7 has left of the limit with this index.
pub(crate) fn remaining<C: Clock>(engine: &Engine<MemoryStore, C>, index: usize) -> u64 {
    let entries = [Entry { key: "user", value: "7" }];
    let descriptors = [Descriptor::new(&entries)];
    let request = tidegate_engine::Request::new("gateway", &descriptors).with_cost(0);
    engine.apply_now(Verb::Peek, &request).rulings()[index].decision.remaining
}

/// A gateway that listens at a free port.
pub(crate) struct Harness<C = ManualClock> {
    pub(crate) gateway: Gateway<MemoryStore, C>,
    pub(crate) engine: Arc<Engine<MemoryStore, C>>,
    pub(crate) address: SocketAddr,
    _server: Server,
}

impl Harness {
    /// Without limits.
    pub(crate) fn open(settings: GatewaySettings) -> Self {
        Harness::limited(settings, "- key: none")
    }

    /// With these rules and a manual clock.
    pub(crate) fn limited(settings: GatewaySettings, descriptors: &str) -> Self {
        let engine = engine(descriptors, ManualClock::at(START));
        Harness::with(engine, settings, GatewayParts::default(), |endpoint| endpoint)
    }

    /// With these connection limits.
    pub(crate) fn connected(settings: GatewaySettings, limits: ConnectionLimits) -> Self {
        let engine = engine("- key: none", ManualClock::at(START));
        Harness::with(engine, settings, GatewayParts::default(), |at| at.limits(limits))
    }
}

impl Harness<SystemClock> {
    /// With these rules and the real clock.
    pub(crate) fn timed(settings: GatewaySettings, descriptors: &str) -> Self {
        let engine = engine(descriptors, SystemClock::new());
        Harness::with(engine, settings, GatewayParts::default(), |endpoint| endpoint)
    }
}

impl<C: Clock> Harness<C> {
    pub(crate) fn with(
        engine: Arc<Engine<MemoryStore, C>>,
        settings: GatewaySettings,
        parts: GatewayParts,
        adjust: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Self {
        let gateway = Gateway::new(Arc::clone(&engine), settings, parts)
            .unwrap_or_else(|error| panic!("{error}"));
        let server = Server::start(NonZeroUsize::MIN).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = adjust(Endpoint::new("gateway", Protocol::Auto, any));
        let service = gateway.clone();
        let listening = server.open_for_peers(endpoint, move |peer| service.for_peer(peer));
        let Address::Tcp(address) = listening.unwrap()[0].address().clone() else {
            panic!("it listens at a port")
        };
        Harness { gateway, engine, address, _server: server }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a new connection, and reads until it is closed.
    pub(crate) async fn raw(&self, bytes: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A server that closes early may reset the connection.
        drop(within("the end of the connection", stream.read_to_end(&mut answer)).await);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(crate) async fn one(&self) -> Client {
        let (sender, connection) =
            http1::handshake(TokioIo::new(self.connect().await)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        Client::One(sender)
    }

    pub(crate) async fn two(&self) -> Client {
        let io = TokioIo::new(self.connect().await);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Client::Two(sender)
    }

    /// A connection over HTTP/2 whose streams get this many bytes without being read.
    pub(crate) async fn two_with_window(&self, bytes: u32) -> Client {
        let io = TokioIo::new(self.connect().await);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(bytes);
        let (sender, connection) = builder.handshake(io).await.unwrap();
        tokio::spawn(connection);
        Client::Two(sender)
    }

    /// Sends a request on a new connection.
    pub(crate) async fn send(&self, request: http::request::Builder) -> Reply {
        self.one().await.send(request, "").await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path)).await
    }

    /// Sends a request of a user on a new connection.
    pub(crate) async fn get_as(&self, user: &str) -> Reply {
        self.send(Request::get("/").header("x-user", user)).await
    }

    /// The number of requests of the first route with this outcome.
    pub(crate) fn count(&self, outcome: &str) -> u64 {
        let routes = self.gateway.read().routes;
        let found = routes[0].1.iter().find(|(word, _)| *word == outcome);
        found.map_or(0, |(_, count)| *count)
    }
}

/// A connection to a gateway.
pub(crate) enum Client {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// A response to come.
pub(crate) type ResponseFuture =
    std::pin::Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

/// A complete response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) async fn of(answer: Response<Incoming>) -> hyper::Result<Self> {
        let (head, body) = answer.into_parts();
        let body = within("a body", body.collect()).await?;
        let trailers = body.trailers().cloned();
        let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        Ok(Reply { status: head.status, headers: head.headers, body, trailers })
    }
}

impl Client {
    /// Sends a request and returns the response to come.
    pub(crate) fn begin(
        &mut self,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> ResponseFuture {
        let body = Full::new(body.into());
        match self {
            Client::One(sender) => {
                let mut request = request.body(body).unwrap();
                request.headers_mut().entry("host").or_insert("api.test".parse().unwrap());
                Box::pin(sender.send_request(request))
            }
            Client::Two(sender) => {
                let request = request.body(body).unwrap();
                let (mut head, body) = request.into_parts();
                let mut uri = head.uri.into_parts();
                uri.scheme = Some(http::uri::Scheme::HTTP);
                uri.authority = Some("api.test".parse().unwrap());
                head.uri = uri.try_into().unwrap();
                Box::pin(sender.send_request(Request::from_parts(head, body)))
            }
        }
    }

    pub(crate) async fn send(
        &mut self,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> Reply {
        let answer = within("a response", self.begin(request, body)).await.unwrap();
        Reply::of(answer).await.unwrap()
    }
}
