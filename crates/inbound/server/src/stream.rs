//! The bytes of a connection, whatever carries them, noted as they are read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use super::life::Life;
use super::listener::Accepted;

/// A socket that this thread's runtime knows.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn register(accepted: Accepted) -> io::Result<Self> {
        Ok(match accepted {
            Accepted::Tcp(stream, _) => Socket::Tcp(TcpStream::from_std(stream)?),
            Accepted::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }
}

/// A socket, encrypted or not. One type for all, so that the code of HTTP is
/// made once for each service and not four times.
#[derive(Debug)]
pub(super) enum Carrier {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

/// A carrier that tells the connection's life what is read.
#[derive(Debug)]
pub(super) struct Watched {
    carrier: Carrier,
    life: Arc<Life>,
}

impl Watched {
    pub(super) fn new(carrier: Carrier, life: Arc<Life>) -> Self {
        Watched { carrier, life }
    }
}

/// Passes a call on to what is inside of an enum.
macro_rules! inside {
    ($self:expr, $($variant:path)|+, $inner:ident => $call:expr) => {
        match $self { $($variant($inner) => $call,)+ }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        inside!(this, Socket::Tcp | Socket::Unix, s => Pin::new(s).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        inside!(this, Socket::Tcp | Socket::Unix, s => Pin::new(s).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        inside!(this, Socket::Tcp | Socket::Unix, s => Pin::new(s).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        inside!(self, Socket::Tcp | Socket::Unix, s => s.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        inside!(this, Socket::Tcp | Socket::Unix, s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        inside!(this, Socket::Tcp | Socket::Unix, s => Pin::new(s).poll_shutdown(cx))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Watched { carrier, life } = self.get_mut();
        let before = buffer.filled().len();
        let polled =
            inside!(carrier, Carrier::Plain | Carrier::Tls, s => Pin::new(s).poll_read(cx, buffer));
        if let Some(read) = buffer.filled().get(before..)
            && !read.is_empty()
        {
            life.has_read(read);
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let carrier = &mut self.get_mut().carrier;
        inside!(carrier, Carrier::Plain | Carrier::Tls, s => Pin::new(s).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let carrier = &mut self.get_mut().carrier;
        inside!(carrier, Carrier::Plain | Carrier::Tls, s => {
            Pin::new(s).poll_write_vectored(cx, slices)
        })
    }

    fn is_write_vectored(&self) -> bool {
        // Answers are small: copied into one buffer, those of one poll leave in one
        // write. In slices, those above 256 bytes would each take a write of their own.
        false
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let carrier = &mut self.get_mut().carrier;
        inside!(carrier, Carrier::Plain | Carrier::Tls, s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let carrier = &mut self.get_mut().carrier;
        inside!(carrier, Carrier::Plain | Carrier::Tls, s => Pin::new(s).poll_shutdown(cx))
    }
}
