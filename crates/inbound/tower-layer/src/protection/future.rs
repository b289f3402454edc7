//! The way of one request through the protected service.

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

use super::layer::Settings;
use crate::body::{End, Held, Holding, LimitedBody};

/// What an admitted request holds, and where it tells how it ended.
struct Inside<C: Clock> {
    settings: Arc<Settings<C>>,
    pass: Pass<C>,
    /// Whether the service itself said that it failed.
    failed: bool,
}

impl<C: Clock> Inside<C> {
    fn finish(self, ending: Completion) {
        let now = self.settings.protection.clock().now();
        self.pass.finish(now, ending);
    }
}

impl<C: Clock> Holding for Inside<C> {
    fn end(self: Box<Self>, end: End) {
        let ending = match end {
            End::Whole if self.failed => Completion::Failed,
            End::Whole => Completion::Succeeded,
            End::Broken => Completion::Failed,
            End::Dropped => Completion::Abandoned,
        };
        self.finish(ending);
    }
}

/// A request on its way in.
type Entering<C> = Pin<Box<dyn Future<Output = Result<Pass<C>, Refusal>> + Send>>;

pin_project! {
    /// The answer to come. Dropping it gives the request up, and whatever it holds.
    pub struct ProtectedFuture<S, B, C>
    where
        S: Service<Request<B>>,
        C: Clock,
    {
        #[pin]
        stage: Stage<S, B, C, S::Future>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, B, C: Clock, F> {
        Refused { answer: Option<Response<Bytes>> },
        Entering {
            settings: Arc<Settings<C>>,
            entering: Entering<C>,
            waiting: Option<(S, Request<B>)>,
        },
        Running { #[pin] answer: F, inside: Option<Inside<C>> },
    }
}

impl<S, B, C> ProtectedFuture<S, B, C>
where
    S: Service<Request<B>>,
    C: Clock,
{
    pub(super) const fn refused(answer: Response<Bytes>) -> Self {
        ProtectedFuture { stage: Stage::Refused { answer: Some(answer) } }
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
        ProtectedFuture { stage: Stage::Entering { settings, entering, waiting } }
    }

    /// Of a request that holds nothing here.
    pub(super) const fn passing(answer: S::Future) -> Self {
        ProtectedFuture { stage: Stage::Running { answer, inside: None } }
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
                StageProjection::Refused { answer } => {
                    let answer = answer.take().expect("a future is not polled after its end");
                    return Poll::Ready(Ok(answer.map(LimitedBody::of_refusal)));
                }
                StageProjection::Entering { settings, entering, waiting } => {
                    let admission = ready!(entering.as_mut().poll(context));
                    let (mut service, request) = waiting.take().expect("a request enters once");
                    let settings = Arc::clone(settings);
                    match admission {
                        Err(refusal) => {
                            let (parts, _body) = request.into_parts();
                            let answer = Some(settings.refuse(&parts, &refusal));
                            this.stage.set(Stage::Refused { answer });
                        }
                        Ok(pass) => {
                            let inside = Some(Inside { settings, pass, failed: false });
                            let answer = service.call(request);
                            this.stage.set(Stage::Running { answer, inside });
                        }
                    }
                }
                StageProjection::Running { answer, inside } => {
                    let answer = ready!(answer.poll(context));
                    return Poll::Ready(hand_over(answer, inside.take()));
                }
            }
        }
    }
}

/// The answer, with what its request holds.
fn hand_over<R: Body, E, C: Clock>(
    answer: Result<Response<R>, E>,
    inside: Option<Inside<C>>,
) -> Result<Response<LimitedBody<R>>, E> {
    match (answer, inside) {
        (Ok(answer), None) => Ok(answer.map(|body| LimitedBody::of_service(body, Held::nothing()))),
        (Ok(answer), Some(inside)) => {
            let failed = answer.status().is_server_error();
            let held = Held::holding(Inside { failed, ..inside });
            Ok(answer.map(|body| LimitedBody::of_service(body, held)))
        }
        (Err(error), inside) => {
            inside.into_iter().for_each(|inside| inside.finish(Completion::Failed));
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
            Stage::Refused { .. } => "refused",
            Stage::Entering { .. } => "entering",
            Stage::Running { .. } => "running",
        };
        f.debug_struct("ProtectedFuture").field("stage", &stage).finish_non_exhaustive()
    }
}
