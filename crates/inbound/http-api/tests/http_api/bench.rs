//! A door on a clock turned by hand. Every answer is held against the document.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use serde_json::Value;
use tidegate_engine::{
    CounterStore, Engine, ManualClock, MemoryConfig, MemoryStore, Options, Snapshot, Source,
    Timestamp, compile,
};
use tidegate_http_api::{Health, HttpApi, HttpApiParts, HttpApiSettings, RulesStatus};
use tidegate_metrics::Meter;
use tidegate_requests::AccessPolicy;

use crate::document;

/// The start of a minute, of an hour and of a day.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_699_920_000);

/// One rule of each kind.
pub(crate) const RULES: &str = "
domain: api
plans:
  free: {limits: [{name: rate, unit: second, requests_per_unit: 2}]}
descriptors:
  - key: user
    rate_limit: {name: burst, algorithm: token_bucket, unit: minute, requests_per_unit: 2}
  - key: both
    limits:
      - {name: minutely, unit: minute, requests_per_unit: 5}
      - {unit: hour, requests_per_unit: 1}
  - key: job
    rate_limit: {name: in-flight, algorithm: concurrency, requests_per_unit: 1, time_to_live: 60s}
  - key: dark
    rate_limit: {name: dark, unit: day, requests_per_unit: 0, mode: shadow}
  - key: queue
    rate_limit: {algorithm: leaky_bucket, unit: second, requests_per_unit: 1, queue: 5}
  - key: soft
    rate_limit: {unit: day, requests_per_unit: 10, soft: {over: 100%, for: 1h}}
  - key: quota
    rate_limit: {unit: day, requests_per_unit: 5}
    quota_mode: true
  - key: free
    rate_limit: {unlimited: true}
  - key: plan
    plan: {from: value}
  - key: ip
    cidr: 10.0.0.0/8
    metadata: {team: edge}
    rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: burst}]}
    descriptors:
      - key: path
";

pub(crate) type TestEngine<S = MemoryStore> = Engine<S, ManualClock>;

/// A door with all that belongs to it.
pub(crate) struct Bench<S = MemoryStore> {
    pub(crate) api: HttpApi<S, ManualClock>,
    pub(crate) engine: Arc<TestEngine<S>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) health: Health,
}

impl Bench {
    /// A door with one rule of each kind.
    pub(crate) fn new() -> Self {
        Bench::with(settings())
    }

    pub(crate) fn with(settings: HttpApiSettings) -> Self {
        Bench::over(engine(), parts(settings))
    }
}

impl<S: CounterStore> Bench<S> {
    pub(crate) fn over(engine: TestEngine<S>, parts: HttpApiParts) -> Self {
        let engine = Arc::new(engine);
        let (meter, health) = (Arc::clone(&parts.meter), parts.health.clone());
        Bench { api: HttpApi::new(Arc::clone(&engine), parts), engine, meter, health }
    }

    /// Sends a JSON value.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string()).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: &str) -> Answer {
        self.send(request(Method::POST, path, body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path, "")).await
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let Ok(answer) = self.api.call(request).await;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let answer = Answer { status: parts.status.as_u16(), headers: parts.headers, text };
        if method != Method::HEAD {
            document::hold_against(&method, &path, &answer);
        }
        answer
    }
}

/// The settings of a port that other machines cannot reach.
pub(crate) fn settings() -> HttpApiSettings {
    HttpApiSettings { access: AccessPolicy::local(), ..HttpApiSettings::default() }
}

pub(crate) fn rules(text: &str) -> Snapshot {
    compile(&[Source::new("rules.yaml", text)], &Options::default())
        .unwrap_or_else(|report| panic!("{report}"))
}

pub(crate) fn engine() -> TestEngine {
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    Engine::new(store, ManualClock::at(START)).with_rules(rules(RULES))
}

pub(crate) fn parts(settings: HttpApiSettings) -> HttpApiParts {
    HttpApiParts {
        settings,
        meter: Arc::new(Meter::new("http")),
        health: Health::new(),
        rules: Arc::new(|| RulesStatus {
            loaded_at: Some(START),
            sources: Arc::new([Source::new("rules.yaml", RULES)]),
            failure: None,
        }),
        json: None,
    }
}

pub(crate) fn request(method: Method, path: &str, body: &str) -> Request<Full<Bytes>> {
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    Request::builder().method(method).uri(path).body(body).unwrap()
}

/// A request with one descriptor of one entry.
pub(crate) fn asking(key: &str, value: &str) -> Value {
    serde_json::json!({
        "domain": "api", "descriptors": [{"entries": [{"key": key, "value": value}]}],
    })
}

/// The same with a cost.
pub(crate) fn costing(cost: u64, key: &str, value: &str) -> Value {
    let mut asked = asking(key, value);
    asked["cost"] = cost.into();
    asked
}

/// An answer whose body has been read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}
