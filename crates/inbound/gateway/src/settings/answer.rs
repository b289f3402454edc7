//! Settings of the gateway's own responses and of the access log.

use std::num::NonZeroU64;

use tidegate_document::choices;
use tidegate_engine::RefusalStatus;
use tidegate_macros::defaults;

/// The refusals of a route.
///
/// A template is a text with `{status}`, `{code}`, `{title}`, `{detail}` and `{quota}`. The time to retry is in
/// `Retry-After` and not in the text, so that a body is rendered once and not for each refusal. gRPC calls always get a
/// gRPC status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerSettings {
    /// The body in JSON; values are escaped as in JSON strings. Default: a problem (RFC 9457).
    pub json: Option<String>,
    /// The body for clients that prefer HTML; values are escaped. Default: a small page.
    pub html: Option<String>,
    /// The status of refusals by limits without a `refusal_status`. Default: 429.
    pub refusal_status: Option<RefusalStatus>,
}

defaults! {
    /// The access log.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AccessLogSettings {
        /// The format of its lines.
        pub format: AccessLogFormat,
        /// One of this many requests is logged. Default: every one.
        pub one_of: NonZeroU64 = NonZeroU64::MIN,
        /// Lines that may wait to be written; more are dropped and counted. Default: 8,192.
        pub waiting_max: usize = 8_192,
        /// How a line names the caller, who is identified as for overload protection. Default: as it is.
        pub caller: CallerFormat,
    }
}

choices! {
    /// How the access log names a caller.
    #[derive(Default)]
    pub enum CallerFormat {
        /// As it is.
        #[default]
        Plain = "plain",
        /// The beginning of its SHA-256: lines of one caller can be found, and its name cannot be read.
        Hashed = "hashed",
        /// Not at all.
        Off = "off",
    }
}

choices! {
    /// The format of the access log.
    #[derive(Default)]
    pub enum AccessLogFormat {
        /// One JSON object in each line.
        #[default]
        Json = "json",
        /// The common log format of web servers.
        Common = "common",
    }
}
