//! The protected service, and the service that only screens.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate_engine::Clock;
use tidegate_overload::{ScreenedRequest, SteadyClock};
use tower_service::Service;

use super::future::ProtectedFuture;
use super::settings::Settings;
use crate::body::LimitedBody;

/// A protected service; made by [`ProtectionLayer`](super::ProtectionLayer).
pub struct ProtectedService<S, C = SteadyClock> {
    inner: S,
    settings: Arc<Settings<C>>,
}

/// A service whose requests are screened; made by [`ScreeningLayer`](super::ScreeningLayer).
pub struct ScreenedService<S, C = SteadyClock> {
    inner: S,
    settings: Arc<Settings<C>>,
}

impl<S, C> ProtectedService<S, C> {
    pub(super) const fn new(inner: S, settings: Arc<Settings<C>>) -> Self {
        ProtectedService { inner, settings }
    }
}

impl<S, C> ScreenedService<S, C> {
    pub(super) const fn new(inner: S, settings: Arc<Settings<C>>) -> Self {
        ScreenedService { inner, settings }
    }
}

impl<S, C, B, R> Service<Request<B>> for ProtectedService<S, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    C: Clock,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = ProtectedFuture<S, B, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let screening = match parts.extensions.remove::<ScreenedRequest>() {
            Some(screened) => Ok(screened),
            None => self.settings.screen(&parts),
        };
        match screening {
            Err(refusal) => ProtectedFuture::refused(self.settings.refuse(&parts, &refusal)),
            Ok(screened) => {
                // The future takes the service that was made ready; the clone that stays has to become ready itself.
                let unready = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, unready);
                let request = Request::from_parts(parts, body);
                ProtectedFuture::entering(Arc::clone(&self.settings), screened, ready, request)
            }
        }
    }
}

impl<S, C, B, R> Service<Request<B>> for ScreenedService<S, C>
where
    S: Service<Request<B>, Response = Response<R>>,
    C: Clock,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = ProtectedFuture<S, B, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        match self.settings.screen(&parts) {
            Err(refusal) => ProtectedFuture::refused(self.settings.refuse(&parts, &refusal)),
            Ok(screened) => {
                parts.extensions.insert(screened);
                let request = Request::from_parts(parts, body);
                ProtectedFuture::passing(self.inner.call(request))
            }
        }
    }
}

impl<S: Clone, C> Clone for ProtectedService<S, C> {
    fn clone(&self) -> Self {
        ProtectedService { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<S: Clone, C> Clone for ScreenedService<S, C> {
    fn clone(&self) -> Self {
        ScreenedService { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for ProtectedService<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, C> fmt::Debug for ScreenedService<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScreenedService").field("inner", &self.inner).finish_non_exhaustive()
    }
}
