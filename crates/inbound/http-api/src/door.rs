//! The door itself: one HTTP request in, one answer out.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde::Serialize;
use tidegate_engine::{
    Clock, CounterStore, Engine, MemoryStore, SystemClock, Tenure, Timestamp, Verb,
};

use super::answer::{Answer, available, json, json_with, text, to_json, uncached, without_body};
use super::body::{Reading, Unread};
use super::complaint::Complaint;
use super::decode::{self, Asked, Question};
use super::encode::Told;
use super::explain::explain;
use super::head::{RefusalStatus, expect_json, lost, refusal_status};
use super::health::Health;
use super::openapi::OPENAPI;
use super::permits::{self, Permits, Token};
use super::route::{self, Route};
use super::rules_view::{self, RulesView};
use super::settings::{HttpApiSettings, Verbs};
use tidegate_admission::HeldSlots;
use tidegate_answers::Notice;
use tidegate_metrics::{Answered, Meter};

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
    pub(super) shared: Arc<Shared<S, C>>,
}

pub(super) struct Shared<S, C> {
    pub(super) engine: Arc<Engine<S, C>>,
    pub(super) parts: HttpApiParts,
    permits: Permits,
}

/// How one request was decided.
struct Decided {
    status: StatusCode,
    answered: Answered,
}

/// An answer, and how to count it; what decides nothing is not counted.
pub(super) type Counted = (Answer, Option<Answered>);

impl<S, C> HttpApi<S, C> {
    /// A door to this engine.
    pub fn new(engine: Arc<Engine<S, C>>, parts: HttpApiParts) -> Self {
        let permits = Permits::new(parts.settings.permits_max);
        HttpApi { shared: Arc::new(Shared { engine, parts, permits }) }
    }
}

impl<S, C> Shared<S, C>
where
    S: CounterStore,
    C: Clock,
{
    pub(super) async fn answer<B: Body<Data = Bytes>>(&self, request: Request<B>) -> Answer {
        let began = self.engine.clock().now();
        let head = request.method() == Method::HEAD;
        let responded = self.respond(request).await;
        let answer = self.count(responded, began);
        if head { without_body(answer) } else { answer }
    }

    /// Counts an answer that was begun at an instant.
    pub(super) fn count(&self, responded: Result<Counted, Complaint>, began: Timestamp) -> Answer {
        let (answer, answered) = match responded {
            Ok(counted) => counted,
            Err(complaint) => (complaint.into_response(), Some(Answered::Invalid)),
        };
        if let Some(answered) = answered {
            let took = self.engine.clock().now().since(began);
            self.parts.meter.count(answered, took.into());
        }
        answer
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
                self.apply(verb, refusal, &body, HeaderMap::new()).await
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

    /// Decides one request or a batch. `headers` is an empty map for the answer.
    pub(super) async fn apply(
        &self,
        verb: Verb,
        refusal: RefusalStatus,
        body: &[u8],
        mut headers: HeaderMap,
    ) -> Result<Counted, Complaint> {
        let mut out = Vec::new();
        match decode::question(body, self.parts.settings.batch_max)? {
            Question::One(asked) => {
                let decided = self.decide(verb, &asked, Some(&mut headers), &mut out).await;
                let status = match refusal {
                    RefusalStatus::AsDecided => decided.status,
                    RefusalStatus::AlwaysOk => StatusCode::OK,
                };
                Ok((json_with(headers, status, out), Some(decided.answered)))
            }
            Question::Batch(all) => {
                let mut answered = Answered::Admitted;
                out.extend_from_slice(b"{\"answers\":[");
                for (place, asked) in all.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    let decided = self.decide(verb, asked, None, &mut out).await;
                    answered = graver(answered, decided.answered);
                }
                out.extend_from_slice(b"]}");
                Ok((json_with(headers, StatusCode::OK, out), Some(answered)))
            }
        }
    }

    /// Decides one request, and writes its answer: into the buffer, and into
    /// the header fields where it stands for itself.
    async fn decide(
        &self,
        verb: Verb,
        asked: &Asked<'_>,
        headers: Option<&mut HeaderMap>,
        out: &mut Vec<u8>,
    ) -> Decided {
        let entries = asked.entries();
        let descriptors = asked.descriptors(&entries);
        let request = asked.request(&descriptors);
        let (verdict, held) = match verb {
            Verb::Check => {
                let (verdict, permit) = self.engine.admit(&request, Tenure::TimeToLive).await;
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
            told.write_reset(out);
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
        let tells =
            matches!(verb, Verb::Check | Verb::Peek) && told.is_admitted() != notice.is_refusal();
        if let Some(headers) = headers.filter(|_| tells) {
            self.parts.settings.headers.put_on(headers, &notice, now);
        }
        Decided { status, answered }
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
        uncached(text(status, body))
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

    pub(super) fn permit_verb(&self, verb: Verb) -> Result<(), Complaint> {
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
        expect_json(headers)?;
        self.read(body).await
    }

    async fn read<B: Body<Data = Bytes>>(&self, body: B) -> Result<Bytes, Complaint> {
        let bytes_max = self.parts.settings.body_bytes_max;
        let mut reading = pin!(Reading::new(body));
        let read = poll_fn(|context| reading.as_mut().poll(bytes_max, context)).await;
        read.map_err(|unread| self.unread(unread))
    }

    /// What to say of a body that cannot be read.
    #[cold]
    pub(super) fn unread(&self, unread: Unread) -> Complaint {
        let bytes_max = self.parts.settings.body_bytes_max;
        match unread {
            Unread::TooLarge => Complaint::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {bytes_max} bytes"),
            )
            .hint("send several smaller batches".to_owned()),
            Unread::Broken => Complaint::bad_request("the body broke off before its end"),
        }
    }
}

const RELEASED: &str = "{\"released\":true}";
const NOT_RELEASED: &str = "{\"released\":false}";

/// What to count of two answers in one batch.
const fn graver(one: Answered, other: Answered) -> Answered {
    match (one, other) {
        (Answered::Undecided, _) | (_, Answered::Undecided) => Answered::Undecided,
        (Answered::Refused, _) | (_, Answered::Refused) => Answered::Refused,
        _ => one,
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
    fn a_batch_is_counted_as_its_gravest_answer() {
        let (admitted, refused) = (Answered::Admitted, Answered::Refused);
        assert_eq!(graver(admitted, refused), refused);
        assert_eq!(graver(refused, admitted), refused);
        assert_eq!(graver(refused, Answered::Undecided), Answered::Undecided);
        assert_eq!(graver(admitted, admitted), admitted);
    }
}
