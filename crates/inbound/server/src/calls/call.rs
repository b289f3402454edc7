//! One call, from its request to the last frame of its response.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::Response;
use http_body::{Body, Frame};

use crate::connection_state::{ConnectionState, InFlightRequest};
use crate::panic_guard::report_panic;

/// A call in flight.
pub(super) struct InFlightCall<F, B> {
    stage: Stage<F, B>,
    reply: SendResponse<Bytes>,
    in_flight: InFlightRequest,
}

enum Stage<F, B> {
    Running(F),
    Sending(ResponseSender<B>),
}

struct ResponseSender<B> {
    body: B,
    stream: SendStream<Bytes>,
    /// Whether data was sent before.
    begun: bool,
    /// Data that waits for flow-control capacity.
    held: Option<Bytes>,
}

impl<F, B> InFlightCall<F, B>
where
    F: Future<Output = Result<Response<B>, Infallible>> + Unpin,
    B: Body<Data = Bytes> + Unpin,
{
    pub(super) fn new(future: F, reply: SendResponse<Bytes>, state: &Arc<ConnectionState>) -> Self {
        let in_flight = InFlightRequest::begin(state);
        InFlightCall { stage: Stage::Running(future), reply, in_flight }
    }

    /// Ready when the call has ended. A panic ends it.
    #[inline]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        catch_unwind(AssertUnwindSafe(|| self.advance(cx))).unwrap_or_else(|payload| {
            report_panic(self.in_flight.state(), &*payload);
            self.reply.send_reset(Reason::INTERNAL_ERROR);
            Poll::Ready(())
        })
    }

    #[inline]
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::Running(future) => {
                    let Poll::Ready(Ok(response)) = Pin::new(future).poll(cx) else {
                        // Ready when the client has reset the stream.
                        return self.reply.poll_reset(cx).map(drop);
                    };
                    let (head, body) = response.into_parts();
                    let ends = body.is_end_stream();
                    match self.reply.send_response(Response::from_parts(head, ()), ends) {
                        Ok(stream) if !ends => {
                            let sending = ResponseSender { body, stream, begun: false, held: None };
                            self.stage = Stage::Sending(sending);
                        }
                        // An error means that the stream is closed.
                        Ok(_) | Err(_) => return Poll::Ready(()),
                    }
                }
                Stage::Sending(sending) => {
                    let failed = ready!(sending.poll(cx)).is_err();
                    if failed {
                        self.reply.send_reset(Reason::INTERNAL_ERROR);
                    }
                    return Poll::Ready(());
                }
            }
        }
    }
}

/// The response cannot be completed: its body failed, or the stream is closed.
struct SendError;

impl From<h2::Error> for SendError {
    fn from(_: h2::Error) -> Self {
        SendError
    }
}

/// Whether the response was sent completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendProgress {
    Complete,
    Partial,
}

impl<B: Body<Data = Bytes> + Unpin> ResponseSender<B> {
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        loop {
            if self.held.is_some() {
                ready!(self.poll_capacity(cx))?;
            }
            let sent = match self.held.take() {
                Some(piece) => self.send(piece)?,
                None => {
                    let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                        // Ready when the client has reset the stream.
                        return self.stream.poll_reset(cx).map(|_| Ok(()));
                    };
                    self.take(frame.transpose().map_err(|_| SendError)?)?
                }
            };
            if sent == SendProgress::Complete {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Sends the next frame, or holds its data.
    #[inline]
    fn take(&mut self, frame: Option<Frame<Bytes>>) -> Result<SendProgress, SendError> {
        let Some(frame) = frame else {
            self.stream.send_data(Bytes::new(), true)?;
            return Ok(SendProgress::Complete);
        };
        match frame.into_data() {
            // The first data is in memory anyway, so `h2` may buffer it. Later data waits for capacity; otherwise a
            // client that does not read would fill the buffer.
            Ok(piece) if !self.begun => self.send(piece),
            Ok(piece) => {
                self.held = Some(piece);
                Ok(SendProgress::Partial)
            }
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => {
                    self.stream.send_trailers(trailers)?;
                    Ok(SendProgress::Complete)
                }
                // There is no third kind of frame.
                Err(_) => Ok(SendProgress::Partial),
            },
        }
    }

    #[inline]
    fn send(&mut self, piece: Bytes) -> Result<SendProgress, SendError> {
        self.begun = true;
        let ends = self.body.is_end_stream();
        self.stream.send_data(piece, ends)?;
        Ok(if ends { SendProgress::Complete } else { SendProgress::Partial })
    }

    /// Waits for a capacity of one byte: `h2` buffers the rest of the frame, which is small.
    fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.stream.reserve_capacity(1);
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(capacity) => drop(capacity?),
                None => return Poll::Ready(Err(SendError)),
            }
        }
        Poll::Ready(Ok(()))
    }
}
