//! The body of a long response, read without hyper.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tokio::io::AsyncReadExt as _;

use super::connect::BUFFER_BYTES;
use super::handover::Handover;
use super::transport::{SMALL_READ_BYTES, Transport};
use crate::body::{GatewayBodyError, is_over_budget};

/// The first read. Doubled when a read fills its buffer, up to [`BUFFER_BYTES`].
const READ_BYTES_MIN: usize = 16 * 1024;

/// The body of a response whose length is known. First comes what hyper has read, then the rest from the connection.
#[derive(Debug)]
pub(crate) struct LongBody {
    source: LongSource,
    handover: Arc<Handover>,
    /// Bytes that are still to come.
    remaining: u64,
    read_bytes: usize,
}

#[derive(Debug)]
enum LongSource {
    /// hyper's body, until the connection is handed over.
    Hyper(Incoming),
    /// Waits for the connection; with the error of hyper's body, which is its normal end.
    HandOver(Option<hyper::Error>),
    Transport {
        transport: Transport,
        read_ahead: Bytes,
    },
    Ended,
}

impl LongBody {
    /// The rest of a body of this length, on a connection that is about to be handed over.
    pub(super) fn new(body: Incoming, length: u64, handover: Arc<Handover>) -> Self {
        handover.begin();
        let source = LongSource::Hyper(body);
        LongBody { source, handover, remaining: length, read_bytes: READ_BYTES_MIN }
    }

    /// The bytes that are still to come.
    pub(crate) const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The next data; `None` at the end.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, GatewayBodyError>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        loop {
            match &mut self.source {
                LongSource::Hyper(body) => match ready!(Pin::new(body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Poll::Ready(Some(Ok(self.count(data))));
                        }
                    }
                    Some(Err(error)) => self.source = LongSource::HandOver(Some(error)),
                    None => self.source = LongSource::HandOver(None),
                },
                LongSource::HandOver(error) => match ready!(self.handover.poll_take(cx)) {
                    Some((transport, read_ahead)) => {
                        // Copied: it is a part of a buffer that may be much larger.
                        let read_ahead = Bytes::copy_from_slice(&read_ahead);
                        self.source = LongSource::Transport { transport, read_ahead };
                    }
                    None => {
                        let error =
                            error.take().map_or_else(incomplete, GatewayBodyError::Upstream);
                        return self.fail(error);
                    }
                },
                LongSource::Transport { read_ahead, .. } if !read_ahead.is_empty() => {
                    let data = std::mem::take(read_ahead);
                    return Poll::Ready(Some(Ok(self.count(data))));
                }
                LongSource::Transport { transport, .. } => {
                    let read = ready!(poll_read(transport, self.read_bytes, self.remaining, cx));
                    match read {
                        Ok(data) if data.is_empty() => return self.fail(incomplete()),
                        Ok(data) => {
                            if data.len() >= self.read_bytes {
                                self.read_bytes = (self.read_bytes * 2).min(BUFFER_BYTES);
                            }
                            return Poll::Ready(Some(Ok(self.count(data))));
                        }
                        Err(error) => return self.fail(GatewayBodyError::Read(error)),
                    }
                }
                LongSource::Ended => return Poll::Ready(None),
            }
        }
    }

    /// Counts data, and returns the connection after the last byte.
    fn count(&mut self, mut data: Bytes) -> Bytes {
        let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
        let excess = bytes.saturating_sub(self.remaining);
        self.remaining = self.remaining.saturating_sub(bytes);
        if excess > 0 {
            data.truncate(data.len().saturating_sub(usize::try_from(excess).unwrap_or(usize::MAX)));
        }
        if self.remaining == 0 {
            let ended = std::mem::replace(&mut self.source, LongSource::Ended);
            // A connection with bytes that no response has is not used again.
            if let LongSource::Transport { transport, read_ahead } = ended
                && excess == 0
                && read_ahead.is_empty()
            {
                self.handover.give_back(transport);
            }
        }
        data
    }

    fn fail<T>(&mut self, error: GatewayBodyError) -> Poll<Option<Result<T, GatewayBodyError>>> {
        self.source = LongSource::Ended;
        Poll::Ready(Some(Err(error)))
    }
}

/// Reads up to this many bytes; fewer while responses hold too much memory.
fn poll_read(
    transport: &mut Transport,
    bytes: usize,
    remaining: u64,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Bytes>> {
    let most = if is_over_budget() { SMALL_READ_BYTES } else { bytes };
    let most = most.min(usize::try_from(remaining).unwrap_or(usize::MAX));
    let mut buffer = BytesMut::with_capacity(most);
    let mut limited = transport.take(u64::try_from(most).unwrap_or(u64::MAX));
    let read = pin!(limited.read_buf(&mut buffer)).poll(cx);
    ready!(read)?;
    // A short read must not hold a large buffer.
    let data = match buffer.len() < most / 2 {
        true => Bytes::copy_from_slice(&buffer),
        false => buffer.freeze(),
    };
    Poll::Ready(Ok(data))
}

fn incomplete() -> GatewayBodyError {
    GatewayBodyError::Read(io::ErrorKind::UnexpectedEof.into())
}

/// The body of an upstream's response.
#[derive(Debug)]
pub(crate) enum UpstreamBody {
    /// Read by hyper.
    Hyper(Incoming),
    /// Read without hyper.
    Long(Box<LongBody>),
}

impl UpstreamBody {
    /// The next frame; `None` at the end.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GatewayBodyError>>> {
        match self {
            UpstreamBody::Hyper(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            UpstreamBody::Long(body) => body.poll_data(cx).map_ok(Frame::data),
        }
    }

    /// Whether the body has ended.
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            UpstreamBody::Hyper(body) => body.is_end_stream(),
            UpstreamBody::Long(body) => body.remaining() == 0,
        }
    }

    /// What is known about the rest of the body.
    pub(crate) fn size_hint(&self) -> http_body::SizeHint {
        match self {
            UpstreamBody::Hyper(body) => body.size_hint(),
            UpstreamBody::Long(body) => http_body::SizeHint::with_exact(body.remaining()),
        }
    }
}
