//! A service whose panics stay with the request that caused them.
//!
//! Also tells the connection's life when a request begins and ends. The panic
//! becomes an error, which hyper answers by closing an HTTP/1.1 connection
//! and by resetting an HTTP/2 stream: the client sees a failure, not an answer
//! that nobody gave. A panic in an answer's body is past this point;
//! the worker's tasks contain it.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use hyper::service::Service;
use pin_project_lite::pin_project;

use super::life::{InFlight, Life};

/// The request's service panicked.
#[derive(Debug, thiserror::Error)]
#[error("the service panicked")]
pub(super) struct Panicked;

/// The service of one connection.
pub(super) struct Contained<S> {
    inner: S,
    life: Arc<Life>,
}

impl<S> Contained<S> {
    pub(super) fn new(inner: S, life: Arc<Life>) -> Self {
        Contained { inner, life }
    }
}

impl<S, R> Service<R> for Contained<S>
where
    S: Service<R, Error = Infallible>,
{
    type Response = S::Response;
    type Error = Panicked;
    type Future = ContainedFuture<S::Future>;

    fn call(&self, request: R) -> Self::Future {
        let in_flight = InFlight::begin(&self.life);
        // Whatever the panic left half done belongs to the request, which is dropped.
        let inner = match catch_unwind(AssertUnwindSafe(|| self.inner.call(request))) {
            Ok(future) => Some(future),
            Err(payload) => {
                report(&self.life, &*payload);
                None
            }
        };
        ContainedFuture { inner, in_flight }
    }
}

pin_project! {
    /// The answer, or that there will be none.
    pub(super) struct ContainedFuture<F> {
        #[pin]
        inner: Option<F>,
        in_flight: InFlight,
    }
}

impl<F, T> Future for ContainedFuture<F>
where
    F: Future<Output = Result<T, Infallible>>,
{
    type Output = Result<T, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(Panicked));
        };
        match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
            Ok(Poll::Ready(Ok(answer))) => Poll::Ready(Ok(answer)),
            Ok(Poll::Ready(Err(never))) => match never {},
            Ok(Poll::Pending) => Poll::Pending,
            Err(payload) => {
                report(this.in_flight.life(), &*payload);
                Poll::Ready(Err(Panicked))
            }
        }
    }
}

/// Counts and logs a panic.
pub(super) fn report(life: &Life, payload: &(dyn Any + Send)) {
    life.stats().panics.fetch_add(1, Relaxed);
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    tracing::error!(door = life.door(), panic = text.unwrap_or("(no text)"), "a request panicked");
}
