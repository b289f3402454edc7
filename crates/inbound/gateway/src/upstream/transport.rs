//! The byte stream of a connection to an upstream, plain or TLS.
//!
//! One type for both, so that the HTTP code is compiled once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::body::is_over_budget;

/// What is read at once while responses hold too much memory. Two reads fit into the 8 KiB that hyper buffers for a
/// client.
pub(super) const SMALL_READ_BYTES: usize = 3 * 1024;

/// A TCP connection, encrypted or not.
#[derive(Debug)]
pub(super) struct Transport(pub(super) Either<TcpStream, Box<TlsStream<TcpStream>>>);

impl Transport {
    /// Whether HTTP/2 was negotiated in the TLS handshake (ALPN).
    pub(super) fn negotiated_http2(&self) -> bool {
        match &self.0 {
            Either::Left(_) => false,
            Either::Right(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = Pin::new(&mut self.get_mut().0);
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
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    // Not vectored: the head and the available part of the body are copied into one buffer. One plain write costs the
    // kernel less than a vectored one.

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
