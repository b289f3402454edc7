//! Settings of an endpoint: addresses, protocol, encryption and limits.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::guard::ConnectionGuard;
use super::tls::Tls;

/// An address to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address. Port 0 means any free port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix {
        /// The file. A stale one, which no process listens at, is replaced.
        path: PathBuf,
        /// The permission bits of the file. Default: those of new files of the process.
        mode: Option<u32>,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => fmt::Display::fmt(address, f),
            Address::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp(address)
    }
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Self {
        Address::Unix { path, mode: None }
    }
}

/// The protocols of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 only, as gRPC requires.
    Http2,
    /// HTTP/1.1 or HTTP/2, whichever the client starts with.
    Auto,
}

/// The addresses at which one service listens, with their protocol, encryption and limits.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The name, for logs.
    pub name: &'static str,
    /// The addresses to listen at.
    pub addresses: Vec<Address>,
    /// The protocols.
    pub protocol: Protocol,
    /// The certificate, if connections are encrypted.
    pub tls: Option<Tls>,
    /// The limits on connections.
    pub limits: ConnectionLimits,
    /// The proxies that begin each connection with a PROXY header (version 1 or 2). The header is required from these,
    /// and never read from others, so that no other client can claim an address. Default: none.
    pub proxy_protocol_from: Vec<IpNet>,
    /// Whether the service has no room for further requests. While it has none, clients that do not read are cut off
    /// sooner: they may hold the room. Default: never.
    pub pressure: Option<Pressure>,
    /// The limits on connections by network. Default: none.
    pub guard: Option<Arc<ConnectionGuard>>,
    /// The kernel's queue of connections to accept, at each address. The kernel cuts it to `net.core.somaxconn`.
    /// Default: [`Endpoint::BACKLOG`].
    pub backlog: u32,
}

/// Reports whether a service has no room for further requests. Called for slow clients only.
#[derive(Clone)]
pub struct Pressure(Arc<dyn Fn() -> bool + Send + Sync>);

impl Pressure {
    /// Reports what `is_on` returns.
    pub fn new(is_on: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Pressure(Arc::new(is_on))
    }

    pub(super) fn is_on(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pressure").finish_non_exhaustive()
    }
}

impl Endpoint {
    /// The default of the backlog: large enough for a burst of reconnecting clients, and what Linux allows.
    pub const BACKLOG: u32 = 4_096;

    /// An endpoint with one address, not encrypted, with the default limits.
    pub fn new(name: &'static str, protocol: Protocol, address: impl Into<Address>) -> Self {
        Endpoint {
            name,
            addresses: vec![address.into()],
            protocol,
            tls: None,
            limits: ConnectionLimits::default(),
            proxy_protocol_from: Vec::new(),
            pressure: None,
            guard: None,
            backlog: Endpoint::BACKLOG,
        }
    }

    /// Adds an address.
    #[must_use]
    pub fn also_at(mut self, address: impl Into<Address>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Encrypts connections.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Requires a PROXY header from these networks.
    #[must_use]
    pub fn proxy_protocol_from(mut self, hops: Vec<IpNet>) -> Self {
        self.proxy_protocol_from = hops;
        self
    }

    /// Cuts clients that do not read sooner while the service is under pressure.
    #[must_use]
    pub fn pressure(mut self, pressure: Pressure) -> Self {
        self.pressure = Some(pressure);
        self
    }

    /// Limits connections by network.
    #[must_use]
    pub fn guard(mut self, guard: Arc<ConnectionGuard>) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Replaces the limits.
    #[must_use]
    pub fn limits(mut self, limits: ConnectionLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// Limits on the connections of one endpoint.
///
/// Timeouts have a resolution of a quarter of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of open connections, over all addresses of the endpoint. For a further one, a silent connection is
    /// closed (see `evict_after`); if there is none, it is accepted and closed, so that the client notices. Default:
    /// 10,000.
    pub connections_max: usize,
    /// Maximum number of open HTTP/2 streams per connection. Default: 1,024.
    pub streams_max: u32,
    /// Maximum size of all header fields of a request. HTTP/1.1 accepts at least 8 KiB. Default: 16 KiB.
    pub header_bytes_max: u32,
    /// Timeout of the TLS handshake, the HTTP/2 preface and the head of an HTTP/1.1 request, each. Default: 10 s.
    pub header_timeout: Duration,
    /// A connection without a request for this long is closed. Default: one hour.
    pub idle_timeout: Option<Duration>,
    /// The minimum rate, in bytes per second, at which a client must take a response that waits for it, on average over
    /// `send_rate_window`. A slower one is cut: an HTTP/2 stream is reset, an HTTP/1.1 connection closed. A response
    /// whose service is silent does not wait for its client. Default: 240, less than any modem; 0 for no minimum.
    pub send_rate_min: u32,
    /// The time over which the rate is averaged. Default: 75 s.
    pub send_rate_window: Duration,
    /// The same while the service is [under pressure](Endpoint::pressure). Default: 5 s.
    pub send_rate_window_pressed: Duration,
    /// Maximum number of bytes that the heads of requests and the bodies of responses of one connection may hold in
    /// memory. Further HTTP/2 requests are reset with REFUSED_STREAM, which clients retry. Default: 2 MiB.
    pub held_bytes_max: u64,
    /// The same for all connections of a worker. Above it, a connection that holds more than 64 KiB gets no further
    /// requests. Default: 64 MiB.
    pub held_bytes_total: u64,
    /// When `connections_max` are open, a connection whose client has been silent for this long is closed for a new
    /// one. Default: 1 s; without it the new one is closed.
    pub evict_after: Option<Duration>,
    /// Pings on HTTP/2 connections, to detect clients that have vanished. TCP keepalive is always on. Default: none.
    pub keepalive: Option<Keepalive>,
    /// A connection of this age, give or take a tenth, is closed, so that clients spread over servers that were started
    /// later. Default: none.
    pub age_max: Option<Duration>,
    /// How long requests in flight may still take when a connection is closed for its age. Default: 30 s.
    pub age_grace: Duration,
}

/// Pings on HTTP/2 connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Sends a ping when no byte arrived for this long; with [`Server::open_calls`](crate::Server::open_calls), when no
    /// byte arrived during a whole interval.
    pub interval: Duration,
    /// Closes the connection when a ping is not answered for this long.
    pub timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            connections_max: 10_000,
            streams_max: 1_024,
            header_bytes_max: 16 * 1024,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Some(Duration::from_secs(60 * 60)),
            send_rate_min: 240,
            send_rate_window: Duration::from_secs(75),
            send_rate_window_pressed: Duration::from_secs(5),
            held_bytes_max: 2 * 1024 * 1024,
            held_bytes_total: 64 * 1024 * 1024,
            evict_after: Some(Duration::from_secs(1)),
            keepalive: None,
            age_max: None,
            age_grace: Duration::from_secs(30),
        }
    }
}
