//! What a door is told about its sockets: where it listens, what it speaks, how much it bears.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::tls::Tls;

/// Where a door listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address. Port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix {
        /// The file. One that nobody answers on any more is replaced.
        path: PathBuf,
        /// The permission bits of the file. Default: what the process creates files with.
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

/// What a door speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 only, as gRPC needs it.
    Http2,
    /// HTTP/1.1 or HTTP/2, as the client begins.
    Auto,
}

/// One door's sockets: its name, addresses, protocol and limits.
///
/// The name is for people: it stands in logs.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// What logs call it.
    pub name: &'static str,
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Its certificate, when connections are encrypted.
    pub tls: Option<Tls>,
    /// What its connections may take.
    pub limits: ConnectionLimits,
    /// Who begins each connection with a PROXY header (version 1 or 2) that says
    /// for whom it is. Of these a header is demanded; from others it is never
    /// read, so nobody else can claim an address. Default: nobody.
    pub proxy_protocol_from: Vec<IpNet>,
}

impl Endpoint {
    /// A door that listens at one address, not encrypted, with the default limits.
    pub fn new(name: &'static str, protocol: Protocol, address: impl Into<Address>) -> Self {
        Endpoint {
            name,
            addresses: vec![address.into()],
            protocol,
            tls: None,
            limits: ConnectionLimits::default(),
            proxy_protocol_from: Vec::new(),
        }
    }

    /// The same door, listening at one more address.
    #[must_use]
    pub fn also_at(mut self, address: impl Into<Address>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// The same door, encrypted.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The same door, told by these whom their connections are for.
    #[must_use]
    pub fn proxy_protocol_from(mut self, hops: Vec<IpNet>) -> Self {
        self.proxy_protocol_from = hops;
        self
    }

    /// The same door with other limits.
    #[must_use]
    pub fn limits(mut self, limits: ConnectionLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// What the connections of one door may take.
///
/// Times are kept to a quarter of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections open at once, over all addresses of the door. One more is
    /// accepted and closed at once, so that the client knows. Default: 10,000.
    pub connections_max: usize,
    /// HTTP/2 streams open at once on one connection. Default: 1,024.
    pub streams_max: u32,
    /// Bytes of all header fields of one request. HTTP/1.1 takes 8 KiB at
    /// least. Default: 16 KiB.
    pub header_bytes_max: u32,
    /// How long a client may take to encrypt, to greet in HTTP/2, and to send the
    /// head of a request in HTTP/1.1. Default: 10 s.
    pub header_timeout: Duration,
    /// A connection without a request for so long is closed. Default: one hour.
    pub idle_timeout: Option<Duration>,
    /// Pings on HTTP/2 connections, to notice clients that are gone without a
    /// word. TCP's own keepalive is always on. Default: none.
    pub keepalive: Option<Keepalive>,
    /// A connection as old as this, give or take a tenth, is closed, so
    /// that clients spread over servers that came later. Default: none.
    pub age_max: Option<Duration>,
    /// How long requests of a connection that is closed for its age may still
    /// take. Default: 30 s.
    pub age_grace: Duration,
}

/// Pings on HTTP/2 connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// A ping goes out when nothing came for so long; on doors for calls, when nothing
    /// came in a whole interval.
    pub interval: Duration,
    /// The connection is closed when no answer came for so long.
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
            keepalive: None,
            age_max: None,
            age_grace: Duration::from_secs(30),
        }
    }
}
