//! Settings for requests as clients send them.

use std::time::Duration;

use tidegate_document::{Size, choices, settings};

use super::COUNT_MAX;

choices! {
    /// The field in which a trusted proxy names the client.
    #[derive(Default)]
    pub enum AddressFrom {
        /// None: the client is the peer of the connection.
        Peer = "peer",
        /// `X-Forwarded-For`.
        #[default]
        XForwardedFor = "x_forwarded_for",
        /// `Forwarded` (RFC 7239).
        Forwarded = "forwarded",
    }
}

settings! {
    /// what upstreams learn about the client
    pub ProvenanceSettings "provenance" {
        /// The name of the gateway in `Via`.
        via: Option<String> = "tidegate",
        /// Whether to send `X-Forwarded-For`, `-Proto` and `-Host`.
        x_forwarded: bool = "true",
        /// Whether to send `Forwarded`.
        forwarded: bool = "true",
    }
}

settings! {
    /// limits for request heads and bodies
    #[derive(Copy)]
    pub HeadSettings "head" {
        /// The longest path with its query.
        target_bytes_max: Size = "8KiB",
        /// The maximum of path segments.
        segments_max: usize = "256" in 1..=COUNT_MAX,
        /// The largest body.
        body_bytes_max: Option<Size> = "off",
        /// How long a client may take between two parts of a body.
        body_idle: Duration = "30s",
        /// How paths with an escaped slash (`%2F`) are treated: rejected with 400, taken as a slash, or kept for
        /// upstreams that do not decode it before they route.
        escaped_slashes: EscapedSlashes = "reject",
    }
}

choices! {
    /// How a path with an escaped slash (`%2F`) is treated. Some servers decode it before they route, so that
    /// `/public%2F..` and `/admin%2Fusers` reach other resources than the gateway matched.
    #[derive(Default)]
    pub enum EscapedSlashes {
        /// The request is rejected with 400.
        #[default]
        Reject = "reject",
        /// It is a slash, for the gateway and for the upstream.
        Unescape = "unescape",
        /// It is part of its segment, and forwarded unchanged: for upstreams that do not decode it before they route.
        Keep = "keep",
    }
}

settings! {
    /// how requests are stored
    #[derive(Copy)]
    pub QueueSettings "queue" {
        /// The maximum of stored requests, including finished ones that can still be looked up.
        requests_max: usize = "1000" in 0..=COUNT_MAX,
        /// The maximum of bytes of waiting heads and bodies.
        bytes_max: Size = "64MiB",
        /// The largest body that is stored.
        body_bytes_max: Size = "1MiB",
        /// The maximum of stored requests of one caller, which `categories.caller` identifies. Its finished requests make
        /// room for new ones.
        caller_requests_max: usize = "100" in 0..=COUNT_MAX,
        /// The maximum of bytes of one caller's waiting heads and bodies.
        caller_bytes_max: Size = "8MiB",
        /// How long a request may wait before it expires.
        wait_max: Duration = "5m",
        /// How long a finished request can still be looked up.
        remember: Duration = "10m",
        /// How much of the body of a response is kept for its caller.
        response_bytes_max: Size = "64KiB",
        /// Whether credentials (`Authorization`, cookies, API keys) of stored requests are written to the data directory.
        /// Without them, a request that waits during a restart is processed without credentials.
        keep_credentials: bool = "false",
    }
}
