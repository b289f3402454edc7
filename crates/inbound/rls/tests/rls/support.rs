//! A door on a loopback port with a client, stores that fail or wait, and
//! answers that are easy to compare.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prost::Message;
use tidegate_engine::{
    CounterStore, Engine, FailureKind, ManualClock, MemoryConfig, MemoryStore, Options, Snapshot,
    Source, StoreError, Timestamp, compile,
};
use tidegate_metrics::Meter;
use tidegate_rls::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use tidegate_rls::proto::rate_limit_response::{Code, rate_limit};
use tidegate_rls::proto::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitServiceClient,
};
use tidegate_rls::{HealthHandle, Rls, RlsBody, RlsSettings};
use tidegate_stores::{Answers, Batch};
use tokio::net::TcpListener;
use tonic::transport::Channel;

/// The start of a minute, of an hour and of a day.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_699_920_000);
pub(crate) const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(crate) type Clock = Arc<ManualClock>;

pub(crate) fn rules(descriptors: &str) -> Snapshot {
    rules_with(descriptors, Options::default())
}

pub(crate) fn rules_with(descriptors: &str, options: Options) -> Snapshot {
    let text = format!("domain: api\ndescriptors:\n{descriptors}");
    compile(&[Source::new("rules.yaml", text)], &options)
        .unwrap_or_else(|report| panic!("{report}"))
}

pub(crate) fn memory() -> MemoryStore {
    MemoryStore::new(MemoryConfig::default()).unwrap()
}

/// A door, its clock and its meter.
pub(crate) struct Door<S = MemoryStore> {
    pub(crate) rls: Rls<S, Clock>,
    pub(crate) clock: Clock,
    pub(crate) meter: Arc<Meter>,
    pub(crate) health: HealthHandle,
}

pub(crate) fn door(descriptors: &str) -> Door {
    door_with(rules(descriptors), RlsSettings::default())
}

pub(crate) fn door_with(rules: Snapshot, settings: RlsSettings) -> Door {
    door_to(memory(), rules, settings)
}

pub(crate) fn door_to<S>(store: S, rules: Snapshot, settings: RlsSettings) -> Door<S> {
    door_of(|clock| Engine::new(store, clock).with_rules(rules), settings)
}

pub(crate) fn door_of<S>(
    engine: impl FnOnce(Clock) -> Engine<S, Clock>,
    settings: RlsSettings,
) -> Door<S> {
    let clock = Arc::new(ManualClock::at(START));
    let meter = Arc::new(Meter::new("rls"));
    let health = HealthHandle::new();
    let engine = Arc::new(engine(Arc::clone(&clock)));
    let rls = Rls::new(engine, settings, &health, Arc::clone(&meter));
    Door { rls, clock, meter, health }
}

impl<S> Door<S>
where
    S: CounterStore,
{
    /// Puts the door on a loopback port and connects to it.
    pub(crate) async fn connect(&self) -> Channel {
        let address = self.listen().await;
        let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(self.connect().await)
    }

    pub(crate) async fn listen(&self) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let rls = self.rls.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let rls = rls.clone();
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), rls).await;
                });
            }
        });
        address
    }

    /// Asks over the network; shows the answer.
    pub(crate) async fn ask(&self, request: RateLimitRequest) -> Vec<String> {
        shown(&self.answer(request).await)
    }

    pub(crate) async fn answer(&self, request: RateLimitRequest) -> RateLimitResponse {
        self.client().await.should_rate_limit(request).await.unwrap().into_inner()
    }

    /// The status of a call that fails.
    pub(crate) async fn error(&self, request: RateLimitRequest) -> (tonic::Code, String) {
        let status = self.client().await.should_rate_limit(request).await.unwrap_err();
        (status.code(), status.message().to_owned())
    }

    /// Calls the door itself, without a network.
    pub(crate) async fn call(&self, request: Request<Full<Bytes>>) -> Answer {
        let Ok(response) = self.rls.call(request).await;
        Answer::read(response).await
    }
}

/// An answer whose body has been read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) async fn read(response: Response<RlsBody>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.to_bytes(),
            trailers,
        }
    }

    /// gRPC's status and message, from the trailers or the header fields.
    pub(crate) fn grpc_status(&self) -> (String, String) {
        let fields = self.trailers.as_ref().unwrap_or(&self.headers);
        let text = |name| fields.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        (text("grpc-status"), text("grpc-message"))
    }
}

/// A call with this body.
pub(crate) fn call_with(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(METHOD)
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body.into()))
        .unwrap()
}

/// A message in its frame.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    frame
}

pub(crate) fn call_of(request: &RateLimitRequest) -> Request<Full<Bytes>> {
    call_with(framed(&request.encode_to_vec()))
}

/// A request to the domain `api`.
pub(crate) fn request(
    descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
) -> RateLimitRequest {
    RateLimitRequest {
        domain: "api".to_owned(),
        descriptors: descriptors.into_iter().collect(),
        hits_addend: 0,
    }
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries = entries.iter();
    let entries =
        entries.map(|(key, value)| Entry { key: (*key).to_owned(), value: (*value).to_owned() });
    RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }
}

/// One descriptor of user 7.
pub(crate) fn user() -> RateLimitDescriptor {
    descriptor(&[("user", "7")])
}

pub(crate) fn costing(hits: u64, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor }
}

pub(crate) fn limited(
    requests_per_unit: u32,
    unit: i32,
    descriptor: RateLimitDescriptor,
) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit });
    RateLimitDescriptor { limit, ..descriptor }
}

/// An answer in words: the whole first, then each descriptor.
pub(crate) fn shown(response: &RateLimitResponse) -> Vec<String> {
    let mut out = vec![response.overall_code().as_str_name().to_owned()];
    for status in &response.statuses {
        let mut text = Code::as_str_name(&status.code()).to_owned();
        if let Some(limit) = &status.current_limit {
            let unit = rate_limit::Unit::as_str_name(&limit.unit());
            text.push_str(&format!(" {}/{unit}", limit.requests_per_unit));
            if !limit.name.is_empty() {
                text.push_str(&format!(" {:?}", limit.name));
            }
        }
        text.push_str(&format!(", {} left", status.limit_remaining));
        if let Some(reset) = &status.duration_until_reset {
            assert_eq!(reset.nanos, 0, "whole seconds");
            text.push_str(&format!(", {}s", reset.seconds));
        }
        out.push(text);
    }
    out
}

/// A store that decides only at the second time it is polled.
pub(crate) struct Later(pub(crate) MemoryStore);

impl CounterStore for Later {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        let mut polled = false;
        poll_fn(|context| {
            if std::mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        self.0.apply(batch, answers).await
    }

    fn give_back(&self, _: &Batch<'_>) {}
}

/// A store that nobody can reach.
pub(crate) struct Down;

impl CounterStore for Down {
    async fn apply(&self, _: &Batch<'_>, _: &mut Answers) -> Result<(), StoreError> {
        Err(StoreError::Unavailable { kind: FailureKind::Refused, reason: "it is down".to_owned() })
    }

    fn give_back(&self, _: &Batch<'_>) {}
}

/// A store that never answers.
pub(crate) struct Silent;

impl CounterStore for Silent {
    async fn apply(&self, _: &Batch<'_>, _: &mut Answers) -> Result<(), StoreError> {
        let _: Infallible = pending().await;
        Ok(())
    }

    fn give_back(&self, _: &Batch<'_>) {}
}
