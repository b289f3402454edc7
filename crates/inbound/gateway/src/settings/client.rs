//! Settings of the side that clients are on.

use std::time::Duration;

/// Which field names the client, when a trusted hop sends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFrom {
    /// None: the client is whoever is connected.
    Peer,
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// What upstreams are told of where a request came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenanceSettings {
    /// What the gateway calls itself in `Via`; none leaves the field alone. Default: `tidegate`.
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

/// What heads and bodies of requests may be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSettings {
    /// The longest path with its query, in bytes. Default: 8 KiB.
    pub target_bytes_max: usize,
    /// The most segments of a path. Default: 256.
    pub segments_max: usize,
    /// The largest body. Default: none is too large.
    pub body_bytes_max: Option<u64>,
    /// How long a client may take between two pieces of a body. Default: 30 s.
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

/// How requests are kept for limits that say `when_over: queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// The most requests kept, with those whose state is still told. Default: 1,000.
    pub requests_max: usize,
    /// The most bytes of heads and bodies that wait. Default: 64 MiB.
    pub bytes_max: usize,
    /// The largest body that is kept. Default: 1 MiB.
    pub body_bytes_max: usize,
    /// The maximum of requests of one caller, so that one cannot fill the queue. Default: 100.
    pub caller_requests_max: usize,
    /// The maximum of bytes of one caller's waiting requests. Default: 8 MiB.
    pub caller_bytes_max: usize,
    /// How long a request may wait before it expires. Default: 5 min.
    pub wait_max: Duration,
    /// How long the state of a request is told after its end. Default: 10 min.
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
