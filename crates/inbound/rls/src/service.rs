//! The service: reads the body of a call, waits for the answer or the deadline, and counts the call.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::Full;
use pin_project_lite::pin_project;
use tidegate_engine::{Clock, CounterStore, Engine, MemoryStore, SystemClock, Timestamp};
use tokio::time::{Sleep, sleep};
use tonic::service::Routes;
use tower_service::Service as _;

use tidegate_answers::grpc::timeout;
use tidegate_metrics::Meter;

use crate::body::RlsBody;
use crate::decide::CallResult;
use crate::decode::frame::{BodyBuffer, Compression};
use crate::decode::{RateLimitRequest, json as json_request};
use crate::encode::{encode, json as json_answer};
use crate::failure::{Failure, GRPC, reject};
use crate::health::HealthHandle;
use crate::routes::routes;
use crate::settings::RlsSettings;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Returns whether rules were loaded, even if they have no domain.
pub type HasRules = Arc<dyn Fn() -> bool + Send + Sync>;

/// Envoy's rate limit service. Clones share everything.
pub struct Rls<S = MemoryStore, C = SystemClock> {
    shared: Arc<Shared<S, C>>,
}

pub(crate) struct Shared<S, C> {
    pub(crate) engine: Arc<Engine<S, C>>,
    pub(crate) settings: RlsSettings,
    meter: Arc<Meter>,
    routes: Routes,
    /// Calls whose answer the shadow mode of the whole service changed.
    pub(crate) shadowed: AtomicU64,
    pub(crate) has_rules: Option<HasRules>,
}

impl<S, C> Rls<S, C> {
    /// A service on this engine. The meter counts every call of `ShouldRateLimit`.
    pub fn new(
        engine: Arc<Engine<S, C>>,
        settings: RlsSettings,
        health: &HealthHandle,
        meter: Arc<Meter>,
    ) -> Self {
        let routes = routes(health, &settings);
        let shadowed = AtomicU64::new(0);
        let has_rules = None;
        Rls { shared: Arc::new(Shared { engine, settings, meter, routes, shadowed, has_rules }) }
    }

    /// Fails calls while there are no rules, if [`RlsSettings::upstream_errors`] is set.
    #[must_use]
    pub fn needing_rules(self, has_rules: HasRules) -> Self {
        let Shared { engine, settings, meter, routes, .. } = &*self.shared;
        Rls {
            shared: Arc::new(Shared {
                engine: Arc::clone(engine),
                settings: settings.clone(),
                meter: Arc::clone(meter),
                routes: routes.clone(),
                shadowed: AtomicU64::new(self.shadowed()),
                has_rules: Some(has_rules),
            }),
        }
    }

    /// How many requests over their limit passed because of [`RlsSettings::shadow`].
    pub fn shadowed(&self) -> u64 {
        self.shared.shadowed.load(Relaxed)
    }
}

impl<S, C> Rls<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Answers a request to upstream's `/json`: a `RateLimitRequest` in JSON. Not counted: the door that serves the path
    /// does that.
    pub async fn answer_json(&self, body: &[u8]) -> Response<Full<Bytes>> {
        let shared = &*self.shared;
        let json = match json_request::parse(body, shared.settings.message_bytes_max) {
            Ok(json) => json,
            Err(error) => return json_answer::bad_request(&error, &shared.settings),
        };
        match shared.decide(&json.request(), json_answer::render).await {
            Ok((kind, (code, answer))) => json_answer::response(kind, code, answer),
            Err(failure) => json_answer::bad_request(&failure.message, &shared.settings),
        }
    }
}

impl<S, C> Clone for Rls<S, C> {
    fn clone(&self) -> Self {
        Rls { shared: Arc::clone(&self.shared) }
    }
}

impl<S, C> fmt::Debug for Rls<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rls").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

impl<S, C> Shared<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Counts a call and builds its response.
    #[inline]
    fn finish(&self, result: CallResult<Bytes>, started: Timestamp) -> Response<RlsBody> {
        let (kind, response) = match result {
            Ok((kind, frame)) => {
                let mut response = Response::new(RlsBody::message(frame));
                *response.headers_mut() = HeaderMap::with_capacity(1);
                response.headers_mut().insert(CONTENT_TYPE, GRPC);
                (kind, response)
            }
            Err(failure) => (failure.answer, failure.response()),
        };
        let took = self.engine.clock().now().since(started);
        self.meter.count(kind, took.into());
        response
    }
}

impl<S, C, B> hyper::service::Service<Request<B>> for Rls<S, C>
where
    S: CounterStore,
    C: Clock,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<RlsBody>;
    type Error = Infallible;
    type Future = RlsFuture<S, C, B>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let state = match reject_early(&request) {
            Some(response) => CallState::Done { response: Some(response) },
            None if request.uri().path() == SHOULD_RATE_LIMIT => return self.start_call(request),
            None => {
                let response = self.shared.routes.clone().call(request);
                CallState::Tonic { response: Box::pin(response) }
            }
        };
        RlsFuture { state, call: None }
    }
}

impl<S, C> Rls<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Starts a call of `ShouldRateLimit`.
    #[inline]
    fn start_call<B>(&self, request: Request<B>) -> RlsFuture<S, C, B> {
        let started = self.shared.engine.clock().now();
        let headers = request.headers();
        let deadline = match headers.get(timeout::FIELD).map(timeout::parse) {
            None => Ok(None),
            // No time to decide, so nothing must be charged either.
            Some(Some(Duration::ZERO)) => Err(Failure::deadline_exceeded()),
            Some(Some(deadline)) => Ok(Some(deadline)),
            Some(None) => Err(Failure::malformed_timeout()),
        };
        let compression = match headers.get(ENCODING) {
            Some(encoding) if encoding == "identity" => Compression::Identity,
            _ => Compression::Other,
        };
        let (deadline, state) = match deadline {
            Ok(deadline) => {
                let body = request.into_body();
                (deadline, CallState::Reading { body, buffer: BodyBuffer::default() })
            }
            Err(failure) => {
                let response = Some(self.shared.finish(Err(failure), started));
                (None, CallState::Done { response })
            }
        };
        let shared = Arc::clone(&self.shared);
        RlsFuture {
            state,
            call: Some(Call { shared, started, compression, deadline, timer: None }),
        }
    }
}

/// The response to a request that is not a gRPC call.
#[inline]
fn reject_early<B>(request: &Request<B>) -> Option<Response<RlsBody>> {
    if !is_call(request.headers().get(CONTENT_TYPE)) {
        let text = "this is a gRPC service: the content type must be application/grpc\n";
        return Some(reject(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    if request.version() < Version::HTTP_2 {
        let text = "gRPC needs HTTP/2\n";
        return Some(reject(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text));
    }
    if request.method() != Method::POST {
        return Some(reject(StatusCode::METHOD_NOT_ALLOWED, "gRPC calls are sent by POST\n"));
    }
    None
}

/// Whether the content type is that of gRPC with protobuf messages.
#[inline]
fn is_call(content_type: Option<&HeaderValue>) -> bool {
    let Some(content_type) = content_type else { return false };
    let content_type = content_type.as_bytes();
    // Nearly all clients send exactly this.
    if content_type == b"application/grpc" {
        return true;
    }
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    let kind = content_type.get(..end).unwrap_or_default().trim_ascii();
    kind.eq_ignore_ascii_case(b"application/grpc")
        || kind.eq_ignore_ascii_case(b"application/grpc+proto")
}

/// How long a client may take to send the message of a call that has no timeout.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A call of `ShouldRateLimit` until its end.
struct Call<S, C> {
    shared: Arc<Shared<S, C>>,
    started: Timestamp,
    compression: Compression,
    /// The client's timeout.
    deadline: Option<Duration>,
    /// Created only if the call has to wait.
    timer: Option<Pin<Box<Sleep>>>,
}

type DecideFuture = Pin<Box<dyn Future<Output = CallResult<Bytes>> + Send>>;
type TonicFuture =
    Pin<Box<dyn Future<Output = Result<Response<tonic::body::Body>, Infallible>> + Send>>;

pin_project! {
    /// The response to come. Dropping it cancels the call.
    pub struct RlsFuture<S, C, B> {
        #[pin]
        state: CallState<B>,
        call: Option<Call<S, C>>,
    }
}

pin_project! {
    #[project = CallStateProjection]
    enum CallState<B> {
        Reading { #[pin] body: B, buffer: BodyBuffer },
        Deciding { result: DecideFuture },
        Tonic { response: TonicFuture },
        Done { response: Option<Response<RlsBody>> },
    }
}

impl<S, C> Call<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Decides a call whose body is complete: at once on the store in memory, else with a future.
    #[inline]
    fn decide(&self, body: Bytes) -> Result<CallResult<Bytes>, DecideFuture> {
        if let Some(engine) = self.shared.engine.local() {
            let mut request = RateLimitRequest::default();
            let decoded = self.shared.decode(&body, self.compression, &mut request);
            return Ok(decoded.and_then(|()| self.shared.decide_now(&engine, &request, encode)));
        }
        let (shared, compression) = (Arc::clone(&self.shared), self.compression);
        Err(Box::pin(async move {
            let mut request = RateLimitRequest::default();
            shared.decode(&body, compression, &mut request)?;
            shared.decide(&request, encode).await
        }))
    }

    /// Pending until the deadline, if there is one. A body that does not arrive has one in any case.
    fn poll_deadline(
        &mut self,
        is_reading: bool,
        context: &mut Context<'_>,
    ) -> Poll<CallResult<Bytes>> {
        let body = is_reading.then_some(BODY_TIMEOUT);
        let Some(deadline) = self.deadline.into_iter().chain(body).min() else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(deadline)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(Failure::deadline_exceeded()))
    }
}

/// Reads the body; ready with all of it or an error.
#[inline]
fn poll_body<B: Body<Data = Bytes>>(
    mut body: Pin<&mut B>,
    buffer: &mut BodyBuffer,
    max: usize,
    context: &mut Context<'_>,
) -> Poll<Result<Bytes, Failure>> {
    loop {
        match ready!(body.as_mut().poll_frame(context)) {
            Some(Ok(piece)) => {
                if let Ok(piece) = piece.into_data()
                    && let Err(error) = buffer.push(piece, max)
                {
                    return Poll::Ready(Err(error.into()));
                }
            }
            Some(Err(_)) => return Poll::Ready(Err(Failure::body_aborted())),
            None => return Poll::Ready(Ok(buffer.finish())),
        }
        if body.is_end_stream() {
            return Poll::Ready(Ok(buffer.finish()));
        }
    }
}

impl<S, C, B> Future for RlsFuture<S, C, B>
where
    S: CounterStore,
    C: Clock,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<RlsBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = loop {
            let call = match this.state.as_mut().project() {
                CallStateProjection::Done { response } => {
                    let response = response.take();
                    let response = response.expect("a future is not polled after its end");
                    return Poll::Ready(Ok(response));
                }
                CallStateProjection::Tonic { response } => {
                    let Ok(response) = ready!(response.as_mut().poll(context));
                    return Poll::Ready(Ok(response.map(RlsBody::tonic)));
                }
                _ => this.call.as_mut().expect("a call is present until its end"),
            };
            let result = match this.state.as_mut().project() {
                CallStateProjection::Reading { body, buffer } => {
                    let max = call.shared.settings.message_bytes_max;
                    match poll_body(body, buffer, max, context) {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(Err(failure)) => Poll::Ready(Err(failure)),
                        Poll::Ready(Ok(body)) => match call.decide(body) {
                            Ok(result) => Poll::Ready(result),
                            Err(result) => {
                                // Set for the body, not for the deadline.
                                if call.deadline.is_none_or(|deadline| deadline > BODY_TIMEOUT) {
                                    call.timer = None;
                                }
                                this.state.set(CallState::Deciding { result });
                                continue;
                            }
                        },
                    }
                }
                CallStateProjection::Deciding { result } => result.as_mut().poll(context),
                CallStateProjection::Tonic { .. } | CallStateProjection::Done { .. } => {
                    Poll::Pending
                }
            };
            match result {
                Poll::Ready(result) => break result,
                Poll::Pending => {
                    let is_reading = matches!(*this.state, CallState::Reading { .. });
                    break ready!(call.poll_deadline(is_reading, context));
                }
            }
        };
        let call = this.call.take().expect("a call is present until its end");
        // The rest of the body, if any, is dropped.
        this.state.set(CallState::Done { response: None });
        Poll::Ready(Ok(call.shared.finish(result, call.started)))
    }
}

impl<S, C, B> fmt::Debug for RlsFuture<S, C, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            CallState::Reading { .. } => "reading",
            CallState::Deciding { .. } => "deciding",
            CallState::Tonic { .. } => "tonic",
            CallState::Done { .. } => "done",
        };
        f.debug_struct("RlsFuture").field("state", &state).finish_non_exhaustive()
    }
}
