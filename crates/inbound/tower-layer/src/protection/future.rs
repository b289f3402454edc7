//! The future of one request: refused, at the gate, or with the service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tidegate_engine::Clock;
use tidegate_overload::{Completion, Pass, Refusal, ScreenedRequest};
use tower_service::Service;

use super::settings::Settings;
use crate::body::LimitedBody;
use tidegate_admission::{BodyEnd, EndGuard, OnBodyEnd};

/// The pass of an admitted request; reports to the gate how the request ended.
struct PassGuard<C: Clock> {
    settings: Arc<Settings<C>>,
    pass: Pass<C>,
    /// Whether the service returned a server error.
    failed: bool,
}

impl<C: Clock> PassGuard<C> {
    fn finish(self, ending: Completion) {
        let now = self.settings.protection.clock().now();
        self.pass.finish(now, ending);
    }
}

impl<C: Clock> OnBodyEnd for PassGuard<C> {
    fn ended(self: Box<Self>, end: BodyEnd, _bytes: u64) {
        let ending = match end {
            BodyEnd::Complete if self.failed => Completion::Failed,
            BodyEnd::Complete => Completion::Succeeded,
            BodyEnd::Broken => Completion::Failed,
            BodyEnd::Dropped => Completion::Abandoned,
        };
        self.finish(ending);
    }
}

/// A request at the gate.
type PendingEntry<C> = Pin<Box<dyn Future<Output = Result<Pass<C>, Refusal>> + Send>>;

pin_project! {
    /// The response to come. Dropping it abandons the request and releases what it holds.
    pub struct ProtectedFuture<S, B, C>
    where
        S: Service<Request<B>>,
        C: Clock,
    {
        #[pin]
        stage: ProtectionStage<S, B, C, S::Future>,
    }
}

pin_project! {
    #[project = ProtectionStageProjection]
    enum ProtectionStage<S, B, C: Clock, F> {
        Refused { answer: Option<Response<Bytes>> },
        Entering {
            settings: Arc<Settings<C>>,
            entering: PendingEntry<C>,
            waiting: Option<(S, Request<B>)>,
        },
        Running { #[pin] answer: F, guard: Option<PassGuard<C>> },
    }
}

impl<S, B, C> ProtectedFuture<S, B, C>
where
    S: Service<Request<B>>,
    C: Clock,
{
    pub(super) const fn refused(answer: Response<Bytes>) -> Self {
        ProtectedFuture { stage: ProtectionStage::Refused { answer: Some(answer) } }
    }

    pub(super) fn entering(
        settings: Arc<Settings<C>>,
        screened: ScreenedRequest,
        service: S,
        request: Request<B>,
    ) -> Self {
        let protection = Arc::clone(&settings.protection);
        let entering = Box::pin(async move { protection.enter(screened).await });
        let waiting = Some((service, request));
        ProtectedFuture { stage: ProtectionStage::Entering { settings, entering, waiting } }
    }

    /// The future of a request that holds nothing in this layer.
    pub(super) const fn passing(answer: S::Future) -> Self {
        ProtectedFuture { stage: ProtectionStage::Running { answer, guard: None } }
    }
}

impl<S, B, C, R> Future for ProtectedFuture<S, B, C>
where
    S: Service<Request<B>, Response = Response<R>>,
    C: Clock,
    R: Body,
{
    type Output = Result<Response<LimitedBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.stage.as_mut().project() {
                ProtectionStageProjection::Refused { answer } => {
                    let answer = answer.take().expect("a future is not polled after its end");
                    return Poll::Ready(Ok(answer.map(LimitedBody::of_refusal)));
                }
                ProtectionStageProjection::Entering { settings, entering, waiting } => {
                    let admission = ready!(entering.as_mut().poll(context));
                    let (mut service, request) = waiting.take().expect("a request enters once");
                    let settings = Arc::clone(settings);
                    match admission {
                        Err(refusal) => {
                            let (parts, _body) = request.into_parts();
                            let answer = Some(settings.refuse(&parts, &refusal));
                            this.stage.set(ProtectionStage::Refused { answer });
                        }
                        Ok(pass) => {
                            let guard = Some(PassGuard { settings, pass, failed: false });
                            let answer = service.call(request);
                            this.stage.set(ProtectionStage::Running { answer, guard });
                        }
                    }
                }
                ProtectionStageProjection::Running { answer, guard } => {
                    let answer = ready!(answer.poll(context));
                    return Poll::Ready(into_response(answer, guard.take()));
                }
            }
        }
    }
}

/// The response, with the guard of its request.
fn into_response<R: Body, E, C: Clock>(
    answer: Result<Response<R>, E>,
    guard: Option<PassGuard<C>>,
) -> Result<Response<LimitedBody<R>>, E> {
    match (answer, guard) {
        (Ok(answer), None) => {
            Ok(answer.map(|body| LimitedBody::of_service(body, EndGuard::default())))
        }
        (Ok(answer), Some(guard)) => {
            let failed = answer.status().is_server_error();
            let guard = EndGuard::new(Box::new(PassGuard { failed, ..guard }));
            Ok(answer.map(|body| LimitedBody::of_service(body, guard)))
        }
        (Err(error), guard) => {
            guard.into_iter().for_each(|guard| guard.finish(Completion::Failed));
            Err(error)
        }
    }
}

impl<S, B, C> fmt::Debug for ProtectedFuture<S, B, C>
where
    S: Service<Request<B>>,
    C: Clock,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            ProtectionStage::Refused { .. } => "refused",
            ProtectionStage::Entering { .. } => "entering",
            ProtectionStage::Running { .. } => "running",
        };
        f.debug_struct("ProtectedFuture").field("stage", &stage).finish_non_exhaustive()
    }
}
