//! One call, from its request to the last piece of its answer.

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

use crate::contained::report;
use crate::life::{InFlight, Life};

/// A call on its way.
pub(super) struct Answering<F, B> {
    stage: Stage<F, B>,
    reply: SendResponse<Bytes>,
    in_flight: InFlight,
}

enum Stage<F, B> {
    Deciding(F),
    Sending(Sending<B>),
}

struct Sending<B> {
    body: B,
    stream: SendStream<Bytes>,
    /// Whether bytes were sent before.
    begun: bool,
    /// A piece that waits until the client has room.
    held: Option<Bytes>,
}

impl<F, B> Answering<F, B>
where
    F: Future<Output = Result<Response<B>, Infallible>> + Unpin,
    B: Body<Data = Bytes> + Unpin,
{
    pub(super) fn new(future: F, reply: SendResponse<Bytes>, life: &Arc<Life>) -> Self {
        let in_flight = InFlight::begin(life);
        Answering { stage: Stage::Deciding(future), reply, in_flight }
    }

    /// Goes on with the call; ready when it has ended. A call that panics has ended.
    #[inline]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        catch_unwind(AssertUnwindSafe(|| self.go_on(cx))).unwrap_or_else(|payload| {
            report(self.in_flight.life(), &*payload);
            self.reply.send_reset(Reason::INTERNAL_ERROR);
            Poll::Ready(())
        })
    }

    #[inline]
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::Deciding(future) => {
                    let Poll::Ready(Ok(response)) = Pin::new(future).poll(cx) else {
                        // Ready when the client has given the call up.
                        return self.reply.poll_reset(cx).map(drop);
                    };
                    let (head, body) = response.into_parts();
                    let ends = body.is_end_stream();
                    match self.reply.send_response(Response::from_parts(head, ()), ends) {
                        Ok(stream) if !ends => {
                            let sending = Sending { body, stream, begun: false, held: None };
                            self.stage = Stage::Sending(sending);
                        }
                        // An error means that the stream is gone, and nobody waits.
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

/// The answer cannot be sent to its end: its body failed, or the stream is gone.
struct Unsent;

impl From<h2::Error> for Unsent {
    fn from(_: h2::Error) -> Self {
        Unsent
    }
}

/// Whether the answer was sent to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Whole,
    Piece,
}

impl<B: Body<Data = Bytes> + Unpin> Sending<B> {
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        loop {
            if self.held.is_some() {
                ready!(self.poll_room(cx))?;
            }
            let sent = match self.held.take() {
                Some(piece) => self.send(piece)?,
                None => {
                    let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                        // Ready when the client has given the call up.
                        return self.stream.poll_reset(cx).map(|_| Ok(()));
                    };
                    self.take(frame.transpose().map_err(|_| Unsent)?)?
                }
            };
            if sent == Sent::Whole {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Sends what comes next, or holds it.
    #[inline]
    fn take(&mut self, frame: Option<Frame<Bytes>>) -> Result<Sent, Unsent> {
        let Some(frame) = frame else {
            self.stream.send_data(Bytes::new(), true)?;
            return Ok(Sent::Whole);
        };
        match frame.into_data() {
            // The first bytes are in memory whether or not the client has room for
            // them, so `h2` may as well keep them. What follows waits here, or a
            // client that does not read would make it pile up.
            Ok(piece) if !self.begun => self.send(piece),
            Ok(piece) => {
                self.held = Some(piece);
                Ok(Sent::Piece)
            }
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => {
                    self.stream.send_trailers(trailers)?;
                    Ok(Sent::Whole)
                }
                // There is no third kind of frame.
                Err(_) => Ok(Sent::Piece),
            },
        }
    }

    #[inline]
    fn send(&mut self, piece: Bytes) -> Result<Sent, Unsent> {
        self.begun = true;
        let ends = self.body.is_end_stream();
        self.stream.send_data(piece, ends)?;
        Ok(if ends { Sent::Whole } else { Sent::Piece })
    }

    /// Waits until the client has room for a byte: what does not fit is not much.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        self.stream.reserve_capacity(1);
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(room) => drop(room?),
                None => return Poll::Ready(Err(Unsent)),
            }
        }
        Poll::Ready(Ok(()))
    }
}
