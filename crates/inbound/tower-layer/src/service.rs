//! The limited service: decides, then refuses, delays or passes on.
//!
//! With the embedded store a request is decided where it arrives. Another store
//! has to be waited for, and so have limits that delay: then the request, and the service that
//! was made ready for it, wait in the future.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate_engine::{Clock, CounterStore, MemoryStore, SystemClock, Tenure};
use tower_service::Service;

use super::body::LimitedBody;
use super::future::{Passage, RateLimitFuture, Settled};
use super::receipt::Receipt;
use super::settings::Settings;
use super::waiting::Ruled;

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
    type Future = RateLimitFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let settings = &self.settings;
        let Some(described) = (settings.describe)(&parts) else {
            let request = Request::from_parts(parts, body);
            return RateLimitFuture::running(self.inner.call(request), Passage::free());
        };
        if let Some(line) = settings.line_before(&described) {
            let settings = Arc::clone(settings);
            return self.wait(async move {
                let settled = settings.stand(line, None, &parts, described).await;
                (settled, Request::from_parts(parts, body))
            });
        }
        let patience = settings.delay.wait_max;
        let ruled = settings.engine.local().map(|engine| {
            let (mut verdict, permit) =
                described.ask(&settings.domain, |request| engine.admit_now(request, Tenure::Held));
            settings.rule_on(&parts, &described, &mut verdict, permit, patience)
        });
        let Some(ruled) = ruled else {
            let settings = Arc::clone(settings);
            return self.wait(async move {
                let settled = settings.decide(&parts, described).await;
                (settled, Request::from_parts(parts, body))
            });
        };
        match ruled {
            Ruled::Refused(answer) => RateLimitFuture::refused(answer),
            Ruled::Passed(passage, charged) => {
                let passage = passage.with_receipt(Receipt::of(settings, described, charged));
                let request = Request::from_parts(parts, body);
                RateLimitFuture::running(self.inner.call(request), passage)
            }
            later => {
                let settings = Arc::clone(settings);
                self.wait(async move {
                    let settled = settings.settle(later, &parts, described).await;
                    (settled, Request::from_parts(parts, body))
                })
            }
        }
    }
}

impl<S: Clone, T, C> RateLimit<S, T, C> {
    fn wait<B>(
        &mut self,
        decision: impl Future<Output = (Settled, Request<B>)> + Send + 'static,
    ) -> RateLimitFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        RateLimitFuture::deciding(Box::pin(decision), self.take_ready())
    }

    /// The service that was made ready goes with the request; the clone that
    /// stays has to become ready itself.
    fn take_ready(&mut self) -> S {
        let unready = self.inner.clone();
        std::mem::replace(&mut self.inner, unready)
    }
}
