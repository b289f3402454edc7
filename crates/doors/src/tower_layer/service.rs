//! The limited service: decides, then refuses, delays or passes on.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate_engine::{Clock, Nanos, SystemClock};
use tower_service::Service;

use super::answer::refuse;
use super::body::{Held, LimitedBody};
use super::future::{Passage, RateLimitFuture};
use super::settings::Settings;
use crate::headers::{Fields, HeadersOn};
use crate::notice::Notice;

/// A service behind limits; made by [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Debug)]
pub struct RateLimit<S, C = SystemClock> {
    inner: S,
    settings: Arc<Settings<C>>,
}

impl<S, C> RateLimit<S, C> {
    pub(super) const fn new(inner: S, settings: Arc<Settings<C>>) -> Self {
        RateLimit { inner, settings }
    }
}

impl<S: Clone, C> Clone for RateLimit<S, C> {
    fn clone(&self) -> Self {
        RateLimit { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

/// What becomes of a request.
enum Ruled {
    Refused(Response<Bytes>),
    Passed { after: Nanos, passage: Passage },
}

impl<S, C, B, R> Service<Request<B>> for RateLimit<S, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    C: Clock + Send + Sync + 'static,
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
        let ruled = self.settings.rule_on(&parts);
        let request = Request::from_parts(parts, body);
        match ruled {
            Ruled::Refused(answer) => RateLimitFuture::refused(answer),
            Ruled::Passed { after: Nanos::ZERO, passage } => {
                RateLimitFuture::running(self.inner.call(request), passage)
            }
            Ruled::Passed { after, passage } => {
                // The one that was made ready goes with the request; the clone
                // that stays has to become ready itself.
                let unready = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, unready);
                RateLimitFuture::waiting(after, ready, request, passage)
            }
        }
    }
}

impl<C: Clock + Send + Sync + 'static> Settings<C> {
    fn rule_on(&self, request: &http::request::Parts) -> Ruled {
        let Some(described) = (self.describe)(request) else {
            return Ruled::Passed { after: Nanos::ZERO, passage: Passage::free() };
        };
        let (verdict, permit) =
            described.ask(&self.domain, |request| self.engine.admit_now(request));
        let notice = Notice::of(&verdict);
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
