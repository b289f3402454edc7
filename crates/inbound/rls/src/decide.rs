//! Request → verdict → answer.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_engine::{
    Clock, CounterStore, LimiterStage, LocalEngine, Verdict, contain, contain_future,
};
use tidegate_metrics::AnswerKind;

use crate::decode::frame::{self, Compression};
use crate::decode::{OverrideLimits, RateLimitRequest, RefusedHits, RequestError, decode};
use crate::encode::{Answer, Code};
use crate::failure::Failure;
use crate::service::RlsState;

/// A rendered answer and its kind, or the error of the call.
pub(crate) type CallResult<R> = Result<(AnswerKind, R), Failure>;

/// The result of a call. [`None`] when limiter code panicked: then the request is admitted.
pub(crate) type ContainedResult<R> = Option<CallResult<R>>;

impl<S: CounterStore, C: Clock> RlsState<S, C> {
    /// A request to decode into.
    #[inline]
    pub(crate) fn new_request<'b>(&self) -> RateLimitRequest<'b> {
        RateLimitRequest::with_descriptors_max(self.settings.descriptors_max)
    }

    /// Decodes the message of a call's body.
    #[inline]
    pub(crate) fn decode<'b>(
        &self,
        body: &'b [u8],
        compression: Compression,
        request: &mut RateLimitRequest<'b>,
    ) -> Option<Result<(), Failure>> {
        contain(LimiterStage::Describe, || {
            let message = frame::message(body, compression, self.settings.message_bytes_max)?;
            Ok(decode(message, request)?)
        })
    }

    /// Decides a request on the store in memory, without waiting.
    #[inline]
    pub(crate) fn decide_now<R>(
        &self,
        engine: &LocalEngine<'_, S, C>,
        request: &RateLimitRequest<'_>,
        render: impl FnOnce(&Answer<'_>) -> R,
    ) -> ContainedResult<R> {
        contain(LimiterStage::Decide, || {
            let limits = match self.validate(request) {
                Ok(limits) => limits,
                Err(failure) => return Some(Err(failure)),
            };
            let descriptors = request.engine_descriptors(&limits);
            let verdict = engine.check_now(&request.engine_request(&descriptors));
            self.answer(&verdict, request, &limits, render)
        })
        .flatten()
    }

    /// Decides a request.
    pub(crate) async fn decide<R>(
        &self,
        request: &RateLimitRequest<'_>,
        render: impl FnOnce(&Answer<'_>) -> R,
    ) -> ContainedResult<R> {
        let decision = contain_future(LimiterStage::Decide, async {
            let limits = match self.validate(request) {
                Ok(limits) => limits,
                Err(failure) => return Some(Err(failure)),
            };
            let descriptors = request.engine_descriptors(&limits);
            let verdict = self.engine.check(&request.engine_request(&descriptors)).await;
            self.answer(&verdict, request, &limits, render)
        });
        decision.await.flatten()
    }

    #[inline]
    fn validate(&self, request: &RateLimitRequest<'_>) -> Result<OverrideLimits, Failure> {
        let upstream = self.settings.upstream_errors;
        let refused_hits = if upstream { RefusedHits::Count } else { RefusedHits::Drop };
        request.validate(refused_hits).map_err(|error| {
            if matches!(error, RequestError::NoDomain | RequestError::NoDescriptors) {
                self.service_errors.fetch_add(1, Relaxed);
            }
            Failure::invalid_request(error, upstream)
        })
    }

    #[inline]
    fn answer<R>(
        &self,
        verdict: &Verdict,
        request: &RateLimitRequest<'_>,
        limits: &OverrideLimits,
        render: impl FnOnce(&Answer<'_>) -> R,
    ) -> ContainedResult<R> {
        if !verdict.domain_is_known() && self.lacks_rules() {
            self.service_errors.fetch_add(1, Relaxed);
            return Some(Err(Failure::no_rules()));
        }
        let upstream_errors = self.settings.upstream_errors;
        let undecided = verdict.undecided();
        if let Some(undecided) = undecided.filter(|_| upstream_errors || !verdict.is_admitted()) {
            return Some(Err(Failure::undecided(undecided, upstream_errors)));
        }
        contain(LimiterStage::Render, || {
            let answer = Answer::of(verdict, request, limits, &self.settings);
            if answer.shadowed {
                self.shadowed.fetch_add(1, Relaxed);
            }
            let kind = match answer.overall {
                _ if undecided.is_some() => AnswerKind::Undecided,
                Code::OverLimit => AnswerKind::Refused,
                Code::Ok | Code::Unknown => AnswerKind::Admitted,
            };
            Ok((kind, render(&answer)))
        })
    }

    /// Whether there are no rules and the settings make that an error.
    #[cold]
    fn lacks_rules(&self) -> bool {
        self.settings.upstream_errors && self.has_rules.get().is_some_and(|has| !has())
    }
}
