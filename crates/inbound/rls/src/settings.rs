//! How the door answers.

/// How the door answers. The defaults are those of envoyproxy/ratelimit, but
/// for the errors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the settings")]
pub struct RlsSettings {
    /// Whether every request is answered `OK` as a whole; its statuses still
    /// say what would have been.
    pub shadow: bool,
    /// Whether one limit left is enough: a request is over only when all of its
    /// descriptors that met a limit are. Meant for rules that charge always, as
    /// upstream's do: where a refusal charges nobody, what is left is not used up.
    pub quota: bool,
    /// The names of three header fields for the client; none are sent without.
    pub response_headers: Option<HeaderNames>,
    /// Whether answers have dynamic metadata for the proxy.
    pub dynamic_metadata: bool,
    /// Whether errors are those of envoyproxy/ratelimit: all of them `Unknown`,
    /// and an undecided request among them. Otherwise the engine's failure mode
    /// answers what nobody could decide.
    pub upstream_errors: bool,
    /// The largest message, in bytes.
    pub message_bytes_max: usize,
    /// Whether the service describes itself to clients that ask.
    pub reflection: bool,
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
            reflection: true,
        }
    }
}

/// The names of the header fields that tell of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// How much the limit allows.
    pub limit: String,
    /// How much of it remains.
    pub remaining: String,
    /// In how many seconds it starts over.
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
