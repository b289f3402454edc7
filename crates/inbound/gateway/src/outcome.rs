//! How a request ends, wherever it ends: response, counts, access log, samples.

use std::time::Duration;

use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body::Body as _;
use tidegate_admission::Grant;
use tidegate_answers::{Cause, Refusal};
use tidegate_engine::{Clock, CounterStore, LimiterStage, Timestamp, contain};
use tidegate_metrics::AnswerKind;

use super::access_log::LogLine;
use super::active_document::ActiveDocument;
use super::decode::{CountState, RequestContext};
use super::encode::{Answer, Fault, RouteAnswers};
use super::refusal_samples::RefusedRequest;
use super::settings::PresentedIn;
use super::tally::Outcome;

/// The status in logs of a request whose client disconnected before there was a response, as in nginx.
const CLIENT_DISCONNECTED: u16 = 499;

impl<S: CounterStore, C: Clock> ActiveDocument<S, C> {
    /// The response for a refusal, and the outcome of its request. [`None`] if it cannot be rendered, because limiter
    /// code panicked: then the request is admitted.
    pub(super) fn render_refusal(
        &self,
        context: &mut RequestContext,
        refusal: Refusal,
    ) -> Option<(Answer, Outcome)> {
        let cause = refusal.cause;
        if let (Cause::Rate, Some(address), Some(observer)) =
            (cause, context.direct, &self.state.connections)
        {
            observer.refused(address);
        }
        let limit = refusal.limits.first().map(|limit| limit.name.clone());
        let answer = contain(LimiterStage::Render, || {
            self.answers_of(context).refusal(refusal, &context.client_form)
        });
        let Some(answer) = answer else {
            context.count = self.failed_open(context.began);
            return None;
        };
        if let Some(record) = &mut context.record {
            record.limit = limit;
            record.refused_by = Some(cause.limiter());
        }
        Some((answer, Outcome::Refused(cause)))
    }

    /// Ends a request that cannot be served.
    pub(super) fn fault(&self, context: RequestContext, fault: Fault) -> Answer {
        let mut answer = self.answers_of(&context).fault(fault, &context.client_form);
        if fault.status() == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, self.challenge());
        }
        self.finish(context, answer, Outcome::Fault(fault))
    }

    /// The credential that a request needs, by its scheme.
    fn challenge(&self) -> HeaderValue {
        let jwt = self.settings.jwt.as_ref();
        let bearer = jwt.is_some_and(|jwt| jwt.presented_in == PresentedIn::Bearer);
        HeaderValue::from_static(if bearer { "Bearer" } else { "ApiKey" })
    }

    /// Ends a request with a response of the gateway's own.
    pub(super) fn finish(
        &self,
        context: RequestContext,
        answer: Answer,
        outcome: Outcome,
    ) -> Answer {
        contain(LimiterStage::Record, || self.count_answer(&context, outcome));
        let mut answer = answer;
        self.attach_details(&context, outcome, &mut answer);
        let bytes = answer.body().size_hint().exact().unwrap_or(0);
        self.record(context, RequestEnd { status: answer.status(), bytes, outcome });
        answer
    }

    /// Attaches the details of a request to its response, if they are wanted.
    pub(super) fn attach_details<B>(
        &self,
        context: &RequestContext,
        outcome: Outcome,
        answer: &mut Response<B>,
    ) {
        let Some(record) = context.record.as_ref().filter(|record| record.is_traced) else {
            return;
        };
        let route = self.routes.get(context.route_index).map(|route| route.name.clone());
        let details = record.details(route, outcome, self.settings.caller_format);
        answer.extensions_mut().insert(details);
    }

    /// Counts a response of the gateway's own, and samples refusals.
    fn count_answer(&self, context: &RequestContext, outcome: Outcome) {
        let answered = match outcome {
            Outcome::Refused(Cause::Undecided) => Some(AnswerKind::Undecided),
            Outcome::Refused(_) => Some(AnswerKind::Refused),
            Outcome::Fault(fault) if fault.status().is_client_error() => Some(AnswerKind::Invalid),
            Outcome::Fault(_) => Some(AnswerKind::Failed),
            Outcome::Kept => Some(AnswerKind::Admitted),
            Outcome::Served | Outcome::Own | Outcome::Gone | Outcome::Expired => None,
        };
        if let (Some(answered), CountState::Undecided | CountState::Admitted { .. }) =
            (answered, context.count)
        {
            self.state.meter.count(answered, self.since(context.began));
        }
        if let (Outcome::Refused(_), Some(samples)) = (outcome, &self.state.samples)
            && samples.is_due(context.began)
        {
            let route = self.routes.get(context.route_index).map(|route| route.name.clone());
            let details = context
                .record
                .as_ref()
                .map(|record| record.details(None, outcome, self.settings.caller_format));
            samples.add(RefusedRequest {
                at: context.began,
                client: context.client,
                route: route.unwrap_or_default(),
                code: outcome.code(),
                details,
            });
        }
    }

    /// Ends a request whose client disconnected.
    pub(super) fn disconnected(&self, context: RequestContext) {
        let status = StatusCode::from_u16(CLIENT_DISCONNECTED).unwrap_or_default();
        self.record(context, RequestEnd { status, bytes: 0, outcome: Outcome::Gone });
    }

    /// Counts how a request ended, and writes it to the access log.
    pub(super) fn record(&self, context: RequestContext, end: RequestEnd) {
        contain(LimiterStage::Record, || self.count_and_log(context, end));
    }

    fn count_and_log(
        &self,
        RequestContext { route_index, record, count, .. }: RequestContext,
        RequestEnd { status, bytes, outcome }: RequestEnd,
    ) {
        match (count, self.tallies.get(route_index)) {
            (CountState::Queued, _) => self.state.counters.kept.count(outcome),
            (_, Some(tally)) => tally.count(outcome),
            (_, None) => {}
        }
        let record = record.filter(|record| record.is_logged);
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

    /// An admission by the limits, and how long they took to decide.
    pub(super) fn admitted(&self, grant: &Grant, began: Timestamp) -> CountState {
        let undecided = grant.is_undecided;
        let answer = if undecided { AnswerKind::Undecided } else { AnswerKind::Admitted };
        CountState::Admitted { answer, took: self.since(began) }
    }

    /// An admission because limiter code panicked.
    pub(super) fn failed_open(&self, began: Timestamp) -> CountState {
        CountState::Admitted { answer: AnswerKind::ErrorOpen, took: self.since(began) }
    }

    /// Counts a request that its limits admitted, unless it is counted.
    pub(super) fn count_admission(&self, count: &mut CountState) {
        if let CountState::Admitted { answer, took } = *count {
            contain(LimiterStage::Record, || self.state.meter.count(answer, took));
            *count = CountState::Counted;
        }
    }

    fn since(&self, began: Timestamp) -> Duration {
        self.state.engine.clock().now().since(began).into()
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
