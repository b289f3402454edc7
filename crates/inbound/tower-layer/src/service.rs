//! The limited service: decides, then refuses, delays or passes on.
//!
//! With the embedded store a request is decided in `call`. If it has to wait, for another store or a limit that
//! delays, the future holds the request and the service that was made ready for it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate_engine::{Clock, CounterStore, LimiterStage, MemoryStore, SystemClock, contain};
use tower_service::Service;

use super::body::LimitedBody;
use super::future::{AdmittedRequest, LayerFuture};
use super::settings::Settings;
use tidegate_admission::{Admission, Grant};
use tidegate_macros::clone_fields;

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

clone_fields!([S: Clone, T, C] RateLimit<S, T, C> { inner, settings });

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
        // A request whose description or decision panics is admitted: see `tidegate_engine::contain`.
        let description = contain(LimiterStage::Describe, || (settings.describe)(&parts)).flatten();
        let decided = description.as_ref().map_or_else(admit, |description| {
            contain(LimiterStage::Decide, || settings.decide_now(description)).unwrap_or_else(admit)
        });
        let admitted = match (decided, description) {
            (Some(Admission::Refused(refusal)), _) => {
                match contain(LimiterStage::Render, || settings.refuse(&parts, refusal)) {
                    Some(answer) => return LayerFuture::refused(answer),
                    None => AdmittedRequest::default(),
                }
            }
            (Some(Admission::Pass(grant)), Some(description)) if grant.turn.is_none() => {
                AdmittedRequest::new(grant, settings, description)
            }
            (_, None) => AdmittedRequest::default(),
            (decided, Some(description)) => {
                let settings = Arc::clone(settings);
                let decision = async move {
                    let decision = settings.decide(decided, &parts, description).await;
                    (decision, Request::from_parts(parts, body))
                };
                return LayerFuture::deciding(decision, take_ready(&mut self.inner));
            }
        };
        LayerFuture::running(self.inner.call(Request::from_parts(parts, body)), admitted)
    }
}

/// The decision for a request without limits.
fn admit() -> Option<Admission> {
    Some(Admission::Pass(Grant::unlimited()))
}

/// Takes the service that was made ready for a request; the clone that stays has to become ready itself.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let unready = service.clone();
    std::mem::replace(service, unready)
}
