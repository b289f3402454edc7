//! The door as a service: one call in, one answer out.

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
use tidegate_engine::{
    Clock, CounterStore, Engine, LocalEngine, MemoryStore, SystemClock, Timestamp, Verdict,
};
use tokio::time::{Sleep, sleep};
use tonic::service::Routes;
use tower_service::Service as _;

use super::answer::{Answer, Code};
use super::asked::{Asked, OwnLimits, RefusedHits};
use super::body::RlsBody;
use super::decode::decode;
use super::encode::encode;
use super::failure::{Failure, GRPC, refuse};
use super::frame::{self, Compression, Gathered};
use super::health::HealthHandle;
use super::json;
use super::routes::routes;
use super::settings::RlsSettings;
use tidegate_answers::grpc::timeout;
use tidegate_metrics::{Answered, Meter};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Says whether rules were loaded, also those of no domain.
pub type HasRules = Arc<dyn Fn() -> bool + Send + Sync>;

/// Envoy's rate limit service. Clones are one door.
pub struct Rls<S = MemoryStore, C = SystemClock> {
    shared: Arc<Shared<S, C>>,
}

struct Shared<S, C> {
    engine: Arc<Engine<S, C>>,
    settings: RlsSettings,
    meter: Arc<Meter>,
    routes: Routes,
    /// Calls whose answer the shadow mode of the whole service changed.
    shadowed: AtomicU64,
    has_rules: Option<HasRules>,
}

impl<S, C> Rls<S, C> {
    /// A door to the engine. Every call of its one method is counted by the meter.
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

    /// The same door that fails calls while there are no rules, where errors
    /// are those of envoyproxy/ratelimit.
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

    /// How many requests [`RlsSettings::shadow`] let pass that were over their limit.
    pub fn shadowed(&self) -> u64 {
        self.shared.shadowed.load(Relaxed)
    }
}

impl<S, C> Rls<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Answers the body of a request to upstream's `/json`: a
    /// `RateLimitRequest` in JSON. Counted by nobody: that is the work of the
    /// door whose path it is.
    pub async fn answer_json(&self, body: &[u8]) -> Response<Full<Bytes>> {
        let shared = &*self.shared;
        let asked = match json::read(body, shared.settings.message_bytes_max) {
            Ok(asked) => asked,
            Err(error) => return json::failed(&error, &shared.settings),
        };
        match shared.answer(&asked.asked(), json::write).await {
            Ok((answered, (code, answer))) => json::answered(answered, code, answer),
            Err(failure) => json::failed(&failure.message, &shared.settings),
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

/// How a call was answered, and with what.
type Told<R> = Result<(Answered, R), Failure>;

impl<S, C> Shared<S, C>
where
    S: CounterStore,
    C: Clock,
{
    #[inline]
    fn examine(&self, asked: &Asked<'_>) -> Result<OwnLimits, Failure> {
        let upstream = self.settings.upstream_errors;
        let refused_hits = if upstream { RefusedHits::Count } else { RefusedHits::Drop };
        asked.examine(refused_hits).map_err(|error| Failure::of_request(error, upstream))
    }

    /// Answers without waiting.
    #[inline]
    fn answer_now<R>(
        &self,
        engine: &LocalEngine<'_, S, C>,
        asked: &Asked<'_>,
        tell: impl FnOnce(&Answer<'_>) -> R,
    ) -> Told<R> {
        let own = self.examine(asked)?;
        let descriptors = asked.descriptors(&own);
        let verdict = engine.check_now(&asked.request(&descriptors));
        self.conclude(&verdict, asked, &own, tell)
    }

    async fn answer<R>(&self, asked: &Asked<'_>, tell: impl FnOnce(&Answer<'_>) -> R) -> Told<R> {
        let own = self.examine(asked)?;
        let descriptors = asked.descriptors(&own);
        let verdict = self.engine.check(&asked.request(&descriptors)).await;
        self.conclude(&verdict, asked, &own, tell)
    }

    #[inline]
    fn conclude<R>(
        &self,
        verdict: &Verdict,
        asked: &Asked<'_>,
        own: &OwnLimits,
        tell: impl FnOnce(&Answer<'_>) -> R,
    ) -> Told<R> {
        if !verdict.domain_is_known() && self.lacks_rules() {
            return Err(Failure::no_rules());
        }
        let undecided = verdict.undecided();
        if let Some(undecided) = undecided.filter(|_| self.settings.upstream_errors) {
            return Err(Failure::of_undecided(undecided));
        }
        let answer = Answer::of(verdict, asked, own, &self.settings);
        if answer.shadowed {
            self.shadowed.fetch_add(1, Relaxed);
        }
        let answered = match answer.overall {
            _ if undecided.is_some() => Answered::Undecided,
            Code::OverLimit => Answered::Refused,
            Code::Ok | Code::Unknown => Answered::Admitted,
        };
        Ok((answered, tell(&answer)))
    }

    /// Whether there are no rules where that is an error.
    #[cold]
    fn lacks_rules(&self) -> bool {
        self.settings.upstream_errors && self.has_rules.as_ref().is_some_and(|has| !has())
    }

    /// Reads the message of a call's body.
    #[inline]
    fn read<'b>(
        &self,
        body: &'b [u8],
        compression: Compression,
        asked: &mut Asked<'b>,
    ) -> Result<(), Failure> {
        let message = frame::message(body, compression, self.settings.message_bytes_max)?;
        Ok(decode(message, asked)?)
    }

    /// Counts a call and makes its answer.
    #[inline]
    fn finish(&self, told: Told<Bytes>, started: Timestamp) -> Response<RlsBody> {
        let (answered, response) = match told {
            Ok((answered, frame)) => {
                let mut response = Response::new(RlsBody::message(frame));
                *response.headers_mut() = HeaderMap::with_capacity(1);
                response.headers_mut().insert(CONTENT_TYPE, GRPC);
                (answered, response)
            }
            Err(failure) => (failure.answered, failure.response()),
        };
        let took = self.engine.clock().now().since(started);
        self.meter.count(answered, took.into());
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
        let stage = match refuse_early(&request) {
            Some(response) => Stage::Done { response: Some(response) },
            None if request.uri().path() == SHOULD_RATE_LIMIT => return self.limit(request),
            None => {
                let answer = self.shared.routes.clone().call(request);
                Stage::Served { answer: Box::pin(answer) }
            }
        };
        RlsFuture { stage, call: None }
    }
}

impl<S, C> Rls<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Begins a call of the one method.
    #[inline]
    fn limit<B>(&self, request: Request<B>) -> RlsFuture<S, C, B> {
        let started = self.shared.engine.clock().now();
        let headers = request.headers();
        let deadline = match headers.get(timeout::FIELD).map(timeout::parse) {
            None => Ok(None),
            // There is no time to decide: nothing must be charged either.
            Some(Some(Duration::ZERO)) => Err(Failure::late()),
            Some(Some(deadline)) => Ok(Some(deadline)),
            Some(None) => Err(Failure::bad_timeout()),
        };
        let compression = match headers.get(ENCODING) {
            Some(encoding) if encoding == "identity" => Compression::Identity,
            _ => Compression::Other,
        };
        let (deadline, stage) = match deadline {
            Ok(deadline) => {
                let body = request.into_body();
                (deadline, Stage::Reading { body, gathered: Gathered::default() })
            }
            Err(failure) => {
                let response = Some(self.shared.finish(Err(failure), started));
                (None, Stage::Done { response })
            }
        };
        let shared = Arc::clone(&self.shared);
        RlsFuture {
            stage,
            call: Some(Call { shared, started, compression, deadline, timer: None }),
        }
    }
}

/// The answer to a request that is no gRPC call.
#[inline]
fn refuse_early<B>(request: &Request<B>) -> Option<Response<RlsBody>> {
    if !is_call(request.headers().get(CONTENT_TYPE)) {
        let text = "this is a gRPC service: the content type must be application/grpc\n";
        return Some(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    if request.version() < Version::HTTP_2 {
        let text = "gRPC needs HTTP/2\n";
        return Some(refuse(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text));
    }
    if request.method() != Method::POST {
        return Some(refuse(StatusCode::METHOD_NOT_ALLOWED, "gRPC calls are sent by POST\n"));
    }
    None
}

/// Whether the content type is that of gRPC with protobuf messages.
#[inline]
fn is_call(content_type: Option<&HeaderValue>) -> bool {
    let Some(content_type) = content_type else { return false };
    let content_type = content_type.as_bytes();
    // What nearly everybody sends.
    if content_type == b"application/grpc" {
        return true;
    }
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    let kind = content_type.get(..end).unwrap_or_default().trim_ascii();
    kind.eq_ignore_ascii_case(b"application/grpc")
        || kind.eq_ignore_ascii_case(b"application/grpc+proto")
}

/// What a call of the one method needs until its end.
struct Call<S, C> {
    shared: Arc<Shared<S, C>>,
    started: Timestamp,
    compression: Compression,
    /// The time that the client gave.
    deadline: Option<Duration>,
    /// Made only when a call has to wait.
    timer: Option<Pin<Box<Sleep>>>,
}

type Replying = Pin<Box<dyn Future<Output = Told<Bytes>> + Send>>;
type Serving =
    Pin<Box<dyn Future<Output = Result<Response<tonic::body::Body>, Infallible>> + Send>>;

pin_project! {
    /// The answer to come. Dropping it gives the call up.
    pub struct RlsFuture<S, C, B> {
        #[pin]
        stage: Stage<B>,
        call: Option<Call<S, C>>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<B> {
        Reading { #[pin] body: B, gathered: Gathered },
        Replying { reply: Replying },
        Served { answer: Serving },
        Done { response: Option<Response<RlsBody>> },
    }
}

impl<S, C> Call<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Answers a call whose body has come; the future where it has to wait.
    #[inline]
    fn reply(&self, body: Bytes) -> Result<Told<Bytes>, Replying> {
        if let Some(engine) = self.shared.engine.local() {
            let mut asked = Asked::default();
            let read = self.shared.read(&body, self.compression, &mut asked);
            return Ok(read.and_then(|()| self.shared.answer_now(&engine, &asked, encode)));
        }
        let (shared, compression) = (Arc::clone(&self.shared), self.compression);
        Err(Box::pin(async move {
            let mut asked = Asked::default();
            shared.read(&body, compression, &mut asked)?;
            shared.answer(&asked, encode).await
        }))
    }

    /// Waits, unless the deadline is over.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<Told<Bytes>> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(deadline)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(Failure::late()))
    }
}

/// Reads on; ready with the whole body or an error.
#[inline]
fn read_on<B: Body<Data = Bytes>>(
    mut body: Pin<&mut B>,
    gathered: &mut Gathered,
    max: usize,
    context: &mut Context<'_>,
) -> Poll<Result<Bytes, Failure>> {
    loop {
        match ready!(body.as_mut().poll_frame(context)) {
            Some(Ok(piece)) => {
                if let Ok(piece) = piece.into_data()
                    && let Err(error) = gathered.push(piece, max)
                {
                    return Poll::Ready(Err(error.into()));
                }
            }
            Some(Err(_)) => return Poll::Ready(Err(Failure::broken_off())),
            None => return Poll::Ready(Ok(gathered.finish())),
        }
        if body.is_end_stream() {
            return Poll::Ready(Ok(gathered.finish()));
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
        let told = loop {
            let call = match this.stage.as_mut().project() {
                StageProjection::Done { response } => {
                    let response = response.take();
                    let response = response.expect("a future is not polled after its end");
                    return Poll::Ready(Ok(response));
                }
                StageProjection::Served { answer } => {
                    let Ok(response) = ready!(answer.as_mut().poll(context));
                    return Poll::Ready(Ok(response.map(RlsBody::served)));
                }
                _ => this.call.as_mut().expect("a call is there until its end"),
            };
            let told = match this.stage.as_mut().project() {
                StageProjection::Reading { body, gathered } => {
                    let max = call.shared.settings.message_bytes_max;
                    match read_on(body, gathered, max, context) {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(Err(failure)) => Poll::Ready(Err(failure)),
                        Poll::Ready(Ok(body)) => match call.reply(body) {
                            Ok(told) => Poll::Ready(told),
                            Err(reply) => {
                                this.stage.set(Stage::Replying { reply });
                                continue;
                            }
                        },
                    }
                }
                StageProjection::Replying { reply } => reply.as_mut().poll(context),
                StageProjection::Served { .. } | StageProjection::Done { .. } => Poll::Pending,
            };
            match told {
                Poll::Ready(told) => break told,
                Poll::Pending => break ready!(call.wait(context)),
            }
        };
        let call = this.call.take().expect("a call is there until its end");
        // Whatever still comes of the body is nobody's.
        this.stage.set(Stage::Done { response: None });
        Poll::Ready(Ok(call.shared.finish(told, call.started)))
    }
}

impl<S, C, B> fmt::Debug for RlsFuture<S, C, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Reading { .. } => "reading",
            Stage::Replying { .. } => "replying",
            Stage::Served { .. } => "served",
            Stage::Done { .. } => "done",
        };
        f.debug_struct("RlsFuture").field("stage", &stage).finish_non_exhaustive()
    }
}
