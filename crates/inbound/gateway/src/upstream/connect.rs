//! From a host to a connection that takes requests.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::origin::Origin;
use super::stream::Carrier;
use crate::body::RequestBody;
use crate::settings::{UpstreamProtocol, UpstreamSettings};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// A silent HTTP/2 connection is asked whether it is still there after so long.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// Every host was tried.
    #[error("every host was tried")]
    NobodyLeft,
    /// The name has no address.
    #[error("its name has no address")]
    Unknown(#[source] io::Error),
    /// It does not take the connection.
    #[error("it does not take the connection")]
    Refused(#[source] io::Error),
    /// It took too long.
    #[error("it did not take the connection in time")]
    Timeout,
    /// Encryption could not be agreed on.
    #[error("encryption could not be agreed on")]
    Encryption(#[source] io::Error),
    /// It does not speak HTTP.
    #[error("HTTP did not begin")]
    Handshake(#[source] hyper::Error),
    /// Its host is no name that a certificate can be for.
    #[error("no certificate can be for its name")]
    Name,
}

/// What a host's connections are made with.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<TlsConnector>,
    server_name: Option<ServerName<'static>>,
    protocol: UpstreamProtocol,
}

/// A connection that takes requests.
pub(super) enum Opened {
    One(http1::SendRequest<RequestBody>),
    Two(http2::SendRequest<RequestBody>),
}

impl Connector {
    pub(super) fn new(
        tls: Option<TlsConnector>,
        settings: &UpstreamSettings,
    ) -> Result<Self, ConnectError> {
        let name = settings.tls.server_name.clone().map(ServerName::try_from);
        let server_name = name.transpose().map_err(|_| ConnectError::Name)?;
        Ok(Connector { tls, server_name, protocol: settings.protocol })
    }

    pub(super) async fn open(
        &self,
        origin: &Origin,
        patience: Duration,
    ) -> Result<Opened, ConnectError> {
        let carrier = timeout(patience, self.carrier(origin));
        let (carrier, agreed) = carrier.await.map_err(|_| ConnectError::Timeout)??;
        let two = match (self.protocol, agreed) {
            (UpstreamProtocol::Http2, _) | (UpstreamProtocol::Auto, Agreed::Two) => true,
            (UpstreamProtocol::Http1 | UpstreamProtocol::Auto, _) => false,
        };
        let io = TokioIo::new(carrier);
        if two {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new());
            builder.keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_PATIENCE);
            let (sender, connection) =
                builder.handshake(io).await.map_err(ConnectError::Handshake)?;
            // How it ended is told to those who use it.
            tokio::spawn(async move { drop(connection.await) });
            Ok(Opened::Two(sender))
        } else {
            let (sender, connection) =
                http1::handshake(io).await.map_err(ConnectError::Handshake)?;
            tokio::spawn(async move { drop(connection.with_upgrades().await) });
            Ok(Opened::One(sender))
        }
    }

    async fn carrier(&self, origin: &Origin) -> Result<(Carrier, Agreed), ConnectError> {
        let stream = connect(origin).await?;
        // A request is written at once; waiting for more would only delay it.
        stream.set_nodelay(true).map_err(ConnectError::Refused)?;
        let Some(tls) = self.tls.as_ref().filter(|_| origin.is_encrypted()) else {
            return Ok((Carrier::Plain(stream), Agreed::Nothing));
        };
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => {
                ServerName::try_from(origin.host().to_owned()).map_err(|_| ConnectError::Name)?
            }
        };
        let stream = tls.connect(name, stream).await.map_err(ConnectError::Encryption)?;
        let agreed = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Agreed::Two,
            _ => Agreed::Nothing,
        };
        Ok((Carrier::Tls(Box::new(stream)), agreed))
    }
}

/// What was agreed on while encryption was.
#[derive(Clone, Copy)]
enum Agreed {
    Nothing,
    Two,
}

async fn connect(origin: &Origin) -> Result<TcpStream, ConnectError> {
    if let Some(address) = origin.address() {
        return TcpStream::connect(address).await.map_err(ConnectError::Refused);
    }
    let found = lookup_host((origin.host(), origin.port())).await.map_err(ConnectError::Unknown)?;
    let addresses: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
    let mut last = ConnectError::Unknown(io::Error::from(io::ErrorKind::NotFound));
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = ConnectError::Refused(error),
        }
    }
    Err(last)
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}
