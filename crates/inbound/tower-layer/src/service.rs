//! The limited service: decides, then refuses, delays or passes on.
//!
//! With the embedded store a request is decided in `call`. If it has to wait, for another store or a limit that
//! delays, the future holds the request and the service that was made ready for it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate_engine::{Clock, CounterStore, MemoryStore, SystemClock};
use tower_service::Service;

use super::body::LimitedBody;
use super::future::{AdmittedRequest, LayerFuture};
use super::settings::Settings;
use tidegate_admission::Admission;

/// A service behind limits; made by [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Debug)]
pub struct RateLimit<S, T = MemoryStore, C = SystemClock> {
    inner: S,
    settings: Arc<Settings<T, C>>,
}

impl<S, T, C> RateLimit<S, T, C> {
    pub(super) const fn new(inner: S, settings: Arc<Settings<T, C>>) -> Self {
        RateLimit { inner, settings }
    }
}

impl<S: Clone, T, C> Clone for RateLimit<S, T, C> {
    fn clone(&self) -> Self {
        RateLimit { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<S, T, C, B, R> Service<Request<B>> for RateLimit<S, T, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    T: CounterStore,
    C: Clock,
    B: Send + 'static,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = LayerFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let settings = &self.settings;
        let Some(description) = (settings.describe)(&parts) else {
            let request = Request::from_parts(parts, body);
            return LayerFuture::running(self.inner.call(request), AdmittedRequest::default());
        };
        match settings.decide_now(&description) {
            Some(Admission::Refused(refusal)) => {
                LayerFuture::refused(settings.refuse(&parts, refusal))
            }
            Some(Admission::Pass(grant)) if grant.turn.is_none() => {
                let admitted = AdmittedRequest::new(grant, settings, description);
                let request = Request::from_parts(parts, body);
                LayerFuture::running(self.inner.call(request), admitted)
            }
            decided => {
                let settings = Arc::clone(settings);
                let decision = async move {
                    let decision = settings.decide(decided, &parts, description).await;
                    (decision, Request::from_parts(parts, body))
                };
                LayerFuture::deciding(decision, take_ready(&mut self.inner))
            }
        }
    }
}

/// Takes the service that was made ready for a request; the clone that stays has to become ready itself.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let unready = service.clone();
    std::mem::replace(service, unready)
}
