//! The limited service: decides, then refuses, delays or passes on.
//!
//! With the embedded store a request is decided where it arrives. Another store
//! has to be waited for: then the request, and the service that was made ready
//! for it, wait in the future.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tidegate_engine::{Clock, CounterStore, MemoryStore, Nanos, Permit, SystemClock, Verdict};
use tower_service::Service;

use super::answer::refuse;
use super::body::{Held, LimitedBody};
use super::future::{Passage, RateLimitFuture};
use super::settings::Settings;
use crate::headers::{Fields, HeadersOn};
use crate::notice::Notice;

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

/// What becomes of a request.
pub(super) enum Ruled {
    Refused(Response<Bytes>),
    Passed { after: Nanos, passage: Passage },
}

impl<S, T, C, B, R> Service<Request<B>> for RateLimit<S, T, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    T: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
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
        let decided =
            described.ask(&settings.domain, |request| settings.engine.admit_here(request));
        let Some((verdict, permit)) = decided else {
            let settings = Arc::clone(settings);
            let deciding = async move {
                let (verdict, permit) = described.admit(&settings.domain, &settings.engine).await;
                let ruled = settings.rule_on(&parts, &verdict, permit);
                (ruled, Request::from_parts(parts, body))
            };
            return RateLimitFuture::deciding(Box::pin(deciding), self.take_ready());
        };
        let ruled = settings.rule_on(&parts, &verdict, permit);
        let request = Request::from_parts(parts, body);
        match ruled {
            Ruled::Refused(answer) => RateLimitFuture::refused(answer),
            Ruled::Passed { after: Nanos::ZERO, passage } => {
                RateLimitFuture::running(self.inner.call(request), passage)
            }
            Ruled::Passed { after, passage } => {
                RateLimitFuture::waiting(after, self.take_ready(), request, passage)
            }
        }
    }
}

impl<S: Clone, T, C> RateLimit<S, T, C> {
    /// The service that was made ready goes with the request; the clone that
    /// stays has to become ready itself.
    fn take_ready(&mut self) -> S {
        let unready = self.inner.clone();
        std::mem::replace(&mut self.inner, unready)
    }
}

impl<T, C> Settings<T, C>
where
    T: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    fn rule_on(&self, request: &Parts, verdict: &Verdict, permit: Permit<T, C>) -> Ruled {
        let notice = Notice::of(verdict);
        let now = self.engine.clock().now();
        if notice.is_refusal() {
            return Ruled::Refused(refuse(self, request, &notice, now));
        }
        let fields = match self.headers_on {
            HeadersOn::Always => self.headers.fields(&notice, now),
            HeadersOn::Refusal => Fields::default(),
        };
        let after = if self.wait_for_turn { verdict.delay() } else { Nanos::ZERO };
        Ruled::Passed { after, passage: Passage::new(Held::new(permit), fields) }
    }
}
