//! Opens connections: resolves the host, checks each address, connects to the address that was checked.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;
use tower_service::Service;

use super::Resolver;
use super::transport::Transport;
use crate::destination::{DestinationError, DestinationPolicy, bare_host};

/// The maximum number of addresses of one name to try.
const ADDRESSES_MAX: usize = 8;

/// Why there is no connection. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectFailure {
    #[error(transparent)]
    Forbidden(#[from] DestinationError),
    #[error("the name of the host cannot be resolved: {0}")]
    Unresolved(io::Error),
    #[error("the host refused the connection: {0}")]
    Refused(io::Error),
    #[error("the host did not accept the connection in time")]
    Timeout,
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    #[error("the system has no trusted certificates; set a file")]
    NoAuthority,
    #[error("the host is not a valid name for a certificate")]
    ServerName,
}

/// Opens connections to allowed destinations.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(super) destinations: Arc<DestinationPolicy>,
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) tls: Option<TlsConnector>,
    pub(super) timeout: Duration,
}

impl Connector {
    async fn open(self, url: Uri) -> Result<TokioIo<Transport>, ConnectFailure> {
        // The URL was checked with the request; a redirect and a reused client pass here too.
        self.destinations.check_url(&url)?;
        let host = bare_host(url.host().unwrap_or_default());
        let encrypted = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let stream = self.connect(host, port).await?;
        // Requests are written with one syscall; Nagle's algorithm would only delay them.
        stream.set_nodelay(true).map_err(ConnectFailure::Refused)?;
        if !encrypted {
            return Ok(TokioIo::new(Transport(Either::Left(stream))));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|_| ConnectFailure::ServerName)?;
        let tls = self.tls.as_ref().ok_or(ConnectFailure::NoAuthority)?;
        let stream = tls.connect(name, stream).await.map_err(ConnectFailure::Tls)?;
        Ok(TokioIo::new(Transport(Either::Right(Box::new(stream)))))
    }

    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, ConnectFailure> {
        let resolved =
            self.resolver.resolve(host, port).await.map_err(ConnectFailure::Unresolved)?;
        let mut last = ConnectFailure::Unresolved(io::ErrorKind::NotFound.into());
        for address in resolved.into_iter().take(ADDRESSES_MAX) {
            match self.connect_checked(address).await {
                Ok(stream) => return Ok(stream),
                // A failed connection says more than a forbidden address beside it.
                Err(ConnectFailure::Forbidden(_)) if matches!(last, ConnectFailure::Refused(_)) => {
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    async fn connect_checked(&self, address: SocketAddr) -> Result<TcpStream, ConnectFailure> {
        self.destinations.check_address(address.ip())?;
        TcpStream::connect(address).await.map_err(ConnectFailure::Refused)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Transport>;
    type Error = ConnectFailure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectFailure>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ConnectFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let within = connector.timeout;
            timeout(within, connector.open(url)).await.unwrap_or(Err(ConnectFailure::Timeout))
        })
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("destinations", &self.destinations)
            .finish_non_exhaustive()
    }
}
