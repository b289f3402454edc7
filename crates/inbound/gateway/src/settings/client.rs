//! Settings for requests as clients send them.

use std::time::Duration;

/// The field in which a trusted proxy names the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFrom {
    /// None: the client is the peer of the connection.
    Peer,
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// The fields that tell upstreams where a request came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenanceSettings {
    /// The gateway's name in `Via`; [`None`] adds no such field. Default: `tidegate`.
    pub via: Option<String>,
    /// Whether `X-Forwarded-For`, `-Proto` and `-Host` are sent. Default: yes.
    pub x_forwarded: bool,
    /// Whether `Forwarded` is sent. Default: yes.
    pub forwarded: bool,
}

impl Default for ProvenanceSettings {
    fn default() -> Self {
        ProvenanceSettings { via: Some("tidegate".to_owned()), x_forwarded: true, forwarded: true }
    }
}

/// Limits for heads and bodies of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSettings {
    /// The longest path with its query, in bytes. Default: 8 KiB.
    pub target_bytes_max: usize,
    /// The maximum of path segments. Default: 256.
    pub segments_max: usize,
    /// The largest body. Default: no limit.
    pub body_bytes_max: Option<u64>,
    /// How long a client may take between two parts of a body. Default: 30 s.
    pub body_idle: Duration,
    /// How paths with an escaped slash are treated, unless a route overrides it. Default: they are rejected.
    pub escaped_slashes: EscapedSlashes,
}

/// How a path with an escaped slash (`%2F`) is treated. Some servers decode it before they route, so that
/// `/public%2F..` and `/admin%2Fusers` reach other resources than the gateway matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EscapedSlashes {
    /// The request is rejected with 400.
    #[default]
    Reject,
    /// It is a slash, for the gateway and for the upstream.
    Unescape,
    /// It is part of its segment, and forwarded unchanged: for upstreams that do not decode it before they route.
    Keep,
}

impl Default for HeadSettings {
    fn default() -> Self {
        HeadSettings {
            target_bytes_max: 8 * 1024,
            segments_max: 256,
            body_bytes_max: None,
            body_idle: Duration::from_secs(30),
            escaped_slashes: EscapedSlashes::default(),
        }
    }
}

/// How requests are stored under limits with `when_over: queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// The maximum of stored requests, including finished ones that can still be looked up. Default: 1,000.
    pub requests_max: usize,
    /// The maximum of bytes of waiting heads and bodies. Default: 64 MiB.
    pub bytes_max: usize,
    /// The largest body that is stored. Default: 1 MiB.
    pub body_bytes_max: usize,
    /// The maximum of requests of one caller, so that one cannot fill the queue. Default: 100.
    pub caller_requests_max: usize,
    /// The maximum of bytes of one caller's waiting requests. Default: 8 MiB.
    pub caller_bytes_max: usize,
    /// How long a request may wait before it expires. Default: 5 min.
    pub wait_max: Duration,
    /// How long a finished request can be looked up. Default: 10 min.
    pub remember: Duration,
}

impl Default for QueueSettings {
    fn default() -> Self {
        QueueSettings {
            requests_max: 1_000,
            bytes_max: 64 * 1024 * 1024,
            body_bytes_max: 1024 * 1024,
            caller_requests_max: 100,
            caller_bytes_max: 8 * 1024 * 1024,
            wait_max: Duration::from_secs(5 * 60),
            remember: Duration::from_secs(10 * 60),
        }
    }
}
