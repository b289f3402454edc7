//! The tower service: waits for a turn, sends, reads the answer, repeats.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_response_fields::ResponseFields;
use tokio::time::Instant;
use tower_service::Service;

use crate::body::ReplayBody;
use crate::layer::LayerState;
use crate::observer::PacingEvent;
use crate::outcome::{Outcome, PacingError};
use crate::retry;
use crate::target::AnswerKind;
use crate::turn::Target;

/// The instant by which a call must have its answer: put it into the extensions of a request. No attempt begins that
/// would have to wait beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Instant);

/// A client whose calls are paced. Made by [`PacingLayer`](crate::PacingLayer).
#[derive(Clone, Debug)]
pub struct PacedService<S> {
    inner: S,
    shared: Arc<LayerState>,
}

impl<S> PacedService<S> {
    pub(crate) fn new(inner: S, shared: Arc<LayerState>) -> Self {
        PacedService { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for PacedService<S>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = PacingError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(PacingError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready makes the call; its clone waits to be polled.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let (parts, body) = request.into_parts();
        let call = Call {
            inner,
            shared: Arc::clone(&self.shared),
            deadline: parts.extensions.get::<Deadline>().map(|deadline| deadline.0),
            attempts_max: if retry::is_repeatable(&parts.method, &parts.headers) {
                self.shared.settings.attempts_max
            } else {
                1
            },
        };
        Box::pin(call.run(parts, ReplayBody::new(body)))
    }
}

/// One call with its attempts.
struct Call<S> {
    inner: S,
    shared: Arc<LayerState>,
    deadline: Option<Instant>,
    attempts_max: u32,
}

/// What an attempt leads to.
struct AttemptEnd<T> {
    result: T,
    kind: AnswerKind,
    /// The wait that the service asked for.
    stated: Option<Nanos>,
    forbids_retry: bool,
}

impl<S> Call<S> {
    async fn run<B, R>(
        mut self,
        parts: Parts,
        body: ReplayBody<B>,
    ) -> Result<Response<R>, PacingError<S::Error>>
    where
        S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes>,
    {
        let scope = (self.shared.scope)(&parts);
        let target = self.shared.targets.get(scope, self.shared.time.now(), || target_name(&parts));
        if self.shared.settings.drops_when_short
            && target.drops(self.shared.time.now(), self.shared.time.random())
        {
            self.shared.observe(&target.name, PacingEvent::NotSent);
            return Err(PacingError::Dropped);
        }
        let mut request = (parts, body);
        let mut attempt = 1;
        loop {
            let (parts, body) = request;
            // A copy for another attempt, while one is allowed.
            let kept = (attempt < self.attempts_max)
                .then(|| Some((parts.clone(), body.replay()?)))
                .flatten();
            let end = self.attempt(&target, attempt, Request::from_parts(parts, body)).await?;
            let copy = kept.filter(|_| end.kind != AnswerKind::Served && !end.forbids_retry);
            // The body may have turned out too large while it was sent.
            let copy = copy.and_then(|(parts, body)| Some((parts, body.replay()?)));
            let Some(copy) = copy else { return end.finish() };
            let Some(pause) = self.pause_before_retry(&target, attempt, &end) else {
                return end.finish();
            };
            self.shared
                .observe(&target.name, PacingEvent::Retried { attempt, pause: pause.into() });
            target.pause(pause).await;
            request = copy;
            attempt += 1;
        }
    }

    /// Waits for a turn and makes one attempt.
    async fn attempt<B, R>(
        &mut self,
        target: &Target,
        attempt: u32,
        request: Request<ReplayBody<B>>,
    ) -> Result<AttemptEnd<Result<Response<R>, S::Error>>, PacingError<S::Error>>
    where
        S: Service<Request<ReplayBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes>,
    {
        let started = self.shared.time.now();
        if let Some(source) = &self.shared.slices {
            let spent = target.spend_unit(&**source, self.wait_max(), || self.shared.time.now());
            match spent.await {
                Ok(true) => {}
                Ok(false) => self.shared.observe(&target.name, PacingEvent::NoSlice),
                Err(no_turn) => {
                    self.shared.observe(&target.name, PacingEvent::NotSent);
                    return Err(self.refuse(no_turn.after));
                }
            }
        }
        let turn = target.wait_turn(attempt == 1, self.wait_max(), || self.shared.time.now()).await;
        let in_flight = turn.map_err(|no_turn| {
            self.shared.observe(&target.name, PacingEvent::NotSent);
            self.refuse(no_turn.after)
        })?;
        let waited = self.shared.time.now().since(started);
        if waited > Nanos::ZERO {
            self.shared.observe(&target.name, PacingEvent::Waited(waited.into()));
        }
        self.shared.observe(&target.name, PacingEvent::Sent);
        if attempt > 1 {
            poll_fn(|context| self.inner.poll_ready(context)).await.map_err(PacingError::Inner)?;
        }
        let result = self.inner.call(request).await;
        let (kind, fields) = match &result {
            Ok(answer) => {
                (classify(answer.status(), answer.headers()), read_fields(answer.headers()))
            }
            Err(_) => (AnswerKind::Failed, ResponseFields::default()),
        };
        let held =
            in_flight.record(kind, &fields, self.shared.time.now(), self.shared.time.random());
        if held > Nanos::ZERO && kind != AnswerKind::Served {
            self.shared.observe(&target.name, PacingEvent::Held(held.into()));
        }
        Ok(AttemptEnd { result, kind, stated: fields.wait, forbids_retry: fields.forbids_retry })
    }

    /// The pause before another attempt; `None` if there is none.
    fn pause_before_retry<T>(
        &self,
        target: &Target,
        attempt: u32,
        end: &AttemptEnd<T>,
    ) -> Option<Nanos> {
        let refused = matches!(end.kind, AnswerKind::Refused | AnswerKind::Short);
        let pause = retry::pause(attempt, end.stated, refused, self.shared.time.random());
        if pause > self.wait_max() {
            return None;
        }
        let has_budget = target.spend_retry(end.stated.is_some(), self.shared.time.now());
        if !has_budget {
            self.shared.observe(&target.name, PacingEvent::BudgetSpent);
        }
        has_budget.then_some(pause)
    }

    /// The longest wait that the settings and the deadline allow.
    fn wait_max(&self) -> Nanos {
        let patience = self.shared.settings.wait_max;
        let until_deadline =
            self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        until_deadline.map_or(patience, |left| left.min(patience)).into()
    }

    fn refuse<E>(&self, after: Nanos) -> PacingError<E> {
        let retry_after = Duration::from(after);
        let is_patient = retry_after <= self.shared.settings.wait_max;
        if self.deadline.is_some() && is_patient {
            PacingError::Deadline { retry_after }
        } else {
            PacingError::Held { retry_after }
        }
    }
}

impl<R, E> AttemptEnd<Result<Response<R>, E>> {
    /// The answer with its outcome, or the error.
    fn finish(self) -> Result<Response<R>, PacingError<E>> {
        let retry_after = self.stated.map(Duration::from);
        let outcome = match self.kind {
            AnswerKind::Served => None,
            AnswerKind::Refused => Some(Outcome::Refused { retry_after }),
            AnswerKind::Short => Some(Outcome::Short { retry_after }),
            AnswerKind::Failed => Some(Outcome::Failed),
        };
        let mut answer = self.result.map_err(PacingError::Inner)?;
        if let Some(outcome) = outcome {
            answer.extensions_mut().insert(outcome);
        }
        Ok(answer)
    }
}

/// How an answer counts. gRPC answers have status 200, and their own status in a field of trailers-only answers.
fn classify(status: StatusCode, headers: &HeaderMap) -> AnswerKind {
    match status.as_u16() {
        429 => AnswerKind::Refused,
        503 => AnswerKind::Short,
        408 | 502 | 504 => AnswerKind::Failed,
        200 => match headers.get("grpc-status").map(http::HeaderValue::as_bytes) {
            Some(b"8") => AnswerKind::Refused,
            Some(b"14") => AnswerKind::Short,
            _ => AnswerKind::Served,
        },
        _ => AnswerKind::Served,
    }
}

fn read_fields(headers: &HeaderMap) -> ResponseFields {
    ResponseFields::read(headers, time_of_day())
}

/// The time of day, for dates in answers without a `Date` of their own.
#[expect(clippy::disallowed_methods, reason = "dates in answers are by the time of day")]
fn time_of_day() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::EPOCH.after(since.into())
}

fn target_name(parts: &Parts) -> String {
    parts.uri.authority().map_or_else(String::new, ToString::to_string)
}
