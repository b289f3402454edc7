//! The door as a service: what a request becomes until it is answered.
//!
//! Nearly all requests are checks, and the embedded store decides them without
//! waiting. Such a request has only its body to wait for: it takes no
//! allocation for its future, and the answer's header fields go where the
//! request's were. Everything else is one boxed future.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::service::Service;
use pin_project_lite::pin_project;
use tidegate_engine::{Clock, CounterStore, Timestamp, Verb};

use super::answer::Answer;
use super::body::Reading;
use super::complaint::Complaint;
use super::door::{HttpApi, Shared};
use super::head::{RefusalStatus, expect_json, refusal_status};
use super::route::{Route, route};

impl<S, C, B> Service<Request<B>> for HttpApi<S, C>
where
    S: CounterStore,
    C: Clock,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = HttpApiFuture<S, C, B>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let stage = match shared.checks_at_once(&request) {
            Some((verb, refusal)) => {
                let began = shared.engine.clock().now();
                let (mut head, body) = request.into_parts();
                head.headers.clear();
                let check = Check { shared, verb, refusal, began, headers: head.headers };
                Stage::Checking { reading: Reading::new(body), check: Some(check) }
            }
            None => {
                Stage::Answering { answer: Box::pin(async move { shared.answer(request).await }) }
            }
        };
        HttpApiFuture { stage }
    }
}

impl<S, C> Shared<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// What to do with a request that waits for its body only; none for any
    /// other, also where something is wrong with it.
    fn checks_at_once<B>(&self, request: &Request<B>) -> Option<(Verb, RefusalStatus)> {
        self.engine.local()?;
        let Ok(Route::Apply(verb)) = route(request.method(), request.uri().path()) else {
            return None;
        };
        self.permit_verb(verb).and_then(|()| expect_json(request.headers())).ok()?;
        Some((verb, refusal_status(verb, request.uri().query()).ok()?))
    }
}

/// A request that waits for its body.
struct Check<S, C> {
    shared: Arc<Shared<S, C>>,
    verb: Verb,
    refusal: RefusalStatus,
    began: Timestamp,
    /// Those of the request, emptied.
    headers: HeaderMap,
}

impl<S, C> Check<S, C>
where
    S: CounterStore,
    C: Clock,
{
    fn answer(self, body: Result<Bytes, Complaint>) -> Answer {
        let Check { shared, verb, refusal, began, headers } = self;
        let responded = body.and_then(|body| {
            let applied = pin!(shared.apply(verb, refusal, &body, headers));
            // The embedded store answers at once, and nobody else is asked here.
            match applied.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(responded) => responded,
                Poll::Pending => Err(Complaint::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the store did not answer at once",
                )),
            }
        });
        shared.count(responded, began)
    }
}

pin_project! {
    /// An answer to come.
    pub struct HttpApiFuture<S, C, B> {
        #[pin]
        stage: Stage<S, C, B>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, C, B> {
        Checking { #[pin] reading: Reading<B>, check: Option<Check<S, C>> },
        Answering { answer: Pin<Box<dyn Future<Output = Answer> + Send>> },
    }
}

impl<S, C, B> Future for HttpApiFuture<S, C, B>
where
    S: CounterStore,
    C: Clock,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<Full<Bytes>>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match self.project().stage.project() {
            StageProjection::Answering { answer } => ready!(answer.as_mut().poll(context)),
            StageProjection::Checking { reading, check } => {
                let waiting = check.as_ref().expect("a future is not polled after its end");
                let bytes_max = waiting.shared.parts.settings.body_bytes_max;
                let body = ready!(reading.poll(bytes_max, context));
                let check = check.take().expect("it was there a moment ago");
                let body = body.map_err(|unread| check.shared.unread(unread));
                check.answer(body)
            }
        }))
    }
}

impl<S, C, B> fmt::Debug for HttpApiFuture<S, C, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpApiFuture")
    }
}
