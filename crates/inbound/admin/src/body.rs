//! The body of an answer: whole, or a stream of events.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

/// The body of an answer of the debug port.
pub struct DebugBody(Content);

enum Content {
    Whole(Full<Bytes>),
    Events(Pin<Box<dyn EventSource>>),
}

/// Produces the frames of a stream. It is asked for one only when the last one was written, so that a slow reader makes
/// nothing pile up.
pub(crate) trait EventSource: Send {
    /// The next frame, when it is due.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Bytes>;
}

impl DebugBody {
    /// A stream that ends when its reader goes.
    pub(crate) fn events(source: impl EventSource + 'static) -> Self {
        DebugBody(Content::Events(Box::pin(source)))
    }
}

impl<T: Into<Bytes>> From<T> for DebugBody {
    fn from(bytes: T) -> Self {
        DebugBody(Content::Whole(Full::new(bytes.into())))
    }
}

impl Body for DebugBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Content::Whole(whole) => Pin::new(whole).poll_frame(context),
            Content::Events(source) => {
                source.as_mut().poll_next(context).map(|bytes| Some(Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Whole(whole) => whole.is_end_stream(),
            Content::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Whole(whole) => whole.size_hint(),
            Content::Events(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for DebugBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Content::Whole(_) => "DebugBody(whole)",
            Content::Events(_) => "DebugBody(events)",
        })
    }
}
