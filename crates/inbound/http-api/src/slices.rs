//! Slices: units of limits that a client takes ahead and spends by itself.
//!
//! Several processes that call one service share its limit by slices: each asks for as many units as it needs in the next
//! moments, and none is refused while units are left. One route does everything: it gives back what is left of a slice
//! and takes units for a new one.
//!
//! Units are charged when they are taken. A client that crashes loses at most its slice: those units are not used, and
//! the limit is never exceeded. A slice ends with its life or with the window that it was taken from, whichever is
//! earlier. In any span the requests sent are at most the limit's, and one slice of each client from before it.

use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use tidegate_access::RandomId;
use tidegate_answers::Notice;
use tidegate_engine::{
    Clock, CounterStore, Descriptor, LimiterStage, Nanos, Request, Retry, Role, Ruling, Timestamp,
    Verb, Verdict, contain_future,
};
use tidegate_metrics::AnswerKind;

use crate::decode::{CheckRequest, SliceBody};
use crate::encode::response::{json_with, to_json};
use crate::encode::wait_ms;
use crate::problem::RequestProblem;
use crate::service::{ApiState, CountedResponse};
use crate::tokens::TokenTable;

/// How long a slice may be spent unless the client says otherwise, and at most.
const LIFE: Nanos = Nanos::from_secs(1);
const LIFE_MAX: Nanos = Nanos::from_secs(60);

/// How often fewer units are tried after another client was faster.
const ATTEMPTS: usize = 4;

/// The slices that clients hold.
#[derive(Debug)]
pub(crate) struct Slices {
    held: TokenTable<HeldSlice>,
    /// Keyed with a random secret, so that no client can make two requests with one fingerprint.
    secret: RandomState,
}

/// Units of the limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldSlice {
    request: u64,
    units: u64,
}

/// Units that were taken.
struct TakenUnits {
    verdict: Verdict,
    units: u64,
}

impl Slices {
    pub(crate) fn new(slices_max: usize) -> Self {
        Slices { held: TokenTable::new(slices_max), secret: RandomState::new() }
    }

    fn fingerprint(&self, request: &CheckRequest<'_>) -> u64 {
        let entries = request.entries();
        let descriptors = request.engine_descriptors(&entries);
        let keys = descriptors.iter().map(|descriptor| {
            let entries = descriptor.entries.iter().map(|entry| (entry.key, entry.value));
            (entries.collect::<Vec<_>>(), format!("{:?}", descriptor.limit))
        });
        self.secret.hash_one((&request.domain, keys.collect::<Vec<_>>()))
    }
}

impl<S: CounterStore, C: Clock> ApiState<S, C> {
    /// Gives back what is left of a slice, and takes units for a new one.
    pub(crate) async fn exchange(
        &self,
        mut body: SliceBody<'_>,
    ) -> Result<CountedResponse, RequestProblem> {
        let request = body.request()?;
        let contained = contain_future(LimiterStage::Decide, async {
            let returned = self.give_back(&body, &request).await;
            let taken = self.take(&request, body.units).await?;
            Ok((returned, taken))
        });
        // A failure of the limiter admits: the client goes on with what it asked for.
        let Some(exchanged) = contained.await else {
            let life = life_of(&body);
            let answer = json!({
                "units": body.units,
                "expires_in_ms": whole_ms(life),
                "undecided": "the limiter failed",
            });
            let response = json_with(HeaderMap::new(), StatusCode::OK, to_json(&answer));
            return Ok(CountedResponse::new(response, AnswerKind::ErrorOpen));
        };
        let (returned, taken) = exchanged?;
        Ok(self.answer_exchange(&body, &request, returned, taken))
    }

    /// Gives back the units of a slice that were not spent, if the client holds it.
    async fn give_back(&self, body: &SliceBody<'_>, request: &CheckRequest<'_>) -> u64 {
        let now = self.engine.clock().now();
        let token = body.slice.as_deref().and_then(RandomId::parse);
        let held = token.and_then(|token| self.slices.held.release(token, now));
        let fingerprint = self.slices.fingerprint(request);
        let units = match held {
            Some(held) if held.request == fingerprint => body.unused.min(held.units),
            _ => 0,
        };
        if units > 0 {
            self.apply_units(Verb::Refund, request, units).await;
        }
        units
    }

    /// Takes as many units as all limits of the request have, at most `wanted`.
    async fn take(
        &self,
        request: &CheckRequest<'_>,
        wanted: u64,
    ) -> Result<TakenUnits, RequestProblem> {
        let mut wanted = wanted;
        let mut verdict = self.apply_units(Verb::Peek, request, 0).await;
        for _ in 0..ATTEMPTS {
            divisible(&verdict)?;
            let units = wanted.min(units_left(&verdict));
            if units == 0 {
                break;
            }
            verdict = self.apply_units(Verb::Check, request, units).await;
            if verdict.is_admitted() || verdict.undecided().is_some() {
                let units = if verdict.is_admitted() { units } else { 0 };
                return Ok(TakenUnits { verdict, units });
            }
            // Another client was faster.
            wanted = units.div_ceil(2);
            verdict = self.apply_units(Verb::Peek, request, 0).await;
        }
        // Nothing is left: a peek at one unit says when there will be.
        if wanted > 0 {
            verdict = self.apply_units(Verb::Peek, request, 1).await;
        }
        Ok(TakenUnits { verdict, units: 0 })
    }

    async fn apply_units(&self, verb: Verb, request: &CheckRequest<'_>, units: u64) -> Verdict {
        let entries = request.entries();
        let descriptors: Vec<Descriptor<'_>> = request.engine_descriptors(&entries).into_vec();
        let domain = &request.domain;
        let request = Request { domain, descriptors: &descriptors, cost: units };
        self.engine.apply(verb, &request).await
    }

    fn answer_exchange(
        &self,
        body: &SliceBody<'_>,
        request: &CheckRequest<'_>,
        returned: u64,
        taken: TakenUnits,
    ) -> CountedResponse {
        let TakenUnits { verdict, units } = taken;
        let now = self.engine.clock().now();
        let mut answer = Map::new();
        let mut headers = HeaderMap::new();
        answer.insert("units".to_owned(), json!(units));
        if body.slice.is_some() {
            answer.insert("returned".to_owned(), json!(returned));
        }
        if let Some(undecided) = verdict.undecided() {
            answer.insert("undecided".to_owned(), json!(undecided.to_string()));
        }
        if units > 0 {
            let life = life_of(body).min(window_left(&verdict));
            answer.insert("expires_in_ms".to_owned(), json!(whole_ms(life)));
            let held = HeldSlice { request: self.slices.fingerprint(request), units };
            // Without a token the units can be spent, but not given back.
            if let Ok(token) = self.slices.held.issue(held, life, now) {
                answer.insert("slice".to_owned(), json!(token.to_string()));
            }
        } else if body.units > 0 {
            self.add_refusal(&verdict, now, &mut answer, &mut headers);
        }
        let (status, kind) = match (units, body.units, verdict.undecided()) {
            (0, 1.., Some(_)) => (StatusCode::SERVICE_UNAVAILABLE, AnswerKind::Undecided),
            (0, 1.., None) => (StatusCode::TOO_MANY_REQUESTS, AnswerKind::Refused),
            _ => (StatusCode::OK, AnswerKind::Admitted),
        };
        let response = json_with(headers, status, to_json(&Value::Object(answer)));
        CountedResponse::new(response, kind)
    }

    /// Adds which limit has nothing left, and when it will.
    fn add_refusal(
        &self,
        verdict: &Verdict,
        now: Timestamp,
        answer: &mut Map<String, Value>,
        headers: &mut HeaderMap,
    ) {
        let notice = Notice::of(verdict);
        if let Some(refusal) = verdict.refusal() {
            let limit = refusal.limit.unwrap_or(refusal.path);
            answer.insert("refused_by".to_owned(), json!(limit));
        }
        if let Some(wait) = wait_ms(verdict.retry()) {
            answer.insert("retry_after_ms".to_owned(), json!(wait));
        }
        if verdict.retry() == Retry::Never {
            answer.insert("never".to_owned(), json!(true));
        }
        if notice.is_refusal() {
            self.parts.settings.headers.put_on(headers, &notice, now);
        }
    }
}

fn life_of(body: &SliceBody<'_>) -> Nanos {
    body.life_ms.map_or(LIFE, Nanos::from_millis).min(LIFE_MAX)
}

/// Rounded down: a client never spends a unit too late.
const fn whole_ms(life: Nanos) -> u64 {
    life.get() / 1_000_000
}

fn deciding(verdict: &Verdict) -> impl Iterator<Item = &Ruling> {
    verdict.rulings().iter().filter(|ruling| ruling.role != Role::Observed)
}

/// Whether all limits can be counted in parts.
fn divisible(verdict: &Verdict) -> Result<(), RequestProblem> {
    let limits = verdict.rulings().iter().filter_map(|ruling| verdict.limit(ruling));
    let Some(whole) =
        limits.map(|limit| &limit.limit).find(|limit| !limit.algorithm().is_counter())
    else {
        return Ok(());
    };
    let name = whole.algorithm().name();
    let problem = RequestProblem::new(
        StatusCode::CONFLICT,
        format!("a limit of this request is a `{name}`, which has no units to take ahead"),
    );
    Err(problem.hint("ask `POST /v1/check` for each request".to_owned()))
}

/// The units that every limit has left.
fn units_left(verdict: &Verdict) -> u64 {
    let left = |ruling: &Ruling| {
        let cost = verdict.limit(ruling).map_or(1, |limit| limit.cost.max(1));
        ruling.decision.remaining / cost
    };
    let required = deciding(verdict).filter(|ruling| ruling.role == Role::Required);
    let alternatives = deciding(verdict).filter(|ruling| ruling.role == Role::Alternative);
    let required = required.map(left).min().unwrap_or(u64::MAX);
    required.min(alternatives.map(left).max().unwrap_or(u64::MAX))
}

/// How long the windows of the limits last: units of one window are not spent in the next.
fn window_left(verdict: &Verdict) -> Nanos {
    let windows = deciding(verdict).filter(|ruling| {
        let limit = verdict.limit(ruling);
        limit.is_none_or(|limit| limit.limit.algorithm().resets_at_once())
    });
    windows.map(|ruling| ruling.decision.reset_after).min().unwrap_or(LIFE_MAX)
}
