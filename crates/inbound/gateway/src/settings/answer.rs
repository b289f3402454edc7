//! Settings of what the gateway itself says: refusals, and the access log.

use std::num::NonZeroU64;

use tidegate_engine::RefusalStatus;

/// How the refusals of a route are told.
///
/// A template is a text with `{status}`, `{code}`, `{title}`, `{detail}` and `{quota}` in it.
/// When to ask again stands in `Retry-After` and not in the text: so an answer is written once
/// and not for each refusal. gRPC calls are answered with a gRPC status whatever stands here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerSettings {
    /// The body in JSON, with values as they stand inside of JSON strings. Default: a problem
    /// (RFC 9457).
    pub json: Option<String>,
    /// The body for those who ask for HTML first, with values escaped. Default: a small page.
    pub html: Option<String>,
    /// The status of refusals by limits that do not choose one. Default: 429.
    pub refusal_status: Option<RefusalStatus>,
}

/// What is written of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// In which form.
    pub format: AccessLogFormat,
    /// One of so many requests is written. Default: every one.
    pub one_of: NonZeroU64,
    /// Lines that may wait to be written; more are dropped and counted. Default: 8,192.
    pub waiting_max: usize,
    /// How a line names the caller, who is identified as for overload protection. Default: as it is.
    pub caller: CallerFormat,
}

/// How the access log names a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallerFormat {
    /// As it is.
    #[default]
    Plain,
    /// The beginning of its SHA-256: lines of one caller can be found, and its name cannot be read.
    Hashed,
    /// Not at all.
    Off,
}

impl Default for AccessLogSettings {
    fn default() -> Self {
        AccessLogSettings {
            format: AccessLogFormat::default(),
            one_of: NonZeroU64::MIN,
            waiting_max: 8_192,
            caller: CallerFormat::default(),
        }
    }
}

/// The form of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object in each line.
    #[default]
    Json,
    /// The common log format of web servers.
    Common,
}
