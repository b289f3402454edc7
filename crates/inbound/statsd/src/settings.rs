//! Where statistics are sent to, and how.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::lines::LineFormat;
use super::mogrifier::Mogrifier;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsdAddress {
    /// A stream to `host:port`, as envoyproxy/ratelimit sends to statsd.
    Tcp(String),
    /// Datagrams to `host:port`.
    Udp(String),
    /// Datagrams to the socket with this path.
    Unix(PathBuf),
}

impl fmt::Display for StatsdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatsdAddress::Tcp(address) => write!(f, "tcp://{address}"),
            StatsdAddress::Udp(address) => write!(f, "udp://{address}"),
            StatsdAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The settings of a [`Sender`](crate::Sender).
#[derive(Clone, Debug)]
pub struct StatsdSettings {
    /// The server.
    pub address: StatsdAddress,
    /// Its line format.
    pub format: LineFormat,
    /// Tags of every statistic.
    pub tags: Vec<(String, String)>,
    /// Rewrites of names; DogStatsD only, as in envoyproxy/ratelimit.
    pub mogrifiers: Vec<Mogrifier>,
    /// The time between two flushes.
    pub flush_interval: Duration,
}
