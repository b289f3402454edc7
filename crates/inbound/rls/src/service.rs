//! The service: reads the body of a call, waits for the answer or the deadline, and counts the call.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::Full;
use pin_project_lite::pin_project;
use tidegate_engine::{
    Clock, CounterStore, Engine, LimiterStage, MemoryStore, SystemClock, Timestamp, contain,
};
use tokio::time::{Sleep, sleep};
use tonic::service::Routes;
use tower_service::Service as _;

use tidegate_access::{BodyError, BodyLimits, BodyReader, Role};
use tidegate_answers::grpc::timeout;
use tidegate_macros::{clone_fields, debug_fields};
use tidegate_metrics::{AnswerKind, Meter};

use crate::body::RlsBody;
use crate::decide::ContainedResult;
use crate::decode::frame::{Compression, FrameError, PREFIX_LEN};
use crate::decode::json as json_request;
use crate::encode::{ADMITTED, encode, json as json_answer};
use crate::failure::{Failure, GRPC, reject};
use crate::health::HealthHandle;
use crate::routes::routes;
use crate::settings::RlsSettings;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Returns whether rules were loaded, even if they have no domain.
pub type HasRules = Arc<dyn Fn() -> bool + Send + Sync>;

/// Envoy's rate limit service. Clones share everything.
pub struct Rls<S = MemoryStore, C = SystemClock> {
    shared: Arc<RlsState<S, C>>,
}

pub(crate) struct RlsState<S, C> {
    pub(crate) engine: Arc<Engine<S, C>>,
    pub(crate) settings: RlsSettings,
    meter: Arc<Meter>,
    /// Counts health checks.
    health_meter: Arc<Meter>,
    routes: Routes,
    /// Calls whose answer the shadow mode of the whole service changed.
    pub(crate) shadowed: AtomicU64,
    /// Calls that upstream counts as errors of the service.
    pub(crate) service_errors: AtomicU64,
    pub(crate) has_rules: OnceLock<HasRules>,
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
        let (shadowed, service_errors, has_rules) = Default::default();
        let health_meter = Arc::new(Meter::new("grpc_health"));
        Rls {
            shared: Arc::new(RlsState {
                engine,
                settings,
                meter,
                health_meter,
                routes,
                shadowed,
                service_errors,
                has_rules,
            }),
        }
    }

    /// Fails calls while there are no rules, if [`RlsSettings::upstream_errors`] is set.
    #[must_use]
    pub fn needing_rules(self, has_rules: HasRules) -> Self {
        // The first answer stays: the door is asked for it once, when it is built.
        let _ = self.shared.has_rules.set(has_rules);
        self
    }

    /// How many calls failed without a domain, without descriptors or without rules: upstream's `service_error`.
    pub fn service_errors(&self) -> u64 {
        self.shared.service_errors.load(Relaxed)
    }

    /// Counts health checks.
    pub fn health_meter(&self) -> Arc<Meter> {
        Arc::clone(&self.shared.health_meter)
    }

    /// How many requests over their limit passed because of [`RlsSettings::shadow`].
    pub fn shadowed(&self) -> u64 {
        self.shared.shadowed.load(Relaxed)
    }
}

impl<S: CounterStore, C: Clock> Rls<S, C> {
    /// Answers a request to upstream's `/json`: a `RateLimitRequest` in JSON. Not counted: the door that serves the path
    /// does that.
    pub async fn answer_json(&self, body: &[u8]) -> Response<Full<Bytes>> {
        let shared = &*self.shared;
        let json = match json_request::parse(body, shared.settings.message_bytes_max) {
            Ok(json) => json,
            Err(error) => return json_answer::bad_request(&error, &shared.settings),
        };
        let request = json.request(shared.settings.descriptors_max);
        let decided = shared.decide(&request, json_answer::render).await;
        match decided.unwrap_or(Ok((AnswerKind::ErrorOpen, json_answer::ADMITTED))) {
            Ok((_, (code, answer))) => json_answer::response(code, answer),
            Err(failure) => json_answer::failure(&failure, &shared.settings),
        }
    }
}

clone_fields!([S, C] Rls<S, C> { shared });

debug_fields!([S, C] Rls<S, C> { settings = shared.settings });

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
                let is_check = request.uri().path() == HEALTH_CHECK;
                let checked =
                    is_check.then(|| (Arc::clone(&self.shared), self.shared.engine.clock().now()));
                let response = self.shared.routes.clone().call(request);
                let response = async {
                    let response = response.await.map(|response| response.map(RlsBody::tonic));
                    if let Some((shared, started)) = checked {
                        let took = shared.engine.clock().now().since(started);
                        shared.health_meter.count(AnswerKind::Admitted, took.into());
                    }
                    response
                };
                CallState::Boxed { response: Box::pin(response) }
            }
        };
        RlsFuture { state }
    }
}

impl<S: CounterStore, C: Clock> Rls<S, C> {
    /// Starts a call of `ShouldRateLimit`.
    #[inline]
    fn start_call<B: Body<Data = Bytes>>(&self, request: Request<B>) -> RlsFuture<S, C, B> {
        let started = self.shared.engine.clock().now();
        let headers = request.headers();
        let tokens = &self.shared.settings.tokens;
        let access = match tokens.is_empty() {
            true => Ok(()),
            false => tokens.authorize(headers, Role::Check, started).map(drop),
        };
        let deadline = match (access, headers.get(timeout::FIELD).map(timeout::parse)) {
            (Err(error), _) => Err(Failure::no_access(&error)),
            (Ok(()), None) => Ok(None),
            // No time to decide, so nothing must be charged either.
            (Ok(()), Some(Some(Duration::ZERO))) => Err(Failure::deadline_exceeded()),
            (Ok(()), Some(Some(deadline))) => Ok(Some(deadline)),
            (Ok(()), Some(None)) => Err(Failure::malformed_timeout()),
        };
        let compression = match headers.get(ENCODING) {
            Some(encoding) if encoding == "identity" => Compression::Identity,
            _ => Compression::Other,
        };
        let call = |deadline| {
            let shared = Arc::clone(&self.shared);
            Call { shared, started, compression, deadline, timer: None }
        };
        let state = match deadline {
            Ok(deadline) => {
                let reader = BodyReader::new(request.into_body());
                CallState::Reading { reader, call: Some(call(deadline)) }
            }
            Err(failure) => {
                CallState::Done { response: Some(call(None).finish(Some(Err(failure)))) }
            }
        };
        RlsFuture { state }
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

/// How long the message of a call may take to arrive, also when the client set no timeout.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A call of `ShouldRateLimit` until its end.
struct Call<S, C> {
    shared: Arc<RlsState<S, C>>,
    started: Timestamp,
    compression: Compression,
    /// The client's timeout.
    deadline: Option<Duration>,
    /// Created only if the call has to wait.
    timer: Option<Pin<Box<Sleep>>>,
}

type BoxedResponse = Pin<Box<dyn Future<Output = Result<Response<RlsBody>, Infallible>> + Send>>;

pin_project! {
    /// The response to come. Dropping it cancels the call.
    pub struct RlsFuture<S, C, B> {
        #[pin]
        state: CallState<S, C, B>,
    }
}

pin_project! {
    #[project = CallStateProjection]
    enum CallState<S, C, B> {
        Reading { #[pin] reader: BodyReader<B>, call: Option<Call<S, C>> },
        /// A call that awaits the store, and every method that tonic serves.
        Boxed { response: BoxedResponse },
        Done { response: Option<Response<RlsBody>> },
    }
}

impl<S: CounterStore, C: Clock> Call<S, C> {
    /// The largest body.
    fn body_limits(&self) -> BodyLimits {
        let bytes_max = PREFIX_LEN.saturating_add(self.shared.settings.message_bytes_max);
        BodyLimits { bytes_max, timeout: BODY_TIMEOUT }
    }

    /// Decides a call whose body is complete: at once on the store in memory, else with a future.
    #[inline]
    fn decide(self, body: Bytes) -> Result<Response<RlsBody>, BoxedResponse> {
        let Some(engine) = self.shared.engine.local() else {
            return Err(Box::pin(async move { Ok(self.decide_remotely(&body).await) }));
        };
        let mut request = self.shared.new_request();
        let result = match self.shared.decode(&body, self.compression, &mut request) {
            Some(Ok(())) => self.shared.decide_now(&engine, &request, encode),
            Some(Err(failure)) => Some(Err(failure)),
            None => None,
        };
        Ok(self.finish(result))
    }

    /// Decides a call and awaits the store, until the deadline.
    async fn decide_remotely(mut self, body: &[u8]) -> Response<RlsBody> {
        let (shared, compression) = (Arc::clone(&self.shared), self.compression);
        let mut result = pin!(async {
            let mut request = shared.new_request();
            match shared.decode(body, compression, &mut request)? {
                Ok(()) => shared.decide(&request, encode).await,
                Err(failure) => Some(Err(failure)),
            }
        });
        let result = poll_fn(|context| match result.as_mut().poll(context) {
            Poll::Pending => self.poll_deadline(context).map(|failure| Some(Err(failure))),
            result @ Poll::Ready(_) => result,
        });
        let result = result.await;
        self.finish(result)
    }

    /// Why the body of the call could not be read.
    fn body_failure(&self, error: BodyError) -> Failure {
        match error {
            BodyError::TooLarge => {
                FrameError::TooLong { max: self.shared.settings.message_bytes_max }.into()
            }
            BodyError::TooSlow => Failure::deadline_exceeded(),
            BodyError::Aborted => Failure::body_aborted(),
        }
    }

    /// Pending until the deadline, if there is one.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(deadline)));
        timer.as_mut().poll(context).map(|()| Failure::deadline_exceeded())
    }

    /// Counts the call and builds its response.
    #[inline]
    fn finish(self, result: ContainedResult<Bytes>) -> Response<RlsBody> {
        let (kind, response) = match result.unwrap_or(Ok((AnswerKind::ErrorOpen, ADMITTED))) {
            Ok((kind, frame)) => {
                let mut response = Response::new(RlsBody::message(frame));
                *response.headers_mut() = HeaderMap::with_capacity(1);
                response.headers_mut().insert(CONTENT_TYPE, GRPC);
                (kind, response)
            }
            Err(failure) => (failure.answer, failure.response()),
        };
        contain(LimiterStage::Record, || {
            let took = self.shared.engine.clock().now().since(self.started);
            self.shared.meter.count(kind, took.into());
        });
        response
    }
}

impl<S: CounterStore, C: Clock, B: Body<Data = Bytes>> Future for RlsFuture<S, C, B> {
    type Output = Result<Response<RlsBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let (body, call) = match state.as_mut().project() {
                CallStateProjection::Done { response } => {
                    let response = response.take();
                    return Poll::Ready(
                        Ok(response.expect("a future is not polled after its end")),
                    );
                }
                CallStateProjection::Boxed { response } => return response.as_mut().poll(context),
                CallStateProjection::Reading { reader, call } => {
                    let reading = call.as_mut().expect("a call is present until its body is read");
                    let body = match reader.poll(reading.body_limits(), context) {
                        Poll::Pending => Err(ready!(reading.poll_deadline(context))),
                        Poll::Ready(body) => body.map_err(|error| reading.body_failure(error)),
                    };
                    (body, call.take().expect("present above"))
                }
            };
            let response = match body {
                Err(failure) => call.finish(Some(Err(failure))),
                Ok(body) => match call.decide(body) {
                    Ok(response) => response,
                    Err(response) => {
                        state.set(CallState::Boxed { response });
                        continue;
                    }
                },
            };
            // The rest of the body, if any, is dropped.
            state.set(CallState::Done { response: None });
            return Poll::Ready(Ok(response));
        }
    }
}

impl<S, C, B> fmt::Debug for RlsFuture<S, C, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            CallState::Reading { .. } => "RlsFuture(reading)",
            CallState::Boxed { .. } => "RlsFuture(boxed)",
            CallState::Done { .. } => "RlsFuture(done)",
        })
    }
}
