//! The door itself: one HTTP request in, one answer out.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::service::Service;
use serde::Serialize;
use tidegate_engine::{Clock, CounterStore, Engine, MemoryStore, SystemClock, Verb};
use tidegate_rules::closest;

use super::body::{self, Unread};
use super::complaint::Complaint;
use super::decode::{self, Asked, Question};
use super::encode::{self, Told};
use super::explain::explain;
use super::health::Health;
use super::openapi::OPENAPI;
use super::permits::{self, HeldSlots, Permits, Token};
use super::route::{self, Astray, ROUTES, Route};
use super::rules_view::{self, RulesView};
use super::settings::{HttpApiSettings, Verbs};
use crate::headers::Fields;
use crate::meter::{Answered, Meter};
use crate::notice::Notice;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// An answer of the door.
pub(super) type Answer = Response<Full<Bytes>>;

/// Answers what comes to `/json`, given the body.
pub type JsonHandler =
    Arc<dyn Fn(Bytes) -> Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>> + Send + Sync>;

/// What the door needs beside the engine.
#[derive(Clone)]
pub struct HttpApiParts {
    /// What the operator chose.
    pub settings: HttpApiSettings,
    /// Counts what is decided here, and what could not be read.
    pub meter: Arc<Meter>,
    /// What the process says of itself.
    pub health: Health,
    /// How the rules in place came to be.
    pub rules: Arc<dyn RulesView>,
    /// Who answers `/json`; without one there is no such route.
    pub json: Option<JsonHandler>,
}

/// Checks over HTTP with JSON. Clones are cheap and share everything.
pub struct HttpApi<S = MemoryStore, C = SystemClock> {
    shared: Arc<Shared<S, C>>,
}

struct Shared<S, C> {
    engine: Arc<Engine<S, C>>,
    parts: HttpApiParts,
    permits: Permits,
}

/// How one request was decided.
struct Decided {
    status: StatusCode,
    answered: Answered,
    fields: Fields,
}

/// An answer, and how to count it; what decides nothing is not counted.
type Counted = (Answer, Option<Answered>);

impl<S, C> HttpApi<S, C> {
    /// A door to this engine.
    pub fn new(engine: Arc<Engine<S, C>>, parts: HttpApiParts) -> Self {
        let permits = Permits::new(parts.settings.permits_max);
        HttpApi { shared: Arc::new(Shared { engine, parts, permits }) }
    }
}

impl<S, C> Shared<S, C>
where
    S: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    async fn answer<B: Body<Data = Bytes>>(&self, request: Request<B>) -> Answer {
        let began = self.engine.clock().now();
        let head = request.method() == Method::HEAD;
        let (answer, answered) = match self.respond(request).await {
            Ok(counted) => counted,
            Err(complaint) => (complaint.into_response(), Some(Answered::Invalid)),
        };
        if let Some(answered) = answered {
            let took = self.engine.clock().now().since(began);
            self.parts.meter.count(answered, took.into());
        }
        if head { without_body(answer) } else { answer }
    }

    async fn respond<B: Body<Data = Bytes>>(
        &self,
        request: Request<B>,
    ) -> Result<Counted, Complaint> {
        let (parts, body) = request.into_parts();
        let route = route::route(&parts.method, parts.uri.path())
            .map_err(|astray| lost(astray, &parts.method, parts.uri.path()))?;
        match route {
            Route::Json => self.delegate(body).await,
            Route::HealthCheck => Ok((self.health_check(), None)),
            Route::Live => Ok((self.live(), None)),
            Route::Ready => Ok((self.ready(), None)),
            Route::Rules => {
                let status = self.parts.rules.status();
                let body = rules_view::write(&self.engine.snapshot(), &status);
                Ok((uncached(json(StatusCode::OK, body)), None))
            }
            Route::OpenApi => Ok((json(StatusCode::OK, OPENAPI), None)),
            Route::Apply(verb) => {
                self.permit_verb(verb)?;
                let refusal = refusal_status(verb, parts.uri.query())?;
                let body = self.read_json(&parts.headers, body).await?;
                self.apply(verb, refusal, &body).await
            }
            Route::Release => {
                let body = self.read_json(&parts.headers, body).await?;
                let asked = decode::release(&body)?;
                let now = self.engine.clock().now();
                let token = Token::parse(&asked.permit);
                let held = token.and_then(|token| self.permits.take(token, now));
                let body = if held.is_some() { RELEASED } else { NOT_RELEASED };
                Ok((json(StatusCode::OK, body), Some(Answered::Admitted)))
            }
            Route::Explain => {
                let body = self.read_json(&parts.headers, body).await?;
                let asked = decode::one(&body)?;
                let entries = asked.entries();
                let descriptors = asked.descriptors(&entries);
                let explained = explain(&self.engine, &asked.request(&descriptors))?;
                Ok((json(StatusCode::OK, explained), None))
            }
        }
    }

    /// Decides one request or a batch.
    async fn apply(
        &self,
        verb: Verb,
        refusal: RefusalStatus,
        body: &[u8],
    ) -> Result<Counted, Complaint> {
        let mut out = Vec::new();
        match decode::question(body, self.parts.settings.batch_max)? {
            Question::One(asked) => {
                let decided = self.decide(verb, &asked, Telling::Single, &mut out).await;
                let status = match refusal {
                    RefusalStatus::AsDecided => decided.status,
                    RefusalStatus::AlwaysOk => StatusCode::OK,
                };
                let mut answer = json(status, out);
                decided.fields.add_to(answer.headers_mut());
                Ok((answer, Some(decided.answered)))
            }
            Question::Batch(all) => {
                let mut answered = Answered::Admitted;
                out.extend_from_slice(b"{\"answers\":[");
                for (place, asked) in all.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    let decided = self.decide(verb, asked, Telling::Batch, &mut out).await;
                    answered = graver(answered, decided.answered);
                }
                out.extend_from_slice(b"]}");
                Ok((json(StatusCode::OK, out), Some(answered)))
            }
        }
    }

    /// Decides one request, and writes its answer.
    async fn decide(
        &self,
        verb: Verb,
        asked: &Asked<'_>,
        telling: Telling,
        out: &mut Vec<u8>,
    ) -> Decided {
        let entries = asked.entries();
        let descriptors = asked.descriptors(&entries);
        let request = asked.request(&descriptors);
        let (verdict, held) = match verb {
            Verb::Check => {
                let (verdict, permit) = self.engine.admit(&request).await;
                (verdict, HeldSlots::of(permit))
            }
            _ => (self.engine.apply(verb, &request).await, None),
        };
        let now = self.engine.clock().now();
        // A refusal holds nothing: what it took is given back here.
        let held = held.filter(|_| verdict.is_admitted());
        let kept = held.map(|held| self.permits.keep(held, permits::lasting(&verdict), now));
        let notice = Notice::of(&verdict);
        let told = Told {
            domain: &asked.domain,
            notice: &notice,
            shadow: self.parts.settings.shadow,
            permit: kept.transpose(),
        };
        if verb == Verb::Reset {
            encode::write_reset(&told, out);
        } else {
            told.write(out);
        }
        let undecided = told.undecided().is_some();
        let status = match verb {
            // What could not be decided was not done, whatever the failure mode admits.
            Verb::Refund | Verb::Reset if undecided => StatusCode::SERVICE_UNAVAILABLE,
            Verb::Refund | Verb::Reset => StatusCode::OK,
            _ if told.is_admitted() => StatusCode::OK,
            _ if undecided => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::TOO_MANY_REQUESTS,
        };
        let answered = match undecided {
            true => Answered::Undecided,
            false if told.is_admitted() => Answered::Admitted,
            false => Answered::Refused,
        };
        let tells = matches!(telling, Telling::Single)
            && matches!(verb, Verb::Check | Verb::Peek)
            && told.is_admitted() != notice.is_refusal();
        let fields = tells.then(|| self.parts.settings.headers.fields(&notice, now));
        Decided { status, answered, fields: fields.unwrap_or_default() }
    }

    /// Hands `/json` to whoever answers it.
    async fn delegate<B: Body<Data = Bytes>>(&self, body: B) -> Result<Counted, Complaint> {
        let Some(handler) = &self.parts.json else {
            let complaint = Complaint::new(StatusCode::NOT_FOUND, "`/json` is not served here");
            return Err(complaint.hint("`POST /v1/check` decides requests".to_owned()));
        };
        let body = self.read(body).await?;
        let answer = handler(body).await;
        let answered = match answer.status() {
            StatusCode::TOO_MANY_REQUESTS => Answered::Refused,
            StatusCode::SERVICE_UNAVAILABLE => Answered::Undecided,
            status if status.is_success() => Answered::Admitted,
            status if status.is_client_error() => Answered::Invalid,
            _ => Answered::Failed,
        };
        Ok((answer, Some(answered)))
    }

    fn health_check(&self) -> Answer {
        let (status, body) = if self.parts.health.is_ready() {
            (StatusCode::OK, "OK")
        } else {
            (StatusCode::INTERNAL_SERVER_ERROR, "")
        };
        uncached(with_type(TEXT, status, body))
    }

    fn live(&self) -> Answer {
        #[derive(Serialize)]
        struct Live {
            live: bool,
            reasons: Vec<String>,
        }
        let reasons: Vec<String> = self.parts.health.broken().into_iter().collect();
        let live = reasons.is_empty();
        uncached(json(available(live), to_json(&Live { live, reasons })))
    }

    fn ready(&self) -> Answer {
        #[derive(Serialize)]
        struct Ready {
            ready: bool,
            reasons: Vec<String>,
        }
        let reasons = self.parts.health.in_the_way();
        let ready = reasons.is_empty();
        uncached(json(available(ready), to_json(&Ready { ready, reasons })))
    }

    fn permit_verb(&self, verb: Verb) -> Result<(), Complaint> {
        let charging_only = self.parts.settings.verbs == Verbs::ChargingOnly;
        if charging_only && matches!(verb, Verb::Refund | Verb::Reset) {
            let detail = "giving back and forgetting what was counted is switched off here";
            return Err(Complaint::new(StatusCode::FORBIDDEN, detail)
                .hint("whoever runs this service can switch it on".to_owned()));
        }
        Ok(())
    }

    async fn read_json<B: Body<Data = Bytes>>(
        &self,
        headers: &HeaderMap,
        body: B,
    ) -> Result<Bytes, Complaint> {
        if let Some(kind) = headers.get(CONTENT_TYPE)
            && !is_json(kind.as_bytes())
        {
            let kind = String::from_utf8_lossy(kind.as_bytes());
            let kind: String = kind.chars().take(64).collect();
            let detail = format!("the body is said to be `{kind}`, not JSON");
            return Err(Complaint::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).hint(
                "send `content-type: application/json`; curl does with `--json`".to_owned(),
            ));
        }
        self.read(body).await
    }

    async fn read<B: Body<Data = Bytes>>(&self, body: B) -> Result<Bytes, Complaint> {
        let bytes_max = self.parts.settings.body_bytes_max;
        body::read(body, bytes_max).await.map_err(|unread| match unread {
            Unread::TooLarge => Complaint::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {bytes_max} bytes"),
            )
            .hint("send several smaller batches".to_owned()),
            Unread::Broken => Complaint::bad_request("the body broke off before its end"),
        })
    }
}

const RELEASED: &str = "{\"released\":true}";
const NOT_RELEASED: &str = "{\"released\":false}";

/// Whether an answer stands for itself or among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    Single,
    Batch,
}

/// With which status a refusal is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalStatus {
    AsDecided,
    AlwaysOk,
}

fn refusal_status(verb: Verb, query: Option<&str>) -> Result<RefusalStatus, Complaint> {
    let mut status = RefusalStatus::AsDecided;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        if pair != "status=200" || !matches!(verb, Verb::Check | Verb::Peek) {
            let shown: String = pair.chars().take(64).collect();
            let complaint = Complaint::bad_request(format!("there is no parameter `{shown}`"));
            let hint = "`/v1/check` and `/v1/peek` have `status=200`, and there is no other";
            return Err(complaint.hint(hint.to_owned()));
        }
        status = RefusalStatus::AlwaysOk;
    }
    Ok(status)
}

/// What to say of a request that leads nowhere.
fn lost(astray: Astray, method: &Method, path: &str) -> Complaint {
    match astray {
        Astray::NotFound => {
            let shown: String = path.chars().take(64).collect();
            let complaint =
                Complaint::new(StatusCode::NOT_FOUND, format!("there is nothing at `{shown}`"));
            let meant = closest(path, ROUTES.iter().map(|(path, ..)| *path));
            complaint.hint(match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "`/v1/openapi.json` says what there is".to_owned(),
            })
        }
        Astray::MethodNotAllowed(methods) => {
            let allow = methods.allow();
            let shown: String = method.as_str().chars().take(16).collect();
            let detail = format!("`{path}` does not take {shown}");
            Complaint::new(StatusCode::METHOD_NOT_ALLOWED, detail)
                .hint(format!("use {allow}"))
                .allowing(allow)
        }
    }
}

/// What to count of two answers in one batch.
const fn graver(one: Answered, other: Answered) -> Answered {
    match (one, other) {
        (Answered::Undecided, _) | (_, Answered::Undecided) => Answered::Undecided,
        (Answered::Refused, _) | (_, Answered::Refused) => Answered::Refused,
        _ => one,
    }
}

/// `application/json`, `text/json`, or any type that ends in `+json`; what follows is not looked at.
fn is_json(kind: &[u8]) -> bool {
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let suffix = essence.len().checked_sub(5).and_then(|at| essence.get(at..));
    essence.eq_ignore_ascii_case(b"application/json")
        || essence.eq_ignore_ascii_case(b"text/json")
        || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json"))
}

const fn available(so: bool) -> StatusCode {
    if so { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Strings and numbers always serialize.
    serde_json::to_vec(value).unwrap_or_default()
}

fn json(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    with_type(JSON, status, body)
}

fn with_type(kind: HeaderValue, status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn uncached(mut answer: Answer) -> Answer {
    answer.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    answer
}

/// The same answer without its body, whose length it still tells.
fn without_body(mut answer: Answer) -> Answer {
    let length = std::mem::take(answer.body_mut()).size_hint().exact().unwrap_or_default();
    answer.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    answer
}

impl<S, C, B> Service<Request<B>> for HttpApi<S, C>
where
    S: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = HttpApiFuture;

    fn call(&self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        HttpApiFuture(Box::pin(async move { shared.answer(request).await }))
    }
}

/// An answer to come.
pub struct HttpApiFuture(Pin<Box<dyn Future<Output = Answer> + Send>>);

impl Future for HttpApiFuture {
    type Output = Result<Response<Full<Bytes>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context).map(Ok)
    }
}

impl fmt::Debug for HttpApiFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpApiFuture")
    }
}

impl<S, C> Clone for HttpApi<S, C> {
    fn clone(&self) -> Self {
        HttpApi { shared: Arc::clone(&self.shared) }
    }
}

impl<S, C> fmt::Debug for HttpApi<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpApi")
            .field("engine", &self.shared.engine)
            .field("parts", &self.shared.parts)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HttpApiParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpApiParts")
            .field("settings", &self.settings)
            .field("meter", &self.meter)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_content_type() {
        for kind in ["application/json", "Application/JSON; charset=utf-8", "text/json", "a/b+json"]
        {
            assert!(is_json(kind.as_bytes()), "{kind}");
        }
        for kind in ["", "json", "application/jsonx", "application/x-www-form-urlencoded"] {
            assert!(!is_json(kind.as_bytes()), "{kind}");
        }
    }

    #[test]
    fn a_batch_is_counted_as_its_gravest_answer() {
        let (admitted, refused) = (Answered::Admitted, Answered::Refused);
        assert_eq!(graver(admitted, refused), refused);
        assert_eq!(graver(refused, admitted), refused);
        assert_eq!(graver(refused, Answered::Undecided), Answered::Undecided);
        assert_eq!(graver(admitted, admitted), admitted);
    }
}
