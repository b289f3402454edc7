//! The future of a request.
//!
//! Nearly all requests are checks, and the store in memory decides them without waiting. Such a request waits for its body
//! only: its future needs no allocation, and the response reuses the header map of the request. Any other request is one
//! boxed future.

use std::convert::Infallible;
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
use tidegate_access::{BodyLimits, BodyReader};
use tidegate_engine::{Clock, CounterStore, Timestamp, Verb};
use tidegate_macros::debug_fields;

use super::{ApiState, HttpApi};
use crate::decode::head::{RefusalStatus, expect_json, refusal_status};
use crate::encode::response::HttpResponse;
use crate::problem::RequestProblem;
use crate::route::{Route, route};

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
        let state = match shared.immediate_check(&request) {
            Some((verb, refusal)) => {
                let began = shared.engine.clock().now();
                let (mut head, body) = request.into_parts();
                head.headers.clear();
                let check = PendingCheck { shared, verb, refusal, began, headers: head.headers };
                RequestState::Reading { reader: BodyReader::new(body), check: Some(check) }
            }
            None => RequestState::Boxed {
                response: Box::pin(async move { shared.answer(request).await }),
            },
        };
        HttpApiFuture { state }
    }
}

impl<S: CounterStore, C: Clock> ApiState<S, C> {
    /// The verb and refusal status of a request that waits for its body only. None for any other, also for an invalid one.
    fn immediate_check<B>(&self, request: &Request<B>) -> Option<(Verb, RefusalStatus)> {
        self.engine.local()?;
        let route = route(request.method(), request.uri().path()).ok()?;
        let Route::Apply(verb) = route else { return None };
        self.authorize(route, request.headers()).ok()?;
        expect_json(request.headers()).ok()?;
        Some((verb, refusal_status(verb, request.uri().query()).ok()?))
    }
}

/// A check that waits for its body.
struct PendingCheck<S, C> {
    shared: Arc<ApiState<S, C>>,
    verb: Verb,
    refusal: RefusalStatus,
    began: Timestamp,
    /// The header map of the request, emptied.
    headers: HeaderMap,
}

impl<S: CounterStore, C: Clock> PendingCheck<S, C> {
    fn answer(self, body: Result<Bytes, RequestProblem>) -> HttpResponse {
        let PendingCheck { shared, verb, refusal, began, headers } = self;
        let result = body.and_then(|body| {
            let applied = pin!(shared.apply(verb, refusal, &body, headers));
            // The store in memory answers at the first poll.
            match applied.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => result,
                Poll::Pending => Err(RequestProblem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the store did not answer at once",
                )),
            }
        });
        shared.count(result, began)
    }
}

pin_project! {
    /// A response to come.
    pub struct HttpApiFuture<S, C, B> {
        #[pin]
        state: RequestState<S, C, B>,
    }
}

pin_project! {
    #[project = RequestStateProjection]
    enum RequestState<S, C, B> {
        Reading { #[pin] reader: BodyReader<B>, check: Option<PendingCheck<S, C>> },
        Boxed { response: Pin<Box<dyn Future<Output = HttpResponse> + Send>> },
    }
}

impl<S: CounterStore, C: Clock, B: Body<Data = Bytes>> Future for HttpApiFuture<S, C, B> {
    type Output = Result<Response<Full<Bytes>>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match self.project().state.project() {
            RequestStateProjection::Boxed { response } => ready!(response.as_mut().poll(context)),
            RequestStateProjection::Reading { reader, check } => {
                let pending = check.as_ref().expect("a future is not polled after its end");
                let settings = &pending.shared.parts.settings;
                let limits = BodyLimits {
                    bytes_max: settings.body_bytes_max,
                    timeout: settings.body_timeout,
                };
                let body = ready!(reader.poll(limits, context));
                let check = check.take().expect("present in the line above");
                let body = body.map_err(|error| check.shared.body_problem(error));
                check.answer(body)
            }
        }))
    }
}

debug_fields!([S, C, B] HttpApiFuture<S, C, B> {});
