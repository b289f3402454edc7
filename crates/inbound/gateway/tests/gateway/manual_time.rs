//! A test driver with a manual clock: a gateway on tokio's paused clock, in front of a real server.
//!
//! tokio's paused clock advances by itself when every task waits, also for a socket. This driver prevents that: the
//! clock stands until a test advances it, however long the sockets take.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::service::Service as _;
use tidegate_engine::{
    Clock, CounterStore, Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Nanos, Timestamp,
    Verb,
};
use tidegate_gateway::{Gateway, GatewayParts, GatewaySettings};
use tidegate_overload::{Protection, SteadyClock};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance};

use crate::elsewhere::Elsewhere;
use crate::harness::{PATIENCE, START, by_user, engine_on, remaining, to};
use crate::upstream::Upstream;

/// The engine's clock, which follows tokio's.
#[derive(Debug)]
pub(crate) struct Following(Instant);

impl Clock for Following {
    fn now(&self) -> Timestamp {
        START.after(Nanos::from(self.0.elapsed()))
    }
}

/// A gateway that is called directly, for user 7.
pub(crate) struct ByHand<S = MemoryStore> {
    pub(crate) gateway: Gateway<S, Following>,
    engine: Arc<Engine<S, Following>>,
    upstream: Upstream,
    began: Instant,
    /// While a task waits at the other end, the clock stands.
    _standing: SyncSender<()>,
}

impl ByHand {
    /// With these limits for each user. Time must be paused.
    pub(crate) async fn new(limits: &str, adjust: impl FnOnce(&mut GatewaySettings)) -> Self {
        let store = MemoryStore::new(MemoryConfig::default()).unwrap();
        ByHand::on(store, limits, GatewayParts::default(), adjust).await
    }

    /// With these limits and this overload protection.
    pub(crate) async fn protected(limits: &str, by: Arc<Protection<SteadyClock>>) -> Self {
        let store = MemoryStore::new(MemoryConfig::default()).unwrap();
        let parts = GatewayParts { protection: Some(by), ..GatewayParts::default() };
        ByHand::on(store, limits, parts, |_| {}).await
    }

    /// The units left of the limit with this index.
    pub(crate) fn remaining(&self, place: usize) -> u64 {
        remaining(&self.engine, place)
    }
}

impl ByHand<Elsewhere> {
    /// Like `limited`, with an asynchronous store.
    pub(crate) async fn elsewhere(limits: &str) -> Self {
        ByHand::on(Elsewhere::new(), limits, GatewayParts::default(), |_| {}).await
    }

    /// The units left of the limit with this index.
    pub(crate) async fn remaining(&self, place: usize) -> u64 {
        let entries = [Entry { key: "user", value: "7" }];
        let descriptors = [Descriptor::new(&entries)];
        let request = tidegate_engine::Request::new("gateway", &descriptors).with_cost(0);
        self.engine.apply(Verb::Peek, &request).await.rulings()[place].decision.remaining
    }
}

impl<S: CounterStore> ByHand<S> {
    async fn on(
        store: S,
        limits: &str,
        parts: GatewayParts,
        adjust: impl FnOnce(&mut GatewaySettings),
    ) -> Self {
        let (standing, until_dropped) = sync_channel::<()>(1);
        tokio::task::spawn_blocking(move || until_dropped.recv());
        let upstream = Upstream::start().await;
        let mut settings = by_user(to(&[upstream.url()]));
        adjust(&mut settings);
        let began = Instant::now();
        let descriptors = format!("- {{key: user, limits: [{limits}]}}");
        let engine = engine_on(store, &descriptors, Following(began));
        let gateway = Gateway::new(Arc::clone(&engine), settings, parts);
        let gateway = gateway.unwrap_or_else(|error| panic!("{error}"));
        ByHand { gateway, engine, upstream, began, _standing: standing }
    }

    /// Sends a request. With a synchronous store it is decided when this returns. Aborting it disconnects the client.
    pub(crate) fn begin(&self, path: &str) -> JoinHandle<StatusCode> {
        self.send(Request::get(path))
    }

    /// Sends this request.
    pub(crate) fn send(&self, request: http::request::Builder) -> JoinHandle<StatusCode> {
        let request = request.header("host", "a").header("x-user", "7");
        let answering = self.gateway.call(request.body(Full::new(Bytes::new())).unwrap());
        tokio::spawn(async move {
            let answer = answering.await.unwrap();
            let status = answer.status();
            answer.into_body().collect().await.unwrap();
            status
        })
    }

    /// Lets the upstream answer the requests that it holds.
    pub(crate) fn let_go(&self) {
        self.upstream.let_go();
    }

    /// Advances the clock.
    pub(crate) async fn turn(&self, millis: u64) {
        advance(Duration::from_millis(millis)).await;
    }

    /// Waits until a condition holds, while the clock stands.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let began = real_now();
        while !holds(self) {
            assert!(real_now().duration_since(began) < PATIENCE, "{what} did not happen");
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the upstream has received this number of requests.
    pub(crate) async fn until_left(&self, count: usize) {
        self.until("leaving", |hand| hand.upstream.seen().len() == count).await;
    }

    /// The requests that the upstream received, with their times in milliseconds from the start.
    pub(crate) fn left(&self) -> Vec<(String, u128)> {
        let seen = self.upstream.seen().into_iter();
        let at = |at: Instant| at.duration_since(self.began).as_millis();
        seen.map(|seen| (seen.uri.path().to_owned(), at(seen.at))).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "tokio's clock stands, and no test is to hang")]
fn real_now() -> std::time::Instant {
    std::time::Instant::now()
}
