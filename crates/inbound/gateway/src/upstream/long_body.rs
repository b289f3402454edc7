//! The body of a long response, read without hyper.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::AsyncReadExt as _;

use super::chunks::{ChunkDecoder, ChunkError};
use super::connect::BUFFER_BYTES;
use super::handover::Handover;
use super::transport::{SMALL_READ_BYTES, Transport};
use crate::body::{GatewayBodyError, is_over_budget};

/// The first read. Doubled when a read fills its buffer, up to [`BUFFER_BYTES`].
const READ_BYTES_MIN: usize = 16 * 1024;

/// How a long body is framed.
#[derive(Debug)]
pub(super) enum LongFraming {
    /// By its length; with the bytes that are still to come.
    Length(u64),
    /// By chunks, of which hyper has read nothing.
    Chunked(ChunkDecoder),
}

impl LongFraming {
    pub(super) const fn chunked() -> Self {
        LongFraming::Chunked(ChunkDecoder::new())
    }

    fn is_ended(&self) -> bool {
        match self {
            LongFraming::Length(remaining) => *remaining == 0,
            LongFraming::Chunked(decoder) => decoder.is_ended(),
        }
    }

    /// The data in these bytes, and whether any bytes follow the body.
    fn decode(&mut self, mut raw: Bytes) -> Result<(Bytes, bool), ChunkError> {
        match self {
            LongFraming::Length(remaining) => {
                let excess =
                    raw.split_off(usize::try_from(*remaining).unwrap_or(usize::MAX).min(raw.len()));
                *remaining = remaining.saturating_sub(u64::try_from(raw.len()).unwrap_or(u64::MAX));
                Ok((raw, !excess.is_empty()))
            }
            LongFraming::Chunked(decoder) => decoder.decode(raw),
        }
    }
}

/// The long body of a response. First comes what hyper has read, then the rest from the connection.
#[derive(Debug)]
pub(crate) struct LongBody {
    source: LongSource,
    handover: Arc<Handover>,
    framing: LongFraming,
    /// The trailer fields that come after the data.
    trailers: Option<HeaderMap>,
    read_bytes: usize,
}

#[derive(Debug)]
enum LongSource {
    /// hyper's body, until the connection is handed over.
    Hyper(Incoming),
    /// Waits for the connection; with the error of hyper's body, which is its normal end.
    HandOver(Option<hyper::Error>),
    Transport(Transport),
    Ended,
}

impl LongBody {
    /// A body on a connection that is about to be handed over.
    pub(super) fn new(body: Incoming, framing: LongFraming, handover: Arc<Handover>) -> Self {
        let source = LongSource::Hyper(body);
        LongBody { source, handover, framing, trailers: None, read_bytes: READ_BYTES_MIN }
    }

    /// What is known about the rest of the body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.framing {
            LongFraming::Length(remaining) => SizeHint::with_exact(remaining),
            LongFraming::Chunked(_) => SizeHint::new(),
        }
    }

    /// Whether the body has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.framing.is_ended() && self.trailers.is_none()
    }

    /// The next data, then the trailer fields if there are any; `None` at the end.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GatewayBodyError>>> {
        loop {
            if self.framing.is_ended() {
                return Poll::Ready(self.trailers.take().map(Frame::trailers).map(Ok));
            }
            match &mut self.source {
                LongSource::Hyper(body) => match ready!(Pin::new(body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            let data = self.count_decoded(data);
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                    }
                    Some(Err(error)) => self.source = LongSource::HandOver(Some(error)),
                    None => self.source = LongSource::HandOver(None),
                },
                LongSource::HandOver(error) => match ready!(self.handover.poll_take(cx)) {
                    Some((mut transport, read_ahead)) => {
                        transport.unread(&read_ahead);
                        self.source = LongSource::Transport(transport);
                    }
                    None => {
                        let error =
                            error.take().map_or_else(incomplete, GatewayBodyError::Upstream);
                        return self.fail(error);
                    }
                },
                LongSource::Transport(transport) => {
                    let most = match self.framing {
                        LongFraming::Length(remaining) => remaining,
                        LongFraming::Chunked(_) => u64::MAX,
                    };
                    let raw = match ready!(poll_read(transport, self.read_bytes, most, cx)) {
                        Ok(raw) if raw.is_empty() => return self.fail(incomplete()),
                        Ok(raw) => raw,
                        Err(error) => return self.fail(GatewayBodyError::Read(error)),
                    };
                    if raw.len() >= self.read_bytes {
                        self.read_bytes = (self.read_bytes * 2).min(BUFFER_BYTES);
                    }
                    match self.decode(raw) {
                        Ok(data) if data.is_empty() => {}
                        Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                        Err(error) => return self.fail(error),
                    }
                }
                LongSource::Ended => return Poll::Ready(None),
            }
        }
    }

    /// Counts data that hyper has decoded.
    fn count_decoded(&mut self, data: Bytes) -> Bytes {
        if let LongFraming::Length(remaining) = &mut self.framing {
            let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
            *remaining = remaining.saturating_sub(bytes);
        }
        data
    }

    /// The data in these bytes. Returns the connection after the last of them.
    fn decode(&mut self, raw: Bytes) -> Result<Bytes, GatewayBodyError> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let decoded = self.framing.decode(raw).map_err(invalid);
        let (data, has_excess) = decoded.map_err(GatewayBodyError::Read)?;
        if self.framing.is_ended() {
            if let LongFraming::Chunked(decoder) = &mut self.framing {
                let trailers = decoder.take_trailers().map_err(invalid);
                self.trailers = trailers.map_err(GatewayBodyError::Read)?;
            }
            let ended = std::mem::replace(&mut self.source, LongSource::Ended);
            // A connection with bytes that no response has is not used again.
            if let LongSource::Transport(transport) = ended
                && transport.is_drained()
                && !has_excess
            {
                self.handover.give_back(transport);
            }
        }
        Ok(data)
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
            UpstreamBody::Long(body) => body.poll_frame(cx),
        }
    }

    /// Whether the body has ended.
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            UpstreamBody::Hyper(body) => body.is_end_stream(),
            UpstreamBody::Long(body) => body.is_ended(),
        }
    }

    /// What is known about the rest of the body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            UpstreamBody::Hyper(body) => body.size_hint(),
            UpstreamBody::Long(body) => body.size_hint(),
        }
    }
}
