//! How a request ends, wherever it ends: response, counts, access log, samples.

use http::StatusCode;
use http_body::Body as _;
use tidegate_admission::Grant;
use tidegate_answers::{Cause, Refusal};
use tidegate_engine::{Clock, CounterStore, Timestamp};
use tidegate_metrics::AnswerKind;

use super::access_log::{LogLine, Record};
use super::active_document::ActiveDocument;
use super::decode::RequestContext;
use super::encode::{Answer, Fault, RouteAnswers};
use super::refusal_samples::RefusedRequest;
use super::tally::Outcome;

/// The status in logs of a request whose client disconnected before there was a response, as in nginx.
const CLIENT_DISCONNECTED: u16 = 499;

impl<S, C> ActiveDocument<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Ends a request with a refusal.
    pub(super) fn refuse(&self, context: RequestContext, refusal: Refusal) -> Answer {
        let cause = refusal.cause;
        let answer = self.answers_of(&context).refusal(refusal, &context.client_form);
        self.finish(context, answer, Outcome::Refused(cause))
    }

    /// Ends a request that cannot be served.
    pub(super) fn fault(&self, context: RequestContext, fault: Fault) -> Answer {
        let answer = self.answers_of(&context).fault(fault, &context.client_form);
        self.finish(context, answer, Outcome::Fault(fault))
    }

    /// Ends a request with a response of the gateway's own.
    pub(super) fn finish(
        &self,
        context: RequestContext,
        answer: Answer,
        outcome: Outcome,
    ) -> Answer {
        let counted = match outcome {
            Outcome::Refused(Cause::Undecided) => Some(AnswerKind::Undecided),
            Outcome::Refused(_) => Some(AnswerKind::Refused),
            Outcome::Fault(fault) if fault.status().is_client_error() => Some(AnswerKind::Invalid),
            Outcome::Fault(_) => Some(AnswerKind::Failed),
            Outcome::Served | Outcome::Kept | Outcome::Own | Outcome::Gone => None,
        };
        if let Some(counted) = counted {
            self.count(counted, context.began);
        }
        if let (Outcome::Refused(_), Some(samples)) = (outcome, &self.state.samples)
            && samples.is_due(context.began)
        {
            let route = self.routes.get(context.route_index).map(|route| route.name.clone());
            samples.add(RefusedRequest {
                at: context.began,
                client: context.client,
                route: route.unwrap_or_default(),
                code: outcome.code(),
            });
        }
        let bytes = answer.body().size_hint().exact().unwrap_or(0);
        let RequestContext { route_index, record, .. } = context;
        self.record(route_index, record, RequestEnd { status: answer.status(), bytes, outcome });
        answer
    }

    /// Ends a request whose client disconnected.
    pub(super) fn disconnected(&self, route_index: usize, record: Option<Box<Record>>) {
        let status = StatusCode::from_u16(CLIENT_DISCONNECTED).unwrap_or_default();
        self.record(route_index, record, RequestEnd { status, bytes: 0, outcome: Outcome::Gone });
    }

    /// Counts how a request ended, and writes it to the access log.
    pub(super) fn record(
        &self,
        route_index: usize,
        record: Option<Box<Record>>,
        RequestEnd { status, bytes, outcome }: RequestEnd,
    ) {
        if let Some(tally) = self.tallies.get(route_index) {
            tally.count(outcome);
        }
        if let (Some(log), Some(record)) = (&self.state.log, record) {
            let route = self.routes.get(route_index).map(|route| route.name.clone());
            log.write(LogLine {
                record,
                ended: self.state.engine.clock().now(),
                status,
                bytes,
                outcome: outcome.code(),
                route: route.unwrap_or_default(),
            });
        }
    }

    /// Counts an admission and how long it took to decide.
    pub(super) fn count_admission(&self, grant: &Grant, began: Timestamp) {
        let undecided = grant.is_undecided;
        self.count(if undecided { AnswerKind::Undecided } else { AnswerKind::Admitted }, began);
    }

    fn count(&self, answered: AnswerKind, began: Timestamp) {
        let took = self.state.engine.clock().now().since(began);
        self.state.meter.count(answered, took.into());
    }

    fn answers_of(&self, context: &RequestContext) -> &RouteAnswers {
        self.routes.get(context.route_index).map_or(&self.answers, |route| &route.answers)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestEnd {
    pub(super) status: StatusCode,
    /// Bytes of the response body.
    pub(super) bytes: u64,
    pub(super) outcome: Outcome,
}
