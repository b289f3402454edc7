//! Settings of a group of upstreams.

use std::time::Duration;

use tidegate_client_tls::ClientTls;
use tidegate_document::{choices, settings};
use tidegate_macros::defaults;

use super::COUNT_MAX;

/// A group of equivalent servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The name that routes use.
    pub name: String,
    /// The servers, as `http://host:port` or `https://host:port`.
    pub hosts: Vec<String>,
    /// Their protocol.
    pub protocol: UpstreamProtocol,
    /// Certificates for servers with `https`.
    pub tls: ClientTls,
    /// The name that the server's certificate must have. Default: the host's.
    pub server_name: Option<String>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// How many connections are kept.
    pub pool: PoolSettings,
    /// Active health checks. Default: none.
    pub health: Option<HealthCheck>,
    /// When a failing server gets no requests for a while.
    pub ejection: Ejection,
}

impl UpstreamSettings {
    /// A group of these servers, with defaults.
    pub fn new<H: Into<String>>(
        name: impl Into<String>,
        hosts: impl IntoIterator<Item = H>,
    ) -> Self {
        UpstreamSettings {
            name: name.into(),
            hosts: hosts.into_iter().map(Into::into).collect(),
            ..UpstreamSettings::default()
        }
    }
}

choices! {
    /// The protocol of upstreams.
    #[derive(Default)]
    pub enum UpstreamProtocol {
        /// HTTP/1.1, or with `https` whatever both sides negotiate.
        #[default]
        Auto = "auto",
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2; without TLS by prior knowledge.
        Http2 = "http2",
    }
}

impl UpstreamProtocol {
    /// The protocols to offer in ALPN, the preferred one first.
    pub(crate) const fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            UpstreamProtocol::Auto => &[b"h2", b"http/1.1"],
            UpstreamProtocol::Http1 => &[b"http/1.1"],
            UpstreamProtocol::Http2 => &[b"h2"],
        }
    }
}

defaults! {
    /// How long things may take.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Timeouts {
        /// To connect, encryption included. Default: 2 s.
        pub connect: Duration = Duration::from_secs(2),
        /// From the last byte of a request to the head of its answer. Default: 60 s.
        pub first_byte: Duration = Duration::from_secs(60),
        /// Between two pieces of an answer, and in a tunnel. Default: 60 s.
        pub idle: Duration = Duration::from_secs(60),
        /// For a whole request with its answer. Default: no limit.
        pub total: Option<Duration>,
    }
}

settings! {
    /// the kept connections
    #[derive(Copy)]
    pub PoolSettings "pool" {
        /// Idle connections to a server, per worker.
        idle_max: usize = "128" in 0..=COUNT_MAX,
        /// How long an idle connection is kept; choose less than the upstream does.
        idle_timeout: Duration = "30s",
        /// Concurrent requests on one HTTP/2 connection.
        streams_max: usize = "100" in 1..=COUNT_MAX,
        /// HTTP/2 connections to a server, per worker.
        shared_max: usize = "4" in 1..=COUNT_MAX,
    }
}

settings! {
    /// a health check
    pub HealthCheck "health" {
        /// The path to request. A status below 400 is healthy.
        path: String = "/",
        /// The time between two checks.
        interval: Duration = "5s",
        /// How long an answer may take.
        timeout: Duration = "1s",
        /// After how many failures in a row a server gets no requests.
        unhealthy_after: u64 = "3" in 1..=COUNT_MAX,
        /// After how many successes in a row it gets requests again.
        healthy_after: u64 = "2" in 1..=COUNT_MAX,
    }
}

settings! {
    /// the ejection of failing servers
    #[derive(Copy)]
    pub Ejection "ejection" {
        /// After how many failures in a row; 0 never ejects.
        failures: u64 = "5" in 0..=COUNT_MAX,
        /// How long the first ejection lasts; each further one in a row lasts that much longer.
        base: Duration = "10s",
        /// The longest ejection.
        max: Duration = "5m",
    }
}
