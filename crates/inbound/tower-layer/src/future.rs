//! The future of one request: waiting, refused, or with the service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::LimitedBody;
use super::decide::Decision;
use super::refund::{PendingRefund, UnservedRequest};
use super::settings::Settings;
use tidegate_admission::{EndGuard, Grant, HeldSlots, RequestDescription};
use tidegate_answers::Fields;
use tidegate_engine::{Clock, CounterStore};

/// What a request that passes takes along.
#[derive(Debug, Default)]
pub(super) struct AdmittedRequest {
    slots: Option<HeldSlots>,
    /// The fields of its response.
    fields: Fields,
    /// What it gets back if it is not served.
    refund: Option<PendingRefund>,
}

impl AdmittedRequest {
    pub(super) fn new<T, C>(
        grant: Grant,
        settings: &Arc<Settings<T, C>>,
        description: RequestDescription,
    ) -> Self
    where
        T: CounterStore,
        C: Clock,
    {
        let Grant { slots, fields, refund, .. } = grant;
        AdmittedRequest { slots, fields, refund: PendingRefund::of(refund, settings, description) }
    }

    fn into_response<R: Body>(self, response: Response<R>) -> Response<LimitedBody<R>> {
        if response.extensions().get::<UnservedRequest>().is_some() {
            self.refund.into_iter().for_each(PendingRefund::pay);
        }
        let guard = EndGuard::of_slots(self.slots);
        let mut response = response.map(|body| LimitedBody::of_service(body, guard));
        self.fields.add_to(response.headers_mut());
        response
    }
}

pin_project! {
    /// The response to come. Dropping it abandons the request: its slots are free again, and if it still waits, it
    /// leaves its line and is refunded.
    pub struct RateLimitFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        stage: LimitStage<S, B, S::Future>,
        admitted: Option<AdmittedRequest>,
    }
}

/// A request that waits: for the store, in line, or for its turn.
pub(super) type PendingDecision<B> = Pin<Box<dyn Future<Output = (Decision, Request<B>)> + Send>>;

pin_project! {
    #[project = LimitStageProjection]
    enum LimitStage<S, B, F> {
        Deciding { decision: PendingDecision<B>, service: Option<S> },
        Refused { answer: Option<Response<Bytes>> },
        Running { #[pin] answer: F },
    }
}

impl<S, B> RateLimitFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn deciding(decision: PendingDecision<B>, service: S) -> Self {
        let stage = LimitStage::Deciding { decision, service: Some(service) };
        RateLimitFuture { stage, admitted: None }
    }

    pub(super) const fn refused(answer: Response<Bytes>) -> Self {
        RateLimitFuture { stage: LimitStage::Refused { answer: Some(answer) }, admitted: None }
    }

    pub(super) const fn running(answer: S::Future, admitted: AdmittedRequest) -> Self {
        RateLimitFuture { stage: LimitStage::Running { answer }, admitted: Some(admitted) }
    }
}

impl<S, B, R> Future for RateLimitFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Output = Result<Response<LimitedBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.stage.as_mut().project() {
                LimitStageProjection::Deciding { decision, service } => {
                    let (decision, request) = ready!(decision.as_mut().poll(context));
                    let mut service = service.take().expect("a request is decided once");
                    match decision {
                        Err(answer) => this.stage.set(LimitStage::Refused { answer: Some(answer) }),
                        Ok(admitted) => {
                            *this.admitted = Some(admitted);
                            let answer = service.call(request);
                            this.stage.set(LimitStage::Running { answer });
                        }
                    }
                }
                LimitStageProjection::Refused { answer } => {
                    let answer = answer.take().expect("a future is not polled after its end");
                    return Poll::Ready(Ok(answer.map(LimitedBody::of_refusal)));
                }
                LimitStageProjection::Running { answer } => {
                    let answer = ready!(answer.poll(context));
                    // Taken before the error is returned: the slots are free with it.
                    let admitted = this.admitted.take().unwrap_or_default();
                    return Poll::Ready(answer.map(|answer| admitted.into_response(answer)));
                }
            }
        }
    }
}

impl<S, B> fmt::Debug for RateLimitFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            LimitStage::Deciding { .. } => "deciding",
            LimitStage::Refused { .. } => "refused",
            LimitStage::Running { .. } => "running",
        };
        f.debug_struct("RateLimitFuture").field("stage", &stage).finish_non_exhaustive()
    }
}
