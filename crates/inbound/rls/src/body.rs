//! The body of a response.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::Full;

use super::failure::STATUS;

const OK: HeaderValue = HeaderValue::from_static("0");

/// The body of a response: a message and its status, or a body of tonic's for texts, health and reflection.
#[derive(Debug)]
pub struct RlsBody(Content);

#[derive(Debug)]
enum Content {
    /// One message; the status follows.
    Message(Bytes),
    /// The status of a successful call.
    Status,
    Tonic(tonic::body::Body),
    Empty,
}

impl RlsBody {
    /// A framed message, then the status `OK`.
    pub(super) const fn message(frame: Bytes) -> Self {
        RlsBody(Content::Message(frame))
    }

    pub(super) fn text(text: &'static str) -> Self {
        RlsBody::tonic(tonic::body::Body::new(Full::from(text)))
    }

    pub(super) const fn tonic(body: tonic::body::Body) -> Self {
        RlsBody(Content::Tonic(body))
    }

    pub(super) const fn empty() -> Self {
        RlsBody(Content::Empty)
    }
}

impl Body for RlsBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let content = &mut self.get_mut().0;
        match content {
            Content::Message(frame) => {
                let frame = std::mem::take(frame);
                *content = Content::Status;
                Poll::Ready(Some(Ok(Frame::data(frame))))
            }
            Content::Status => {
                *content = Content::Empty;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(STATUS, OK);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Content::Tonic(body) => Pin::new(body).poll_frame(context),
            Content::Empty => Poll::Ready(None),
        }
    }

    // No size hint: calls need no `content-length`, and one header less is sent.
    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Empty => true,
            Content::Tonic(body) => body.is_end_stream(),
            Content::Message(_) | Content::Status => false,
        }
    }
}
