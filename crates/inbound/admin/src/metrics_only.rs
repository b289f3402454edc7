//! The metrics alone, for a port that others may reach.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::service::Service;
use tidegate_engine::{Clock, CounterStore};

use super::answer::Problem;
use super::door::DebugDoor;

/// Shows the metrics at one path, and nothing else.
#[derive(Debug)]
pub struct MetricsDoor<S, C> {
    door: DebugDoor<S, C>,
    path: Arc<str>,
}

impl<S, C> MetricsDoor<S, C> {
    pub(super) fn new(door: DebugDoor<S, C>, path: &str) -> Self {
        MetricsDoor { door, path: path.into() }
    }
}

impl<S, C> Clone for MetricsDoor<S, C> {
    fn clone(&self) -> Self {
        MetricsDoor { door: self.door.clone(), path: Arc::clone(&self.path) }
    }
}

impl<S, C, B> Service<Request<B>> for MetricsDoor<S, C>
where
    S: CounterStore,
    C: Clock,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let (method, path) = (request.method(), request.uri().path());
        let answer = if path != &*self.path {
            Problem::new(StatusCode::NOT_FOUND, format!("the metrics are at {}", self.path)).into()
        } else if matches!(*method, Method::GET | Method::HEAD) {
            self.door.metrics(request.headers())
        } else {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "metrics are read with GET").into()
        };
        std::future::ready(Ok(answer))
    }
}
