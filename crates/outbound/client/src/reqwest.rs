//! reqwest's client below the layer.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::ReplayBody;

/// A [`reqwest::Client`] that takes requests of the `http` crate, for [`PacingLayer`](crate::PacingLayer).
#[derive(Clone, Debug, Default)]
pub struct ReqwestService(reqwest::Client);

impl From<reqwest::Client> for ReqwestService {
    fn from(client: reqwest::Client) -> Self {
        ReqwestService(client)
    }
}

impl<B> Service<Request<ReplayBody<B>>> for ReqwestService
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<reqwest::Body>;
    type Error = reqwest::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, reqwest::Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody<B>>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move {
            let request = reqwest::Request::try_from(request.map(reqwest::Body::wrap))?;
            client.execute(request).await.map(Response::from)
        })
    }
}
