//! Request → verdict → answer: one request or a batch, with the verb of its route.

use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tidegate_admission::HeldSlots;
use tidegate_answers::Notice;
use tidegate_engine::{Clock, CounterStore, LimiterStage, Tenure, Verb, contain, contain_future};
use tidegate_metrics::AnswerKind;

use crate::decode::head::RefusalStatus;
use crate::decode::object::{List, Object};
use crate::decode::{self, CheckBody, CheckRequest};
use crate::encode::response::json_with;
use crate::encode::{DecisionBody, Version};
use crate::permits::{self, TooManyPermits};
use crate::problem::RequestProblem;
use crate::service::{ApiState, CountedResponse};

/// How one request was answered.
struct DecisionOutcome {
    status: StatusCode,
    kind: AnswerKind,
}

impl<S: CounterStore, C: Clock> ApiState<S, C> {
    /// Decides one request or a batch. `headers` is an empty map for the response.
    pub(crate) async fn apply(
        &self,
        verb: Verb,
        refusal: RefusalStatus,
        body: &[u8],
        mut headers: HeaderMap,
    ) -> Result<CountedResponse, RequestProblem> {
        let mut out = Vec::new();
        match decode::check_body(body, self.parts.settings.batch_max)? {
            CheckBody::One(request) => {
                let outcome = self.decide(verb, &request, Some(&mut headers), &mut out).await;
                let outcome = outcome.unwrap_or_else(|| self.admit(verb, &request, &mut out));
                let status = match refusal {
                    RefusalStatus::AsDecided => outcome.status,
                    RefusalStatus::AlwaysOk => StatusCode::OK,
                };
                Ok(CountedResponse::new(json_with(headers, status, out), outcome.kind))
            }
            CheckBody::Batch(List(requests)) => {
                let mut kind = AnswerKind::Admitted;
                out.extend_from_slice(b"{\"answers\":[");
                for (index, Object(request)) in requests.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    let outcome = self.decide(verb, request, None, &mut out).await;
                    let outcome = outcome.unwrap_or_else(|| self.admit(verb, request, &mut out));
                    kind = worse_of(kind, outcome.kind);
                }
                out.extend_from_slice(b"]}");
                Ok(CountedResponse::new(json_with(headers, StatusCode::OK, out), kind))
            }
        }
    }

    /// Decides one request. Appends the answer to the buffer, and adds rate limit fields to `headers` if it is given.
    /// [`None`] when limiter code panicked.
    async fn decide(
        &self,
        verb: Verb,
        request: &CheckRequest<'_>,
        headers: Option<&mut HeaderMap>,
        out: &mut Vec<u8>,
    ) -> Option<DecisionOutcome> {
        let entries = contain(LimiterStage::Describe, || request.entries())?;
        let descriptors = request.engine_descriptors(&entries);
        let engine_request = request.engine_request(&descriptors);
        let (verdict, permit, now) = contain_future(LimiterStage::Decide, async {
            let (verdict, held) = match verb {
                Verb::Check => {
                    let (verdict, permit) =
                        self.engine.admit(&engine_request, Tenure::TimeToLive).await;
                    (verdict, HeldSlots::of(permit))
                }
                _ => (self.engine.apply(verb, &engine_request).await, None),
            };
            let now = self.engine.clock().now();
            // A refused request holds nothing: its slots are freed here.
            let held = held.filter(|_| verdict.is_admitted());
            let permit = held.map(|held| {
                let time_to_live = permits::time_to_live(&verdict);
                self.permits.issue(held, time_to_live, now).map_err(|_| TooManyPermits)
            });
            (verdict, permit, now)
        })
        .await?;
        let start = out.len();
        let rendered = contain(LimiterStage::Render, || {
            let notice = Notice::of(&verdict);
            let body = DecisionBody {
                domain: &request.domain,
                notice: &notice,
                shadow: self.parts.settings.shadow,
                permit: permit.transpose(),
            };
            if verb == Verb::Reset {
                body.write_reset(out);
            } else {
                body.write(out);
            }
            let undecided = body.undecided().is_some();
            let status = match verb {
                // An undecided refund or reset was not done, whatever the failure mode admits.
                Verb::Refund | Verb::Reset if undecided => StatusCode::SERVICE_UNAVAILABLE,
                Verb::Refund | Verb::Reset => StatusCode::OK,
                _ if body.is_admitted() => StatusCode::OK,
                _ if undecided => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::TOO_MANY_REQUESTS,
            };
            let kind = match undecided {
                true => AnswerKind::Undecided,
                false if body.is_admitted() => AnswerKind::Admitted,
                false => AnswerKind::Refused,
            };
            let has_fields = matches!(verb, Verb::Check | Verb::Peek)
                && body.is_admitted() != notice.is_refusal();
            if let Some(headers) = headers.filter(|_| has_fields) {
                self.parts.settings.headers.put_on(headers, &notice, now);
            }
            DecisionOutcome { status, kind }
        });
        if rendered.is_none() {
            out.truncate(start);
        }
        rendered
    }

    /// Appends the answer to a request whose limiter code panicked: it is admitted. A refund or a reset may
    /// not have been done.
    #[cold]
    fn admit(&self, verb: Verb, request: &CheckRequest<'_>, out: &mut Vec<u8>) -> DecisionOutcome {
        let mut answer = json!({
            "domain": request.domain,
            "rules_version": Version(self.engine.snapshot().version()),
            "undecided": "the limiter failed",
        });
        let (status, members) = match verb {
            Verb::Reset => (StatusCode::SERVICE_UNAVAILABLE, json!({ "reset": 0 })),
            Verb::Refund => {
                (StatusCode::SERVICE_UNAVAILABLE, json!({ "admitted": true, "decisions": [] }))
            }
            _ => (StatusCode::OK, json!({ "admitted": true, "decisions": [] })),
        };
        if let (Value::Object(answer), Value::Object(members)) = (&mut answer, members) {
            answer.extend(members);
        }
        out.extend(answer.to_string().into_bytes());
        DecisionOutcome { status, kind: AnswerKind::ErrorOpen }
    }
}

/// How a batch with these two answers is counted.
const fn worse_of(one: AnswerKind, other: AnswerKind) -> AnswerKind {
    match (one, other) {
        (AnswerKind::ErrorOpen, _) | (_, AnswerKind::ErrorOpen) => AnswerKind::ErrorOpen,
        (AnswerKind::Undecided, _) | (_, AnswerKind::Undecided) => AnswerKind::Undecided,
        (AnswerKind::Refused, _) | (_, AnswerKind::Refused) => AnswerKind::Refused,
        _ => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_counted_as_its_worst_answer() {
        let (admitted, refused) = (AnswerKind::Admitted, AnswerKind::Refused);
        assert_eq!(worse_of(admitted, refused), refused);
        assert_eq!(worse_of(refused, admitted), refused);
        assert_eq!(worse_of(refused, AnswerKind::Undecided), AnswerKind::Undecided);
        assert_eq!(worse_of(admitted, admitted), admitted);
    }
}
