//! Opens HTTP connections to hosts.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tidegate_macros::debug_fields;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;

use super::handover::Http1Connection;
use super::origin::Origin;
use super::transport::Transport;
use crate::body::RequestBody;
use crate::settings::{UpstreamProtocol, UpstreamSettings};

/// The maximum number of addresses of one name to try.
const ADDRESSES_MAX: usize = 8;

/// The interval and the timeout of pings on HTTP/2 connections.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Error codes of the system that have no [`io::ErrorKind`].
const TOO_MANY_OPEN_FILES: [i32; 2] = [23, 24];
const NO_BUFFERS: i32 = 105;

/// The buffer of an HTTP/1.1 connection, which bounds the head of a response, and what is read or kept for writing at
/// once. hyper's default is 400 KiB, which a client that does not read would hold twice.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// The flow-control window of a stream. hyper's default is 2 MiB, which a client that does not read would hold.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// The flow-control window of a connection: that of many streams, so that those whose clients do not read leave the
/// others enough.
const CONNECTION_WINDOW_BYTES: u32 = 64 * STREAM_WINDOW_BYTES;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// Every host was tried.
    #[error("every host was tried")]
    NoHostLeft,
    /// The name cannot be resolved.
    #[error("the name of the host cannot be resolved")]
    Unresolved(#[source] io::Error),
    /// The host refused the connection.
    #[error("the host refused the connection")]
    Refused(#[source] io::Error),
    /// The host did not accept the connection in time.
    #[error("the host did not accept the connection in time")]
    Timeout,
    /// The TLS handshake failed.
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    /// The HTTP handshake failed.
    #[error("the HTTP handshake failed")]
    Handshake(#[source] hyper::Error),
    /// The host is not a valid name for a certificate.
    #[error("the host is not a valid name for a certificate")]
    ServerName,
}

impl ConnectError {
    /// Whether this machine is the reason (no descriptors, ports or memory), which says nothing about the host.
    pub(crate) fn is_local(&self) -> bool {
        let source = match self {
            ConnectError::Unresolved(source)
            | ConnectError::Refused(source)
            | ConnectError::Tls(source) => source,
            ConnectError::NoHostLeft
            | ConnectError::Timeout
            | ConnectError::Handshake(_)
            | ConnectError::ServerName => return false,
        };
        let out_of_descriptors =
            source.raw_os_error().is_some_and(|code| TOO_MANY_OPEN_FILES.contains(&code));
        let kind = source.kind();
        out_of_descriptors
            || kind == io::ErrorKind::AddrNotAvailable
            || kind == io::ErrorKind::OutOfMemory
            || source.raw_os_error() == Some(NO_BUFFERS)
    }
}

/// Opens connections to the hosts of a group.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<TlsConnector>,
    server_name: Option<ServerName<'static>>,
    protocol: UpstreamProtocol,
}

/// An open connection, ready for requests.
pub(super) enum HttpConnection {
    Http1(Http1Connection),
    Http2(http2::SendRequest<RequestBody>),
}

/// An open connection; over HTTP/1.1 without hyper.
pub(super) enum OpenedTransport {
    Http1(Transport),
    Http2(http2::SendRequest<RequestBody>),
}

impl Connector {
    pub(super) fn new(
        tls: Option<TlsConnector>,
        settings: &UpstreamSettings,
    ) -> Result<Self, ConnectError> {
        let name = settings.server_name.clone().map(ServerName::try_from);
        let server_name = name.transpose().map_err(|_| ConnectError::ServerName)?;
        Ok(Connector { tls, server_name, protocol: settings.protocol })
    }

    pub(super) async fn open(
        &self,
        origin: &Origin,
        connect_timeout: Duration,
    ) -> Result<HttpConnection, ConnectError> {
        Ok(match self.open_transport(origin, connect_timeout).await? {
            OpenedTransport::Http1(transport) => {
                HttpConnection::Http1(Http1Connection::start(transport).await?)
            }
            OpenedTransport::Http2(sender) => HttpConnection::Http2(sender),
        })
    }

    /// Like [`Connector::open`], but leaves a connection over HTTP/1.1 without hyper.
    pub(super) async fn open_transport(
        &self,
        origin: &Origin,
        connect_timeout: Duration,
    ) -> Result<OpenedTransport, ConnectError> {
        let transport = timeout(connect_timeout, self.connect(origin));
        let transport = transport.await.map_err(|_| ConnectError::Timeout)??;
        let is_http2 = match self.protocol {
            UpstreamProtocol::Http2 => true,
            UpstreamProtocol::Auto => transport.negotiated_http2(),
            UpstreamProtocol::Http1 => false,
        };
        if !is_http2 {
            return Ok(OpenedTransport::Http1(transport));
        }
        let io = TokioIo::new(transport);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new());
        builder
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        builder.keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_TIMEOUT);
        let (sender, connection) = builder.handshake(io).await.map_err(ConnectError::Handshake)?;
        // Its error is returned to the requests on it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(OpenedTransport::Http2(sender))
    }

    async fn connect(&self, origin: &Origin) -> Result<Transport, ConnectError> {
        let stream = connect_tcp(origin).await?;
        // Requests are written with one syscall; Nagle's algorithm would only delay them.
        stream.set_nodelay(true).map_err(ConnectError::Refused)?;
        let Some(tls) = self.tls.as_ref().filter(|_| origin.is_encrypted()) else {
            return Ok(Transport::new(Either::Left(stream)));
        };
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(origin.host().to_owned())
                .map_err(|_| ConnectError::ServerName)?,
        };
        let stream = tls.connect(name, stream).await.map_err(ConnectError::Tls)?;
        Ok(Transport::new(Either::Right(Box::new(stream))))
    }
}

async fn connect_tcp(origin: &Origin) -> Result<TcpStream, ConnectError> {
    if let Some(address) = origin.address() {
        return TcpStream::connect(address).await.map_err(ConnectError::Refused);
    }
    let found =
        lookup_host((origin.host(), origin.port())).await.map_err(ConnectError::Unresolved)?;
    let addresses: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
    let mut last = ConnectError::Unresolved(io::Error::from(io::ErrorKind::NotFound));
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = ConnectError::Refused(error),
        }
    }
    Err(last)
}

debug_fields!(Connector { protocol });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_ports_or_memory_is_no_failure_of_the_host() {
        let refused = |code| ConnectError::Refused(io::Error::from_raw_os_error(code));
        // EMFILE, ENFILE, EADDRNOTAVAIL, ENOMEM, ENOBUFS.
        for code in [24, 23, 99, 12, 105] {
            assert!(refused(code).is_local(), "{code}");
        }
        // ECONNREFUSED, ECONNRESET, EHOSTUNREACH.
        for code in [111, 104, 113] {
            assert!(!refused(code).is_local(), "{code}");
        }
        assert!(!ConnectError::Timeout.is_local());
    }
}
