//! Reads what an answer says about limits.
//!
//! Services say when to come back and what is left of a quota in many forms: `Retry-After`, `RateLimit`,
//! `X-RateLimit-*`, milliseconds, dates, epochs, texts such as `6m0s`. [`ResponseFields::read`] turns all of them into
//! one value. Pure: the caller passes the time of day, and nothing here waits.
//!
//! Malformed fields are ignored, one by one. An answer from a cache (`Age`) says nothing about limits now, so all of
//! its fields are ignored.
//!
//! ```
//! use http::HeaderMap;
//! use tidegate_response_fields::{Nanos, ResponseFields, Timestamp};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("retry-after", "2".parse().unwrap());
//! headers.insert("ratelimit-policy", "\"hourly\";q=100;w=3600".parse().unwrap());
//! headers.insert("ratelimit", "\"hourly\";r=0;t=2".parse().unwrap());
//!
//! let fields = ResponseFields::read(&headers, Timestamp::from_secs(1_800_000_000));
//! assert_eq!(fields.wait, Some(Nanos::from_secs(2)));
//! assert_eq!(fields.policies[0].quota, Some(100));
//! assert_eq!(fields.policies[0].remaining, Some(0));
//! ```
//!
//! Not here: deciding how long to wait, and waiting.

mod policies;
mod retry_info;
mod span;
mod structured;
mod wait;

use http::HeaderMap;
pub use policies::{NAME_BYTES_MAX, POLICIES_MAX, PolicyReading, PolicyUnit};
pub use tidegate_algorithms::{Nanos, Timestamp};

/// What one answer says about limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseFields {
    /// How long to wait before the next call.
    pub wait: Option<Nanos>,
    /// The service asks not to retry at all: a negative `grpc-retry-pushback-ms`.
    pub forbids_retry: bool,
    /// The quotas that the answer names; at most [`POLICIES_MAX`].
    pub policies: Vec<PolicyReading>,
}

impl ResponseFields {
    /// Reads the fields of an answer. `now` is the time of day; an answer's own `Date` counts instead where it has one,
    /// because dates and epochs in other fields are by the clock of the service.
    pub fn read(headers: &HeaderMap, now: Timestamp) -> Self {
        if is_from_cache(headers) {
            return ResponseFields::default();
        }
        let now = wait::date(headers).unwrap_or(now);
        ResponseFields {
            wait: wait::read_wait(headers, now),
            forbids_retry: wait::forbids_retry(headers),
            policies: policies::read_policies(headers, now),
        }
    }
}

/// Whether a cache answered: an `Age` above zero.
fn is_from_cache(headers: &HeaderMap) -> bool {
    text(headers, "age").and_then(span::read_integer).is_some_and(|age| age > 0)
}

/// The first value of a field, if it is text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}
