//! The HTTP client: pooled connections, opened only to checked addresses.

mod connector;
mod transport;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tidegate_client_tls::{ClientTls, ClientTlsError};

pub(crate) use self::connector::{ConnectFailure, Connector};
use crate::destination::DestinationPolicy;

/// The time for each stage of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// To resolve the name, connect and encrypt.
    pub connect: Duration,
    /// From the connection to the head of the answer.
    pub head: Duration,
    /// Between two parts of the answer's body.
    pub body: Duration,
    /// For the whole attempt, with redirects.
    pub total: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        HttpTimeouts {
            connect: Duration::from_secs(5),
            head: Duration::from_secs(20),
            body: Duration::from_secs(10),
            total: Duration::from_secs(30),
        }
    }
}

/// The version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpProtocol {
    /// HTTP/2 if the TLS handshake negotiates it, otherwise HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, also without TLS.
    Http2,
}

/// The client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum HttpSetupError {
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] ClientTlsError),
    /// The target's URL is not an allowed destination.
    #[error("the URL of the target is not allowed: {0}")]
    Destination(#[from] crate::destination::DestinationError),
    /// Too few or too many records of a bulk request.
    #[error("bulk mode takes between 1 and {max} records", max = crate::bulk::RECORDS_MAX)]
    BulkRecords,
}

/// The future of [`Resolver::resolve`].
pub type ResolverFuture<'a> =
    Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Resolves names of hosts.
pub trait Resolver: Send + Sync + fmt::Debug + 'static {
    /// The addresses of a host.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolverFuture<'a>;
}

/// The resolver of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolverFuture<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

pub(crate) type HttpClient = Client<Connector, Full<Bytes>>;

/// The pooled connections to one host that may be idle.
const IDLE_MAX: usize = 64;
/// How long a connection may be idle. Shorter than the usual minute of servers, which close theirs without a word.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEAD_BYTES_MAX_HTTP2: u32 = 64 * 1024;

/// Makes the client. Reads files, so it blocks.
pub(crate) fn build(
    destinations: Arc<DestinationPolicy>,
    resolver: Arc<dyn Resolver>,
    tls: &ClientTls,
    protocol: HttpProtocol,
    connect_timeout: Duration,
) -> Result<HttpClient, HttpSetupError> {
    let alpn: &[&[u8]] = match protocol {
        HttpProtocol::Auto => &[b"h2", b"http/1.1"],
        HttpProtocol::Http1 => &[b"http/1.1"],
        HttpProtocol::Http2 => &[b"h2"],
    };
    let tls = match tls.connector(alpn) {
        Ok(connector) => Some(connector),
        // A machine without authorities can still send in plain text, where that is allowed.
        Err(ClientTlsError::NoSystemAuthorities) if destinations.plain_text => None,
        Err(error) => return Err(error.into()),
    };
    let connector = Connector { destinations, resolver, tls, timeout: connect_timeout };
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_max_idle_per_host(IDLE_MAX)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http1_max_buf_size(HEAD_BYTES_MAX)
        .http2_max_header_list_size(HEAD_BYTES_MAX_HTTP2)
        .http2_only(protocol == HttpProtocol::Http2);
    Ok(builder.build(connector))
}
