//! The service: routes requests, and counts their answers.

mod future;

pub use future::HttpApiFuture;

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde_json::json;
use tidegate_engine::{
    Clock, CounterStore, Engine, LimiterStage, MemoryStore, SystemClock, Timestamp, contain,
};

use tidegate_access::{AccessError, BodyError, BodyLimits, RandomId, read_body};
use tidegate_macros::{clone_fields, debug_fields};
use tidegate_metrics::{AnswerKind, Meter};

use crate::decode;
use crate::decode::head::{expect_json, refusal_status, route_problem};
use crate::encode::response::{HttpResponse, json, text, to_json, uncached, without_body};
use crate::explain::explain;
use crate::health::Health;
use crate::openapi::OPENAPI;
use crate::permits::Permits;
use crate::problem::RequestProblem;
use crate::route::{self, Route};
use crate::rules_view::{self, RulesView};
use crate::settings::HttpApiSettings;
use crate::slices::Slices;

/// Answers the body of a request to `/json`.
pub type JsonHandler =
    Arc<dyn Fn(Bytes) -> Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>> + Send + Sync>;

/// The parts of the API beside the engine.
#[derive(Clone)]
pub struct HttpApiParts {
    /// The settings.
    pub settings: HttpApiSettings,
    /// Counts decisions and rejected requests.
    pub meter: Arc<Meter>,
    /// Liveness and readiness of the process.
    pub health: Health,
    /// The status of the rules in place.
    pub rules: RulesView,
    /// The handler of `/json`; without it there is no such route.
    pub json: Option<JsonHandler>,
}

/// Checks over HTTP with JSON. Clones are cheap and share everything.
pub struct HttpApi<S = MemoryStore, C = SystemClock> {
    shared: Arc<ApiState<S, C>>,
}

/// The state that all clones share.
pub(crate) struct ApiState<S, C> {
    pub(crate) engine: Arc<Engine<S, C>>,
    pub(crate) parts: HttpApiParts,
    pub(crate) permits: Permits,
    pub(crate) slices: Slices,
}

/// A response and how the meter counts it. Responses without a kind are not counted: they decide nothing.
pub(crate) struct CountedResponse {
    response: HttpResponse,
    kind: Option<AnswerKind>,
}

impl CountedResponse {
    pub(crate) const fn new(response: HttpResponse, kind: AnswerKind) -> Self {
        CountedResponse { response, kind: Some(kind) }
    }
}

impl From<HttpResponse> for CountedResponse {
    fn from(response: HttpResponse) -> Self {
        CountedResponse { response, kind: None }
    }
}

impl<S, C> HttpApi<S, C> {
    /// An API to this engine.
    pub fn new(engine: Arc<Engine<S, C>>, parts: HttpApiParts) -> Self {
        let permits = Permits::new(parts.settings.permits_max);
        let slices = Slices::new(parts.settings.slices_max);
        HttpApi { shared: Arc::new(ApiState { engine, parts, permits, slices }) }
    }
}

impl<S: CounterStore, C: Clock> ApiState<S, C> {
    async fn answer<B: Body<Data = Bytes>>(&self, request: Request<B>) -> HttpResponse {
        let began = self.engine.clock().now();
        let is_head = request.method() == Method::HEAD;
        let result = self.respond(request).await;
        let response = self.count(result, began);
        if is_head { without_body(response) } else { response }
    }

    /// Counts an answer and returns its response.
    fn count(
        &self,
        result: Result<CountedResponse, RequestProblem>,
        began: Timestamp,
    ) -> HttpResponse {
        let CountedResponse { response, kind } = result.unwrap_or_else(|problem| {
            CountedResponse::new(problem.into_response(), AnswerKind::Invalid)
        });
        if let Some(kind) = kind {
            contain(LimiterStage::Record, || {
                let took = self.engine.clock().now().since(began);
                self.parts.meter.count(kind, took.into());
            });
        }
        response
    }

    async fn respond<B: Body<Data = Bytes>>(
        &self,
        request: Request<B>,
    ) -> Result<CountedResponse, RequestProblem> {
        let (parts, body) = request.into_parts();
        let route = route::route(&parts.method, parts.uri.path())
            .map_err(|error| route_problem(error, &parts.method, parts.uri.path()))?;
        self.authorize(route, &parts.headers)?;
        let health = &self.parts.health;
        Ok(match route {
            Route::Json => return self.delegate(body).await,
            Route::HealthCheck => health_check(health.is_ready()).into(),
            Route::Live => health_state("live", &Vec::from_iter(health.broken())).into(),
            Route::Ready => health_state("ready", &health.unready_reasons()).into(),
            Route::Rules => {
                let status = (self.parts.rules)();
                let body = rules_view::write(&self.engine.snapshot(), &status);
                uncached(json(StatusCode::OK, body)).into()
            }
            Route::OpenApi => json(StatusCode::OK, OPENAPI).into(),
            Route::Apply(verb) => {
                let refusal = refusal_status(verb, parts.uri.query())?;
                let body = self.read_json(&parts.headers, body).await?;
                self.apply(verb, refusal, &body, HeaderMap::new()).await?
            }
            Route::Release => {
                let body = self.read_json(&parts.headers, body).await?;
                let token = RandomId::parse(&decode::release_body(&body)?.permit);
                let now = self.engine.clock().now();
                let held = token.and_then(|token| self.permits.release(token, now));
                let body = to_json(&json!({ "released": held.is_some() }));
                CountedResponse::new(json(StatusCode::OK, body), AnswerKind::Admitted)
            }
            Route::Slices => {
                let body = self.read_json(&parts.headers, body).await?;
                self.exchange(decode::slice_body(&body)?).await?
            }
            Route::Explain => {
                let body = self.read_json(&parts.headers, body).await?;
                let request = decode::one_request(&body)?;
                let entries = request.entries();
                let descriptors = request.engine_descriptors(&entries);
                let explanation = explain(&self.engine, &request.engine_request(&descriptors))?;
                json(StatusCode::OK, explanation).into()
            }
        })
    }

    /// Passes `/json` to its handler.
    async fn delegate<B: Body<Data = Bytes>>(
        &self,
        body: B,
    ) -> Result<CountedResponse, RequestProblem> {
        let Some(handler) = &self.parts.json else {
            let problem = RequestProblem::new(StatusCode::NOT_FOUND, "`/json` is not served here");
            return Err(problem.hint("`POST /v1/check` decides requests".to_owned()));
        };
        let body = self.read(body).await?;
        let response = handler(body).await;
        let kind = match response.status() {
            StatusCode::TOO_MANY_REQUESTS => AnswerKind::Refused,
            StatusCode::SERVICE_UNAVAILABLE => AnswerKind::Undecided,
            status if status.is_success() => AnswerKind::Admitted,
            status if status.is_client_error() => AnswerKind::Invalid,
            _ => AnswerKind::Failed,
        };
        Ok(CountedResponse::new(response, kind))
    }

    /// Whether a request has the access that its route needs.
    fn authorize(&self, route: Route, headers: &HeaderMap) -> Result<(), RequestProblem> {
        let Some(role) = route.role() else { return Ok(()) };
        let now = || self.engine.clock().now();
        self.parts.settings.access.authorize(headers, role, now).map_err(|error| {
            let hint = match &error {
                AccessError::ChangesOff => {
                    "set `http.tokens`, or let `http.listen` be a loopback address"
                }
                AccessError::Browser | AccessError::NoToken => "`http.tokens` lists the tokens",
                AccessError::Expired { .. } => "give it a later day in `http.tokens`",
                AccessError::NoRole { .. } => "add the role in `http.tokens`",
            };
            RequestProblem::new(error.status(), error.to_string()).hint(hint.to_owned())
        })
    }

    async fn read_json<B: Body<Data = Bytes>>(
        &self,
        headers: &HeaderMap,
        body: B,
    ) -> Result<Bytes, RequestProblem> {
        expect_json(headers)?;
        self.read(body).await
    }

    async fn read<B: Body<Data = Bytes>>(&self, body: B) -> Result<Bytes, RequestProblem> {
        let HttpApiSettings { body_bytes_max, body_timeout, .. } = self.parts.settings;
        let limits = BodyLimits { bytes_max: body_bytes_max, timeout: body_timeout };
        read_body(body, limits).await.map_err(|error| self.body_problem(error))
    }

    /// The problem of a body that cannot be read.
    #[cold]
    fn body_problem(&self, error: BodyError) -> RequestProblem {
        let bytes_max = self.parts.settings.body_bytes_max;
        match error {
            BodyError::TooLarge => RequestProblem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {bytes_max} bytes"),
            )
            .hint("send several smaller batches".to_owned()),
            BodyError::TooSlow => {
                RequestProblem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
            }
            BodyError::Aborted => RequestProblem::bad_request("the body ended early"),
        }
    }
}

/// The answer to `/healthcheck`, as envoyproxy/ratelimit has it.
fn health_check(ready: bool) -> HttpResponse {
    uncached(match ready {
        true => text(StatusCode::OK, "OK"),
        false => text(StatusCode::INTERNAL_SERVER_ERROR, ""),
    })
}

/// The answer to a health route: whether the state holds, and the reasons if not.
fn health_state(state: &str, reasons: &[String]) -> HttpResponse {
    let holds = reasons.is_empty();
    let status = if holds { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    uncached(json(status, to_json(&json!({ state: holds, "reasons": reasons }))))
}

clone_fields!([S, C] HttpApi<S, C> { shared });

debug_fields!([S, C] HttpApi<S, C> { engine = shared.engine, parts = shared.parts });

debug_fields!(HttpApiParts { settings, meter, health });
