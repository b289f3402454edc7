//! The body of a call's request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame};

/// The body of a call's request: the data and trailers of its stream.
#[derive(Debug)]
pub struct CallBody {
    stream: RecvStream,
    /// All data was read; trailers may follow.
    read: bool,
    ended: bool,
}

/// The client reset the stream, or the connection broke.
#[derive(Debug, thiserror::Error)]
#[error("the body ended early")]
pub struct CallBodyError(#[source] h2::Error);

impl CallBody {
    pub(super) const fn new(stream: RecvStream) -> Self {
        CallBody { stream, read: false, ended: false }
    }

    #[inline]
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CallBodyError>>> {
        let Some(data) = ready!(self.stream.poll_data(cx)) else {
            self.read = true;
            return Poll::Ready(None);
        };
        let data = data.map_err(CallBodyError);
        self.ended = self.stream.is_end_stream();
        if let Ok(data) = &data
            && !self.ended
        {
            // More data may come, so its window is restored. After the last data the stream ends anyway.
            let released = self.stream.flow_control().release_capacity(data.len());
            if let Err(error) = released {
                return Poll::Ready(Some(Err(CallBodyError(error))));
            }
        }
        Poll::Ready(Some(data))
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = CallBodyError;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallBodyError>>> {
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
        Poll::Ready(
            trailers.map_err(CallBodyError).map(|some| some.map(Frame::trailers)).transpose(),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
