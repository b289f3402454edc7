//! The byte stream of a connection to an upstream, plain or TLS.
//!
//! One type for both, so that the HTTP code is compiled once.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::chunks::end_of_chunked_head;
use crate::body::is_over_budget;

/// What is read at once while responses hold too much memory. Two reads fit into the 8 KiB that hyper buffers for a
/// client.
pub(super) const SMALL_READ_BYTES: usize = 3 * 1024;

/// What is read at once while a response is awaited without hyper: most heads fit.
const FIRST_READ_BYTES: usize = 2 * 1024;

/// A TCP connection, encrypted or not.
type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The connection that hyper reads and writes.
#[derive(Debug)]
pub(super) struct Transport {
    stream: Stream,
    /// Bytes that come before those of the stream.
    read_ahead: Bytes,
    /// Whether hyper is about to write a request that was sent already: it is dropped, and nothing is read before it.
    drops_request: bool,
    progress: Arc<TransportProgress>,
}

/// How far the request on a connection has come. The task of the connection and the request share it.
#[derive(Debug, Default)]
pub(super) struct TransportProgress {
    has_written: AtomicBool,
    /// Whether everything that was written is out of hyper's buffer.
    is_flushed: AtomicBool,
    body: AtomicU8,
    /// The request, which waits for the flush.
    request: Mutex<Option<Waker>>,
    /// hyper's task, which waits for more to read.
    reader: Mutex<Option<Waker>>,
}

/// What happens to the chunked body of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ChunkedBody {
    /// hyper reads it.
    Passed = 0,
    /// It is withheld from hyper, once the head is there.
    Awaited = 1,
    /// It is withheld until it is decided who reads it.
    Withheld = 2,
}

impl TransportProgress {
    /// A request is about to be sent. A chunked body of its response may be withheld.
    pub(super) fn begin(&self, withholds: bool) {
        self.has_written.store(false, Relaxed);
        self.is_flushed.store(false, Relaxed);
        self.set_body(if withholds { ChunkedBody::Awaited } else { ChunkedBody::Passed });
    }

    fn body(&self) -> ChunkedBody {
        match self.body.load(Relaxed) {
            0 => ChunkedBody::Passed,
            1 => ChunkedBody::Awaited,
            _ => ChunkedBody::Withheld,
        }
    }

    fn set_body(&self, body: ChunkedBody) {
        self.body.store(body as u8, Relaxed);
    }

    /// Whether the request is written.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_flushed.load(Relaxed)
    }

    /// Ready when the request is written.
    pub(super) fn poll_flushed(&self, cx: &Context<'_>) -> Poll<()> {
        *self.request.lock() = Some(cx.waker().clone());
        if self.is_flushed() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether hyper has only seen the head of a chunked response.
    pub(super) fn is_withheld(&self) -> bool {
        self.body() == ChunkedBody::Withheld
    }

    /// Lets hyper read the body.
    pub(super) fn release(&self) {
        self.set_body(ChunkedBody::Passed);
        if let Some(reader) = self.reader.lock().take() {
            reader.wake();
        }
    }
}

impl Transport {
    pub(super) fn new(stream: Stream) -> Self {
        let progress = Arc::default();
        Transport { stream, read_ahead: Bytes::new(), drops_request: false, progress }
    }

    pub(super) fn progress(&self) -> &Arc<TransportProgress> {
        &self.progress
    }

    /// Whether HTTP/2 was negotiated in the TLS handshake (ALPN).
    pub(super) fn negotiated_http2(&self) -> bool {
        match &self.stream {
            Either::Left(_) => false,
            Either::Right(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// Lets these bytes be read again.
    pub(super) fn unread(&mut self, bytes: &[u8]) {
        self.read_ahead = match self.read_ahead.is_empty() {
            true => Bytes::copy_from_slice(bytes),
            false => [bytes, &self.read_ahead].concat().into(),
        };
    }

    /// Drops the next request that is written.
    pub(super) fn drop_request(&mut self) {
        self.drops_request = true;
    }

    /// Whether all bytes that came are read.
    pub(super) fn is_drained(&self) -> bool {
        self.read_ahead.is_empty()
    }

    /// Ready when the response has begun or the connection has ended. Holds no buffer meanwhile.
    pub(super) fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.read_ahead.is_empty() {
            return Poll::Ready(());
        }
        let mut bytes = [0; FIRST_READ_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        // hyper reads the end or the error again.
        drop(ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)));
        self.read_ahead = Bytes::copy_from_slice(buffer.filled());
        Poll::Ready(())
    }

    fn poll_read_stream(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.read_ahead.is_empty() {
            let bytes = self.read_ahead.split_to(self.read_ahead.len().min(buffer.remaining()));
            buffer.put_slice(&bytes);
            if self.read_ahead.is_empty() {
                // Frees the buffer.
                self.read_ahead = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        let stream = Pin::new(&mut self.stream);
        if !is_over_budget() {
            return stream.poll_read(cx, buffer);
        }
        let bytes = buffer.remaining().min(SMALL_READ_BYTES);
        let mut small = ReadBuf::new(buffer.initialize_unfilled_to(bytes));
        let polled = stream.poll_read(cx, &mut small);
        let read = small.filled().len();
        buffer.advance(read);
        polled
    }

    /// Withholds what follows the head of a chunked response.
    fn withhold_body(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let read = buffer.filled().get(before..).unwrap_or_default();
        match end_of_chunked_head(read) {
            Some(end) => {
                let rest = Bytes::copy_from_slice(read.get(end..).unwrap_or_default());
                self.unread(&rest);
                buffer.set_filled(before.saturating_add(end));
                self.progress.set_body(ChunkedBody::Withheld);
            }
            None => self.progress.set_body(ChunkedBody::Passed),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let body = this.progress.body();
        if this.drops_request || body == ChunkedBody::Withheld {
            *this.progress.reader.lock() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(this.poll_read_stream(cx, buffer))?;
        if body == ChunkedBody::Awaited && this.progress.has_written.load(Relaxed) {
            this.withhold_body(buffer, before);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.progress.has_written.store(true, Relaxed);
        this.progress.is_flushed.store(false, Relaxed);
        if this.drops_request {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    // Not vectored: the head and the available part of the body are copied into one buffer. One plain write costs the
    // kernel less than a vectored one.

    /// hyper flushes when its buffer is empty.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        let progress = &this.progress;
        if progress.has_written.load(Relaxed) && !progress.is_flushed.swap(true, Relaxed) {
            if std::mem::take(&mut this.drops_request)
                && let Some(reader) = progress.reader.lock().take()
            {
                reader.wake();
            }
            if let Some(request) = progress.request.lock().take() {
                request.wake();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
