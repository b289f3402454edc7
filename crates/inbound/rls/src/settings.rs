//! The settings of the rate limit service.

use tidegate_access::AccessTokens;

/// The settings of the rate limit service. The defaults are those of envoyproxy/ratelimit, except for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent switch")]
pub struct RlsSettings {
    /// Whether the overall code is always `OK`; the statuses still show what would have been.
    pub shadow: bool,
    /// Whether a request is over its limit only if all of its limited descriptors are. Meant for rules that charge refused
    /// requests too, as upstream's do; otherwise a refusal does not use up what is left of the others.
    pub quota: bool,
    /// The names of three header fields for the client. Without them none are sent.
    pub response_headers: Option<HeaderNames>,
    /// Whether answers have dynamic metadata for the proxy.
    pub dynamic_metadata: bool,
    /// Whether errors are those of envoyproxy/ratelimit: always `Unknown`, also for an undecided request. Otherwise an
    /// undecided request is `Unavailable` if the engine's failure mode refuses it, and passes if it admits it.
    pub upstream_errors: bool,
    /// The largest message, in bytes.
    pub message_bytes_max: usize,
    /// The most descriptors of a request; the engine has its own maximum.
    pub descriptors_max: usize,
    /// Whether the service supports gRPC reflection.
    pub reflection: bool,
    /// If there are any, each call of `ShouldRateLimit` needs one with the role `check`, as `authorization: Bearer` in
    /// its metadata.
    pub tokens: AccessTokens,
}

impl Default for RlsSettings {
    fn default() -> Self {
        RlsSettings {
            shadow: false,
            quota: false,
            response_headers: None,
            dynamic_metadata: false,
            upstream_errors: false,
            // A thousand descriptors of a kilobyte each.
            message_bytes_max: 1 << 20,
            descriptors_max: tidegate_engine::DESCRIPTORS_MAX,
            reflection: true,
            tokens: AccessTokens::default(),
        }
    }
}

/// The names of the header fields that describe a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// The field for the limit.
    pub limit: String,
    /// The field for what remains of it.
    pub remaining: String,
    /// The field for the seconds until it resets.
    pub reset: String,
}

impl Default for HeaderNames {
    fn default() -> Self {
        HeaderNames {
            limit: "RateLimit-Limit".to_owned(),
            remaining: "RateLimit-Remaining".to_owned(),
            reset: "RateLimit-Reset".to_owned(),
        }
    }
}

impl HeaderNames {
    pub(super) fn each(&self) -> [&str; 3] {
        [&self.limit, &self.remaining, &self.reset]
    }
}
