//! The future of one request behind a layer: waiting, refused, or with the service.

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
use super::refund::{PendingRefund, UnservedRequest};
use super::settings::Settings;
use tidegate_admission::{BodyEnd, EndGuard, Grant, RequestDescription};
use tidegate_answers::Fields;
use tidegate_engine::{Clock, CounterStore, LimiterStage, contain};

/// The request passes, or this is its response.
pub(super) type Decision = Result<AdmittedRequest, Response<Bytes>>;

/// The slots, header fields and refund of a request that passes.
#[derive(Debug, Default)]
pub(super) struct AdmittedRequest {
    /// Releases what the request holds.
    guard: EndGuard,
    /// The fields of its response.
    fields: Fields,
    /// Its refund if it is not served.
    refund: Option<PendingRefund>,
}

impl AdmittedRequest {
    /// A request that passed its limits.
    pub(super) fn new<T: CounterStore, C: Clock>(
        grant: Grant,
        settings: &Arc<Settings<T, C>>,
        description: RequestDescription,
    ) -> Self {
        let Grant { slots, fields, refund, .. } = grant;
        let refund = PendingRefund::of(refund, settings, description);
        AdmittedRequest { guard: EndGuard::of_slots(slots), fields, refund }
    }

    /// A request that holds only what the guard releases.
    #[cfg(feature = "protection")]
    pub(super) fn guarded(guard: EndGuard) -> Self {
        AdmittedRequest { guard, ..AdmittedRequest::default() }
    }

    fn complete<R: Body, E>(
        mut self,
        answer: Result<Response<R>, E>,
    ) -> Result<Response<LimitedBody<R>>, E> {
        // Before the error is returned: what the request holds is free with it.
        let response = answer.inspect_err(|_| self.guard.finish(BodyEnd::Broken))?;
        if response.status().is_server_error() {
            self.guard.note_server_error();
        }
        if response.extensions().get::<UnservedRequest>().is_some() {
            contain(LimiterStage::Record, || self.refund.into_iter().for_each(PendingRefund::pay));
        }
        let mut response = response.map(|body| LimitedBody::of_service(body, self.guard));
        contain(LimiterStage::Render, || self.fields.add_to(response.headers_mut()));
        Ok(response)
    }
}

pin_project! {
    /// The response to come. Dropping it abandons the request: its slots are free again, and if it still waits, it
    /// leaves its line and is refunded.
    pub struct LayerFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        stage: Stage<S, B, S::Future>,
    }
}

/// A request that waits: for the store, in line, for its turn, or at the gate.
type PendingDecision<B> = Pin<Box<dyn Future<Output = (Decision, Request<B>)> + Send>>;

pin_project! {
    #[project = StageProjection]
    enum Stage<S, B, F> {
        Deciding { decision: PendingDecision<B>, service: Option<S> },
        Refused { answer: Option<Response<Bytes>> },
        Running { #[pin] answer: F, admitted: Option<AdmittedRequest> },
    }
}

impl<S: Service<Request<B>>, B> LayerFuture<S, B> {
    /// The future of a request that waits. `service` gets it if it passes.
    pub(super) fn deciding(
        decision: impl Future<Output = (Decision, Request<B>)> + Send + 'static,
        service: S,
    ) -> Self {
        let (decision, service) = (Box::pin(decision), Some(service));
        LayerFuture { stage: Stage::Deciding { decision, service } }
    }

    pub(super) const fn refused(answer: Response<Bytes>) -> Self {
        LayerFuture { stage: Stage::Refused { answer: Some(answer) } }
    }

    pub(super) const fn running(answer: S::Future, admitted: AdmittedRequest) -> Self {
        LayerFuture { stage: Stage::Running { answer, admitted: Some(admitted) } }
    }
}

impl<S: Service<Request<B>, Response = Response<R>>, B, R: Body> Future for LayerFuture<S, B> {
    type Output = Result<Response<LimitedBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            match stage.as_mut().project() {
                StageProjection::Deciding { decision, service } => {
                    let (decision, request) = ready!(decision.as_mut().poll(context));
                    let mut service = service.take().expect("a request is decided once");
                    stage.set(match decision {
                        Err(answer) => Stage::Refused { answer: Some(answer) },
                        Ok(admitted) => {
                            let answer = service.call(request);
                            Stage::Running { answer, admitted: Some(admitted) }
                        }
                    });
                }
                StageProjection::Refused { answer } => {
                    let answer = answer.take().expect("a future is not polled after its end");
                    return Poll::Ready(Ok(answer.map(LimitedBody::of_refusal)));
                }
                StageProjection::Running { answer, admitted } => {
                    let answer = ready!(answer.poll(context));
                    return Poll::Ready(admitted.take().unwrap_or_default().complete(answer));
                }
            }
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for LayerFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.stage {
            Stage::Deciding { .. } => "LayerFuture(deciding)",
            Stage::Refused { .. } => "LayerFuture(refused)",
            Stage::Running { .. } => "LayerFuture(running)",
        })
    }
}
