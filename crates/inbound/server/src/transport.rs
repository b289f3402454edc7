//! The byte stream of a connection: TCP or Unix, plain or TLS, with the bytes counted.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::connection_state::ConnectionState;
use super::listener::{AcceptedSocket, reset_on_close};

/// A socket that is registered with this thread's runtime.
pub(super) type Socket = Either<TcpStream, UnixStream>;

/// A socket, encrypted or not. One type for all, so that the HTTP code is compiled once per service and not four times.
pub(super) type Transport = Either<Socket, Box<TlsStream<Socket>>>;

pub(super) fn register(accepted: AcceptedSocket) -> io::Result<Socket> {
    Ok(match accepted {
        AcceptedSocket::Tcp(stream, _) => Either::Left(TcpStream::from_std(stream)?),
        AcceptedSocket::Unix(stream) => Either::Right(UnixStream::from_std(stream)?),
    })
}

/// Lets the kernel reset a connection when its socket is closed: neither side keeps anything of it.
pub(super) fn reset_when_closed(socket: &Socket) {
    if let Either::Left(stream) = socket {
        reset_on_close(&SockRef::from(stream));
    }
}

/// Vectored writes up to this size are copied and written as one: a vectored write costs the kernel more.
const COPIED_BYTES_MAX: usize = 4 * 1024;

/// What is read at once to notice that a client has disconnected.
const DISCONNECT_READ_BYTES: usize = 512;

/// A transport that records reads and writes in the connection's state.
#[derive(Debug)]
pub(super) struct CountedTransport {
    transport: Transport,
    state: Arc<ConnectionState>,
    /// Bytes that were read and recorded already, to be read again.
    read_ahead: Bytes,
    /// Bytes that hyper has written and the client did not take, while a response is taken from hyper.
    unsent: Vec<u8>,
}

impl CountedTransport {
    pub(super) fn new(transport: Transport, state: Arc<ConnectionState>) -> Self {
        CountedTransport { transport, state, read_ahead: Bytes::new(), unsent: Vec::new() }
    }

    /// Lets these bytes be read again, before any that are to be read again already.
    pub(super) fn unread(&mut self, bytes: &[u8]) {
        self.read_ahead = match self.read_ahead.is_empty() {
            true => Bytes::copy_from_slice(bytes),
            false => [bytes, &self.read_ahead].concat().into(),
        };
    }

    /// The bytes that the client did not take while a response was taken from hyper.
    pub(super) fn take_unsent(&mut self) -> Bytes {
        std::mem::take(&mut self.unsent).into()
    }

    /// Whether hyper has announced that it closes the connection after this response.
    pub(super) fn has_closing_head(&self) -> bool {
        self.state.has_closing_head()
    }

    /// Records that the client does not read as fast as the server writes.
    pub(super) fn record_blocked(&self) {
        self.state.record_write(None);
    }

    /// Ready with an error when the client has disconnected. Reads for that, until it has read something.
    pub(super) fn poll_disconnect(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.read_ahead.is_empty() {
            return Poll::Pending;
        }
        let mut bytes = [0; DISCONNECT_READ_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut *self).poll_read(cx, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.read_ahead = Bytes::copy_from_slice(buffer.filled());
        Poll::Pending
    }

    /// Writes what was kept. Nothing may overtake it.
    pub(super) fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let polled = Pin::new(&mut self.transport).poll_write(cx, &self.unsent);
            record_write(&self.state, &polled);
            let written = ready!(polled)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.drain(..written);
        }
        // Frees the buffer.
        self.unsent = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Keeps what hyper writes and the client does not take, if the response is taken from hyper.
    fn or_keep(
        &mut self,
        written: Poll<io::Result<usize>>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() || !self.state.is_taken() {
            return written;
        }
        let before = self.unsent.len();
        for slice in slices {
            self.unsent.extend_from_slice(slice);
        }
        Poll::Ready(Ok(self.unsent.len().saturating_sub(before)))
    }
}

impl AsyncRead for CountedTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let CountedTransport { transport, state, read_ahead, .. } = self.get_mut();
        if !read_ahead.is_empty() {
            let bytes = read_ahead.split_to(read_ahead.len().min(buffer.remaining()));
            buffer.put_slice(&bytes);
            if read_ahead.is_empty() {
                // Frees the buffer.
                *read_ahead = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(transport).poll_read(cx, buffer);
        if let Some(read) = buffer.filled().get(before..)
            && !read.is_empty()
        {
            state.record_read(read);
        }
        polled
    }
}

impl AsyncWrite for CountedTransport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.state.read_response_head(bytes);
        let mut polled = this.poll_unsent(cx)?.map(|()| Ok(0));
        if polled.is_ready() {
            polled = Pin::new(&mut this.transport).poll_write(cx, bytes);
            record_write(&this.state, &polled);
        }
        this.or_keep(polled, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if bytes <= COPIED_BYTES_MAX {
            let mut copy = [0; COPIED_BYTES_MAX];
            let mut end = 0_usize;
            for slice in slices {
                let start = end;
                end = start.saturating_add(slice.len());
                if let Some(part) = copy.get_mut(start..end) {
                    part.copy_from_slice(slice);
                }
            }
            return self.poll_write(cx, copy.get(..end).unwrap_or_default());
        }
        let this = self.get_mut();
        // hyper writes a head as one slice, before the body.
        this.state.read_response_head(slices.first().map_or(&[], |first| first));
        let mut polled = this.poll_unsent(cx)?.map(|()| Ok(0));
        if polled.is_ready() {
            polled = Pin::new(&mut this.transport).poll_write_vectored(cx, slices);
            record_write(&this.state, &polled);
        }
        this.or_keep(polled, slices)
    }

    fn is_write_vectored(&self) -> bool {
        // For HTTP/2: responses are small, and those of one poll are copied into one buffer and written with one
        // syscall. As slices, each one above 256 bytes would take its own write. HTTP/1.1 always writes slices.
        false
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // While a response is taken, hyper's buffer is emptied whether or not the client reads.
        if !this.state.is_taken() {
            ready!(this.poll_unsent(cx))?;
        }
        let polled = Pin::new(&mut this.transport).poll_flush(cx);
        this.state.record_flush(polled.is_ready());
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = &mut self.get_mut().transport;
        Pin::new(transport).poll_shutdown(cx)
    }
}

fn record_write(state: &ConnectionState, polled: &Poll<io::Result<usize>>) {
    match polled {
        Poll::Pending => state.record_write(None),
        Poll::Ready(written) => state.record_write(Some(*written.as_ref().unwrap_or(&0))),
    }
}
