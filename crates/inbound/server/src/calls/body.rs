//! The body of a call's request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame};

/// The body of a call: what comes on its stream.
#[derive(Debug)]
pub struct CallBody {
    stream: RecvStream,
    /// There are no more bytes; trailers may come.
    read: bool,
    ended: bool,
}

/// The client gave the call up, or the connection broke.
#[derive(Debug, thiserror::Error)]
#[error("the body broke off before its end")]
pub struct BrokenOff(#[source] h2::Error);

impl CallBody {
    pub(super) const fn new(stream: RecvStream) -> Self {
        CallBody { stream, read: false, ended: false }
    }

    #[inline]
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        let Some(data) = ready!(self.stream.poll_data(cx)) else {
            self.read = true;
            return Poll::Ready(None);
        };
        let data = data.map_err(BrokenOff);
        self.ended = self.stream.is_end_stream();
        if let Ok(data) = &data
            && !self.ended
        {
            // More may come, so the client is told that there is room for it. What
            // came last is told with the end of the stream.
            let told = self.stream.flow_control().release_capacity(data.len());
            if let Err(error) = told {
                return Poll::Ready(Some(Err(BrokenOff(error))));
            }
        }
        Poll::Ready(Some(data))
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = BrokenOff;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if !this.read
            && let Some(data) = ready!(this.poll_data(cx))
        {
            return Poll::Ready(Some(data.map(Frame::data)));
        }
        let trailers = ready!(this.stream.poll_trailers(cx));
        this.ended = true;
        Poll::Ready(trailers.map_err(BrokenOff).map(|some| some.map(Frame::trailers)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
