//! The way of one request through the limited service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::{Held, LimitedBody};
use super::receipt::{Receipt, Unserved};
use tidegate_answers::Fields;

/// What a request that may pass takes along: its slots, the fields for its answer, and what it
/// gets back if it is not served.
#[derive(Debug)]
pub(super) struct Passage {
    held: Held,
    fields: Fields,
    receipt: Option<Receipt>,
}

impl Passage {
    pub(super) const fn new(held: Held, fields: Fields) -> Self {
        Passage { held, fields, receipt: None }
    }

    /// Of a request that is not limited.
    pub(super) fn free() -> Self {
        Passage::new(Held::nothing(), Fields::default())
    }

    pub(super) fn with_receipt(self, receipt: Option<Receipt>) -> Self {
        Passage { receipt, ..self }
    }

    fn hand_over<R: Body>(self, answer: Response<R>) -> Response<LimitedBody<R>> {
        if answer.extensions().get::<Unserved>().is_some() {
            self.receipt.into_iter().for_each(Receipt::give_back);
        }
        let mut answer = answer.map(|body| LimitedBody::of_service(body, self.held));
        self.fields.add_to(answer.headers_mut());
        answer
    }
}

pin_project! {
    /// The answer to come. Dropping it gives the request up: its slots come back, and if it
    /// still waits, its place and what it was charged do too.
    pub struct RateLimitFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        stage: Stage<S, B, S::Future>,
        passage: Option<Passage>,
    }
}

/// What became of a request: it passes, or this is its answer.
pub(super) type Settled = Result<Passage, Response<Bytes>>;

/// A request that waits: for the store, in line, or for its turn.
pub(super) type Deciding<B> = Pin<Box<dyn Future<Output = (Settled, Request<B>)> + Send>>;

pin_project! {
    #[project = StageProjection]
    enum Stage<S, B, F> {
        Deciding { decision: Deciding<B>, service: Option<S> },
        Refused { answer: Option<Response<Bytes>> },
        Running { #[pin] answer: F },
    }
}

impl<S, B> RateLimitFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn deciding(decision: Deciding<B>, service: S) -> Self {
        let stage = Stage::Deciding { decision, service: Some(service) };
        RateLimitFuture { stage, passage: None }
    }

    pub(super) const fn refused(answer: Response<Bytes>) -> Self {
        RateLimitFuture { stage: Stage::Refused { answer: Some(answer) }, passage: None }
    }

    pub(super) const fn running(answer: S::Future, passage: Passage) -> Self {
        RateLimitFuture { stage: Stage::Running { answer }, passage: Some(passage) }
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
                StageProjection::Deciding { decision, service } => {
                    let (settled, request) = ready!(decision.as_mut().poll(context));
                    let mut service = service.take().expect("a request is decided once");
                    match settled {
                        Err(answer) => this.stage.set(Stage::Refused { answer: Some(answer) }),
                        Ok(passage) => {
                            *this.passage = Some(passage);
                            let answer = service.call(request);
                            this.stage.set(Stage::Running { answer });
                        }
                    }
                }
                StageProjection::Refused { answer } => {
                    let answer = answer.take().expect("a future is not polled after its end");
                    return Poll::Ready(Ok(answer.map(LimitedBody::of_refusal)));
                }
                StageProjection::Running { answer } => {
                    let answer = ready!(answer.poll(context));
                    // Taken before the error is returned: the slots come back with it.
                    let passage = this.passage.take().unwrap_or_else(Passage::free);
                    return Poll::Ready(answer.map(|answer| passage.hand_over(answer)));
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
            Stage::Deciding { .. } => "deciding",
            Stage::Refused { .. } => "refused",
            Stage::Running { .. } => "running",
        };
        f.debug_struct("RateLimitFuture").field("stage", &stage).finish_non_exhaustive()
    }
}
