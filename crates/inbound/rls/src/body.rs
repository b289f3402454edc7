//! The body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};

use super::failure::STATUS;

const OK: HeaderValue = HeaderValue::from_static("0");

/// The body of an answer: a message and its status, a text, or what health and
/// reflection say.
#[derive(Debug)]
pub struct RlsBody(Content);

#[derive(Debug)]
enum Content {
    /// One message; its status follows.
    Message(Bytes),
    /// The status of a call that went well.
    Status,
    Text(Bytes),
    Served(tonic::body::Body),
    Nothing,
}

impl RlsBody {
    /// A framed message, then the status that all went well.
    pub(super) const fn message(frame: Bytes) -> Self {
        RlsBody(Content::Message(frame))
    }

    pub(super) const fn text(text: &'static str) -> Self {
        RlsBody(Content::Text(Bytes::from_static(text.as_bytes())))
    }

    pub(super) const fn served(body: tonic::body::Body) -> Self {
        RlsBody(Content::Served(body))
    }

    pub(super) const fn empty() -> Self {
        RlsBody(Content::Nothing)
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
                *content = Content::Nothing;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(STATUS, OK);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Content::Text(text) => {
                let text = std::mem::take(text);
                *content = Content::Nothing;
                Poll::Ready(Some(Ok(Frame::data(text))))
            }
            Content::Served(body) => Pin::new(body).poll_frame(context),
            Content::Nothing => Poll::Ready(None),
        }
    }

    // The length is not told: calls have none, and a field less is sent.
    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Nothing => true,
            Content::Served(body) => body.is_end_stream(),
            Content::Message(_) | Content::Status | Content::Text(_) => false,
        }
    }
}
