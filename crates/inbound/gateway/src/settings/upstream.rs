//! Settings of a group of upstreams.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// A group of equivalent servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The name that routes use.
    pub name: String,
    /// The servers, as `http://host:port` or `https://host:port`.
    pub hosts: Vec<String>,
    /// Their protocol.
    pub protocol: UpstreamProtocol,
    /// Certificates for servers with `https`.
    pub tls: UpstreamTls,
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
            protocol: UpstreamProtocol::default(),
            tls: UpstreamTls::default(),
            timeouts: Timeouts::default(),
            pool: PoolSettings::default(),
            health: None,
            ejection: Ejection::default(),
        }
    }
}

/// The protocol of upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1, or with `https` whatever both sides negotiate.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; without TLS by prior knowledge.
    Http2,
}

/// Certificates for upstreams with TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// A PEM file with the certificate authorities to trust. Default: the system's.
    pub authority: Option<PathBuf>,
    /// The name that the server's certificate must have. Default: the host's.
    pub server_name: Option<String>,
    /// PEM files with a client certificate and its private key. Default: none.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl UpstreamTls {
    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let client = self.client.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.authority.iter().chain(client).map(PathBuf::as_path)
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect, encryption included. Default: 2 s.
    pub connect: Duration,
    /// From the last byte of a request to the head of its answer. Default: 60 s.
    pub first_byte: Duration,
    /// Between two pieces of an answer, and in a tunnel. Default: 60 s.
    pub idle: Duration,
    /// For a whole request with its answer. Default: no limit.
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            total: None,
        }
    }
}

/// How many connections to one server are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Idle connections kept by each worker. Default: 128.
    pub idle_max: usize,
    /// How long an idle connection is kept. Should be shorter than the upstream keeps them.
    /// Default: 30 s.
    pub idle_timeout: Duration,
    /// Requests at once on one HTTP/2 connection, before another is opened. Default: 100.
    pub streams_max: usize,
    /// HTTP/2 connections of each worker. Default: 4.
    pub shared_max: usize,
}

impl Default for PoolSettings {
    fn default() -> Self {
        PoolSettings {
            idle_max: 128,
            idle_timeout: Duration::from_secs(30),
            streams_max: 100,
            shared_max: 4,
        }
    }
}

/// How servers are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The path to ask for. An answer below 400 is good. Default: `/`.
    pub path: String,
    /// How often. Default: 5 s.
    pub interval: Duration,
    /// How long an answer may take. Default: 1 s.
    pub timeout: Duration,
    /// So many bad answers in a row take a server out. Default: 3.
    pub unhealthy_after: u32,
    /// So many good answers in a row bring it back. Default: 2.
    pub healthy_after: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        HealthCheck {
            path: "/".to_owned(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            unhealthy_after: 3,
            healthy_after: 2,
        }
    }
}

/// When a server that fails is left alone for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// So many failures in a row: no connection, no answer in time, a broken answer, or 502,
    /// 503 and 504. Zero never ejects. Default: 5.
    pub failures: u32,
    /// For how long the first time; each time in a row as much longer. Default: 10 s.
    pub base: Duration,
    /// For how long at most. Default: 5 min.
    pub max: Duration,
}

impl Default for Ejection {
    fn default() -> Self {
        Ejection { failures: 5, base: Duration::from_secs(10), max: Duration::from_secs(5 * 60) }
    }
}
