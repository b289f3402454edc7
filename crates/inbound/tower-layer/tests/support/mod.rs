//! What several tests need: an engine on a clock turned by hand, services to
//! put behind it, and answers that are easy to compare.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub(crate) mod elsewhere;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use tidegate_admission::RequestDescription;
use tidegate_answers::{HeaderSet, Notice};
use tidegate_engine::{
    Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, Options, Source, Timestamp,
    Verdict, compile,
};
use tidegate_tower_layer::RateLimitLayer;
use tower::{Service, ServiceExt};

pub(crate) type TestEngine = Engine<MemoryStore, ManualClock>;

/// The start of a minute, of an hour and of a day.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_699_920_000);

/// An engine with these descriptors in the domain `api`.
pub(crate) fn engine(descriptors: &str) -> Arc<TestEngine> {
    let text = format!("domain: api\ndescriptors:\n{descriptors}");
    let rules = compile(&[Source::new("rules.yaml", text)], &Options::default())
        .unwrap_or_else(|report| panic!("{report}"));
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    Arc::new(Engine::new(store, ManualClock::at(START)).with_rules(rules))
}

/// An engine with one rule for the key `user` and these limits.
pub(crate) fn user_limits(limits: &str) -> Arc<TestEngine> {
    engine(&format!("- {{key: user, limits: [{limits}]}}"))
}

/// Decides one request of user 7.
pub(crate) fn check(engine: &TestEngine, cost: u64) -> Verdict {
    let entries = [Entry { key: "user", value: "7" }];
    let descriptors = [Descriptor::new(&entries)];
    engine.check_now(&tidegate_engine::Request::new("api", &descriptors).with_cost(cost))
}

/// The fields for a verdict, as `name: value`.
pub(crate) fn fields(set: HeaderSet, verdict: &Verdict) -> Vec<String> {
    let fields = set.fields(&Notice::of(verdict), START);
    fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
}

/// Describes a request by its `x-user` field and its `x-cost`; `/health` is not limited.
pub(crate) fn by_user(request: &Parts) -> Option<RequestDescription> {
    if request.uri.path() == "/health" {
        return None;
    }
    let text = |name| request.headers.get(name).map_or("7", |value| value.to_str().unwrap());
    let cost =
        request.headers.get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap());
    Some(RequestDescription::new().descriptor([("user", text("x-user"))]).cost(cost))
}

pub(crate) fn layer(engine: &Arc<TestEngine>) -> RateLimitLayer<MemoryStore, ManualClock> {
    RateLimitLayer::new(Arc::clone(engine), "api", by_user)
}

/// A service that says hello.
pub(crate) fn hello()
-> impl Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send> + Clone
{
    tower::service_fn(|_request: Request<()>| async {
        Ok(Response::new(Full::new(Bytes::from_static(b"hello"))))
    })
}

pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

/// An answer whose body has been read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// All fields, sorted, as `name: value`.
    pub(crate) fn fields(&self) -> Vec<String> {
        let shown = self.headers.iter();
        let shown = shown.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let mut shown: Vec<String> = shown.collect();
        shown.sort();
        shown
    }
}

/// Sends one request and reads the whole answer.
pub(crate) async fn send<S, B>(service: &S, request: Request<()>) -> Answer
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let Ok(answer) = service.clone().oneshot(request).await;
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}
