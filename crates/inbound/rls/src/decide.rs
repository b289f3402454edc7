//! Request → verdict → answer.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_engine::{Clock, CounterStore, LocalEngine, Verdict};
use tidegate_metrics::AnswerKind;

use crate::decode::frame::{self, Compression};
use crate::decode::{OverrideLimits, RateLimitRequest, RefusedHits, decode};
use crate::encode::{Answer, Code};
use crate::failure::Failure;
use crate::service::RlsState;

/// A rendered answer and its kind, or the error of the call.
pub(crate) type CallResult<R> = Result<(AnswerKind, R), Failure>;

impl<S: CounterStore, C: Clock> RlsState<S, C> {
    /// Decodes the message of a call's body.
    #[inline]
    pub(crate) fn decode<'b>(
        &self,
        body: &'b [u8],
        compression: Compression,
        request: &mut RateLimitRequest<'b>,
    ) -> Result<(), Failure> {
        let message = frame::message(body, compression, self.settings.message_bytes_max)?;
        Ok(decode(message, request)?)
    }

    /// Decides a request on the store in memory, without waiting.
    #[inline]
    pub(crate) fn decide_now<R>(
        &self,
        engine: &LocalEngine<'_, S, C>,
        request: &RateLimitRequest<'_>,
        render: impl FnOnce(&Answer<'_>) -> R,
    ) -> CallResult<R> {
        let limits = self.validate(request)?;
        let descriptors = request.engine_descriptors(&limits);
        let verdict = engine.check_now(&request.engine_request(&descriptors));
        self.answer(&verdict, request, &limits, render)
    }

    /// Decides a request.
    pub(crate) async fn decide<R>(
        &self,
        request: &RateLimitRequest<'_>,
        render: impl FnOnce(&Answer<'_>) -> R,
    ) -> CallResult<R> {
        let limits = self.validate(request)?;
        let descriptors = request.engine_descriptors(&limits);
        let verdict = self.engine.check(&request.engine_request(&descriptors)).await;
        self.answer(&verdict, request, &limits, render)
    }

    #[inline]
    fn validate(&self, request: &RateLimitRequest<'_>) -> Result<OverrideLimits, Failure> {
        let upstream = self.settings.upstream_errors;
        let refused_hits = if upstream { RefusedHits::Count } else { RefusedHits::Drop };
        request.validate(refused_hits).map_err(|error| Failure::invalid_request(error, upstream))
    }

    #[inline]
    fn answer<R>(
        &self,
        verdict: &Verdict,
        request: &RateLimitRequest<'_>,
        limits: &OverrideLimits,
        render: impl FnOnce(&Answer<'_>) -> R,
    ) -> CallResult<R> {
        if !verdict.domain_is_known() && self.lacks_rules() {
            return Err(Failure::no_rules());
        }
        let undecided = verdict.undecided();
        if let Some(undecided) = undecided.filter(|_| self.settings.upstream_errors) {
            return Err(Failure::undecided(undecided));
        }
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
    }

    /// Whether there are no rules and the settings make that an error.
    #[cold]
    fn lacks_rules(&self) -> bool {
        self.settings.upstream_errors && self.has_rules.as_ref().is_some_and(|has| !has())
    }
}
