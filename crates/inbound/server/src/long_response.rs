//! An HTTP/1.1 request or response that was taken from hyper.
//!
//! hyper keeps its buffers for as long as a request lasts, in all 20 KiB and more. For thousands of clients that do not
//! read, or wait for a slow service, that is most of the memory. So hyper gives up a connection in two cases:
//!
//! - **A body is long, or its client does not take it at once.** [`LongResponse`] writes the rest and holds one piece of
//!   it. The connection is given to hyper again for the next request.
//! - **A request is complete while the worker has many.** A short body is read early. Nothing is kept but the future of
//!   the service. When it has a response, hyper gets the connection again, reads a head like the first one, and writes
//!   the response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body, SizeHint};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use super::panic_guard::ServeError;
use super::response_body::{ResponseBody, TrackedBody};
use super::transport::CountedTransport;

/// A body of at least this length is written without hyper from its first byte.
const LONG_BYTES_MIN: u64 = 64 * 1024;

/// A body up to this length stays with hyper: it fits into the buffers of the kernel.
const SHORT_BYTES_MAX: u64 = 16 * 1024;

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    /// By its length; with the bytes that are still to come.
    Length(u64),
    Chunked,
}

/// A request whose response hyper need not write.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakeableRequest {
    is_head: bool,
    is_chunked: bool,
    /// Whether the client wants the connection to be closed.
    closes: bool,
}

impl TakeableRequest {
    /// `None` if hyper must keep the request.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        let is_plain = request.version() == Version::HTTP_11
            && request.method() != Method::CONNECT
            && !request.headers().contains_key(UPGRADE);
        is_plain.then(|| TakeableRequest {
            is_head: request.method() == Method::HEAD,
            is_chunked: request.headers().contains_key(TRANSFER_ENCODING),
            closes: has_close(request.headers()),
        })
    }

    /// Whether only hyper knows if the connection closes: it removes a length beside chunks, and closes then, because
    /// another server would see another end of the request.
    pub(super) const fn is_ambiguous(&self) -> bool {
        self.is_chunked && !self.closes
    }

    /// The same request, on a connection that closes if hyper might have to close it. Its head is not kept.
    pub(super) const fn without_head(mut self) -> Self {
        self.closes |= self.is_chunked;
        self
    }

    /// Whether the connection closes after the response.
    pub(super) const fn closes(&self) -> bool {
        self.closes
    }

    /// A head that hyper answers like that of the request.
    pub(super) const fn head(&self) -> &'static [u8] {
        match (self.is_head, self.closes) {
            (false, false) => b"GET / HTTP/1.1\r\n\r\n",
            (false, true) => b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n",
            (true, false) => b"HEAD / HTTP/1.1\r\n\r\n",
            (true, true) => b"HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n",
        }
    }
}

/// A response that can be taken from hyper.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakeableResponse {
    framing: BodyFraming,
    closes: bool,
    is_ambiguous: bool,
}

impl TakeableResponse {
    /// `None` if hyper must write the response, or its body is short.
    pub(super) fn of<B: Body>(response: &Response<B>, request: TakeableRequest) -> Option<Self> {
        let size = response.body().size_hint();
        if request.is_head || size.upper().is_some_and(|bytes| bytes <= SHORT_BYTES_MAX) {
            return None;
        }
        let has = |name: HeaderName| response.headers().contains_key(name);
        let (status, headers) = (response.status(), response.headers());
        let has_body = !status.is_informational()
            && status != StatusCode::NO_CONTENT
            && status != StatusCode::NOT_MODIFIED
            && !response.body().is_end_stream();
        if !has_body || has(TRANSFER_ENCODING) || has(TRAILER) {
            return None;
        }
        let framing = framing(headers, &size)?;
        let closes = request.closes || has_close(headers);
        Some(TakeableResponse { framing, closes, is_ambiguous: request.is_ambiguous() })
    }

    /// Whether only hyper knows if the connection closes.
    pub(super) const fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// Whether the body is known to be long.
    pub(super) fn is_long(&self) -> bool {
        matches!(self.framing, BodyFraming::Length(bytes) if bytes >= LONG_BYTES_MIN)
    }

    /// Counts data that hyper writes.
    pub(super) fn count(&mut self, bytes: u64) {
        if let BodyFraming::Length(remaining) = &mut self.framing {
            *remaining = remaining.saturating_sub(bytes);
        }
    }
}

/// How hyper frames a body. `None` if the fields and the body differ in what they say.
fn framing(headers: &HeaderMap, size: &SizeHint) -> Option<BodyFraming> {
    let stated = headers.get(CONTENT_LENGTH).map(|length| length.to_str().ok()?.parse().ok());
    match (stated, size.exact()) {
        (None, None) => Some(BodyFraming::Chunked),
        (None, Some(bytes)) => Some(BodyFraming::Length(bytes)),
        (Some(stated), exact) => (stated == exact).then_some(BodyFraming::Length(exact?)),
    }
}

fn has_close(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let mut options = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// The response of a service, or why there is none.
pub(super) type ServeResult<B> = Result<Response<ResponseBody<B>>, ServeError>;

/// The future of a service.
pub(super) type ServeFuture<B> = Pin<Box<dyn Future<Output = ServeResult<B>> + Send>>;

/// What was taken from hyper.
pub(super) enum TakenExchange<B> {
    Request(ServeFuture<B>, TakeableRequest),
    Response(TrackedBody<B>, TakeableResponse),
}

/// Passes requests and responses of one connection from hyper to the connection's task, and back.
pub(super) struct Exchange<B> {
    taken: Mutex<Option<TakenExchange<B>>>,
    /// The response to a request that was taken.
    answered: Mutex<Option<ServeResult<B>>>,
}

impl<B> Default for Exchange<B> {
    fn default() -> Self {
        Exchange { taken: Mutex::new(None), answered: Mutex::new(None) }
    }
}

impl<B> Exchange<B> {
    pub(super) fn put(&self, taken: TakenExchange<B>) {
        *self.taken.lock() = Some(taken);
    }

    pub(super) fn take(&self) -> Option<TakenExchange<B>> {
        self.taken.lock().take()
    }

    /// Lets hyper have the response to the next request that it reads.
    pub(super) fn answer(&self, response: ServeResult<B>) {
        *self.answered.lock() = Some(response);
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.lock().is_some()
    }

    pub(super) fn take_answer(&self) -> Option<ServeResult<B>> {
        self.answered.lock().take()
    }
}

/// A piece of a body with its frame.
type Piece = Chain<Chain<Bytes, Bytes>, Bytes>;

/// Writes the rest of a response.
pub(super) struct LongResponse<B> {
    transport: CountedTransport,
    /// Dropped when all of it is written.
    body: Option<TrackedBody<B>>,
    response: TakeableResponse,
    /// What is not written yet.
    piece: Piece,
    /// Whether nothing follows it.
    is_last: bool,
}

impl<B> LongResponse<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    pub(super) fn new(
        mut transport: CountedTransport,
        body: TrackedBody<B>,
        mut response: TakeableResponse,
    ) -> Self {
        response.closes |= response.is_ambiguous && transport.has_closing_head();
        let piece = framed(Bytes::new(), transport.take_unsent(), Bytes::new());
        LongResponse { transport, body: Some(body), response, piece, is_last: false }
    }

    /// The connection after the response. `None` if it has to be closed.
    pub(super) fn into_transport(self) -> Option<CountedTransport> {
        (!self.response.closes).then_some(self.transport)
    }

    /// Writes until the response is complete.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.poll_write(cx)?.is_pending() {
                return self.transport.poll_disconnect(cx);
            }
            if self.is_last {
                self.body = None;
            }
            let Some(body) = &mut self.body else {
                ready!(Pin::new(&mut self.transport).poll_flush(cx))?;
                return match self.response.closes {
                    true => Pin::new(&mut self.transport).poll_shutdown(cx),
                    false => Poll::Ready(Ok(())),
                };
            };
            let Poll::Ready(frame) = body.poll_frame(cx) else {
                // TLS has a buffer of its own.
                if Pin::new(&mut self.transport).poll_flush(cx)?.is_pending() {
                    self.transport.record_blocked();
                }
                return self.transport.poll_disconnect(cx);
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.frame(data),
                    // No trailer fields were announced, so that the client does not expect any.
                    Err(_) => self.end()?,
                },
                Some(Err(_)) => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                None => self.end()?,
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.piece.has_remaining() {
            let mut slices = [io::IoSlice::new(&[]); 3];
            let count = self.piece.chunks_vectored(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            let written = ready!(Pin::new(&mut self.transport).poll_write_vectored(cx, slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.piece.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Makes data the next piece.
    fn frame(&mut self, mut data: Bytes) {
        if data.is_empty() {
            return;
        }
        match &mut self.response.framing {
            BodyFraming::Length(remaining) => {
                data.truncate(usize::try_from(*remaining).unwrap_or(usize::MAX));
                *remaining =
                    remaining.saturating_sub(u64::try_from(data.len()).unwrap_or(u64::MAX));
                self.is_last = *remaining == 0;
                self.piece = framed(Bytes::new(), data, Bytes::new());
            }
            BodyFraming::Chunked => {
                let size = Bytes::from(format!("{:x}\r\n", data.len()));
                self.is_last = self.body.as_ref().is_some_and(TrackedBody::is_end_stream);
                let end: &[u8] = if self.is_last { b"\r\n0\r\n\r\n" } else { b"\r\n" };
                self.piece = framed(size, data, Bytes::from_static(end));
            }
        }
    }

    /// Ends the body.
    fn end(&mut self) -> io::Result<()> {
        self.is_last = true;
        match self.response.framing {
            BodyFraming::Length(0) => Ok(()),
            BodyFraming::Length(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            BodyFraming::Chunked => {
                let end = Bytes::from_static(b"0\r\n\r\n");
                self.piece = framed(Bytes::new(), end, Bytes::new());
                Ok(())
            }
        }
    }
}

fn framed(before: Bytes, data: Bytes, after: Bytes) -> Piece {
    before.chain(data).chain(after)
}
