//! The protected service.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate_engine::{Clock, LimiterStage, contain};
use tidegate_macros::{clone_fields, debug_fields};
use tidegate_overload::{ScreenedRequest, SteadyClock};
use tower_service::Service;

use super::settings::{ProtectionLayer, ProtectionStep};
use crate::body::LimitedBody;
use crate::future::{AdmittedRequest, LayerFuture};
use crate::service::take_ready;

/// A protected service; made by [`ProtectionLayer`].
pub struct ProtectedService<S, C = SteadyClock> {
    inner: S,
    layer: ProtectionLayer<C>,
}

impl<S, C> ProtectedService<S, C> {
    pub(super) const fn new(inner: S, layer: ProtectionLayer<C>) -> Self {
        ProtectedService { inner, layer }
    }
}

impl<S, C, B, R> Service<Request<B>> for ProtectedService<S, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
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
        let (mut parts, body) = request.into_parts();
        let settings = Arc::clone(&self.layer.settings);
        let screening = match parts.extensions.remove::<ScreenedRequest>() {
            Some(screened) => Ok(screened),
            None => settings.screen(&parts),
        };
        match (screening, self.layer.step) {
            (Err(refusal), _) => {
                match contain(LimiterStage::Render, || settings.refuse(&parts, &refusal)) {
                    Some(answer) => LayerFuture::refused(answer),
                    None => {
                        let answer = self.inner.call(Request::from_parts(parts, body));
                        LayerFuture::running(answer, AdmittedRequest::default())
                    }
                }
            }
            (Ok(screened), ProtectionStep::Screen) => {
                parts.extensions.insert(screened);
                let answer = self.inner.call(Request::from_parts(parts, body));
                LayerFuture::running(answer, AdmittedRequest::default())
            }
            (Ok(screened), ProtectionStep::Enter) => {
                let decision = async move {
                    let decision = settings.enter(screened, &parts).await;
                    (decision, Request::from_parts(parts, body))
                };
                LayerFuture::deciding(decision, take_ready(&mut self.inner))
            }
        }
    }
}

clone_fields!([S: Clone, C] ProtectedService<S, C> { inner, layer });

debug_fields!([S: std::fmt::Debug, C] ProtectedService<S, C> { inner });
