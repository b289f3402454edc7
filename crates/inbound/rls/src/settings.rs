//! The settings of the rate limit service.

use tidegate_access::AccessTokens;
use tidegate_macros::defaults;

defaults! {
    /// The settings of the rate limit service. The defaults are those of envoyproxy/ratelimit, except for errors.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RlsSettings {
        /// Whether the overall code is always `OK`; the statuses still show what would have been.
        pub shadow: bool,
        /// Whether a request is over its limit only if all of its limited descriptors are. Meant for rules that charge
        /// refused requests too, as upstream's do; otherwise a refusal does not use up what is left of the others.
        pub quota: bool,
        /// The names of three header fields for the client. Without them none are sent.
        pub response_headers: Option<HeaderNames>,
        /// Whether answers have dynamic metadata for the proxy.
        pub dynamic_metadata: bool,
        /// Whether errors are those of envoyproxy/ratelimit: always `Unknown`, also for an undecided request. Otherwise
        /// an undecided request is `Unavailable` if the engine's failure mode refuses it, and passes if it admits it.
        pub upstream_errors: bool,
        /// The largest message, in bytes. Default: a thousand descriptors of a kilobyte each.
        pub message_bytes_max: usize = 1 << 20,
        /// The most descriptors of a request; the engine has its own maximum.
        pub descriptors_max: usize = tidegate_engine::DESCRIPTORS_MAX,
        /// Whether the service supports gRPC reflection.
        pub reflection: bool = true,
        /// If there are any, each call of `ShouldRateLimit` needs one with the role `check`, as `authorization: Bearer`
        /// in its metadata.
        pub tokens: AccessTokens,
    }
}

defaults! {
    /// The names of the header fields that describe a limit.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct HeaderNames {
        /// The field for the limit.
        pub limit: String = "RateLimit-Limit".to_owned(),
        /// The field for what remains of it.
        pub remaining: String = "RateLimit-Remaining".to_owned(),
        /// The field for the seconds until it resets.
        pub reset: String = "RateLimit-Reset".to_owned(),
    }
}

impl HeaderNames {
    pub(super) fn each(&self) -> [&str; 3] {
        [&self.limit, &self.remaining, &self.reset]
    }
}
