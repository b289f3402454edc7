//! Confines a panic of the service to the request that caused it, and counts requests in the connection's state.
//!
//! The panic becomes an error. hyper then closes an HTTP/1.1 connection and resets an HTTP/2 stream, so the client
//! sees a failure rather than an invented response. A panic in the body of a response comes later: the batch executor
//! and the worker catch it.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use hyper::service::Service;
use pin_project_lite::pin_project;

use super::connection_state::{ConnectionState, InFlightRequest};

/// The service panicked.
#[derive(Debug, thiserror::Error)]
#[error("the service panicked")]
pub(super) struct ServicePanic;

/// A service that turns panics into errors.
pub(super) struct PanicGuard<S> {
    inner: S,
    state: Arc<ConnectionState>,
}

impl<S> PanicGuard<S> {
    pub(super) fn new(inner: S, state: Arc<ConnectionState>) -> Self {
        PanicGuard { inner, state }
    }
}

impl<S, R> Service<R> for PanicGuard<S>
where
    S: Service<R, Error = Infallible>,
{
    type Response = S::Response;
    type Error = ServicePanic;
    type Future = PanicGuardFuture<S::Future>;

    fn call(&self, request: R) -> Self::Future {
        let in_flight = InFlightRequest::begin(&self.state);
        // Unwind safe: whatever state the panic left inconsistent belongs to the request, which is dropped.
        let inner = match catch_unwind(AssertUnwindSafe(|| self.inner.call(request))) {
            Ok(future) => Some(future),
            Err(payload) => {
                report_panic(&self.state, &*payload);
                None
            }
        };
        PanicGuardFuture { inner, in_flight }
    }
}

pin_project! {
    /// The response, or [`ServicePanic`].
    pub(super) struct PanicGuardFuture<F> {
        #[pin]
        inner: Option<F>,
        in_flight: InFlightRequest,
    }
}

impl<F, T> Future for PanicGuardFuture<F>
where
    F: Future<Output = Result<T, Infallible>>,
{
    type Output = Result<T, ServicePanic>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(ServicePanic));
        };
        match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
            Ok(Poll::Ready(Ok(answer))) => Poll::Ready(Ok(answer)),
            Ok(Poll::Ready(Err(never))) => match never {},
            Ok(Poll::Pending) => Poll::Pending,
            Err(payload) => {
                report_panic(this.in_flight.state(), &*payload);
                Poll::Ready(Err(ServicePanic))
            }
        }
    }
}

/// Counts and logs a panic.
pub(super) fn report_panic(state: &ConnectionState, payload: &(dyn Any + Send)) {
    state.stats().panics.fetch_add(1, Relaxed);
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    tracing::error!(door = state.door(), panic = text.unwrap_or("(no text)"), "a request panicked");
}
