//! How long to wait: `Retry-After` and its relatives.

use std::time::SystemTime;

use http::HeaderMap;
use tidegate_algorithms::{Nanos, Timestamp};

use crate::span::{read_decimal, read_integer};
use crate::{retry_info, text};

/// Fields in milliseconds.
const MILLISECOND_FIELDS: [&str; 3] =
    ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"];
/// `Retry-After` rounds up to whole seconds: a field in milliseconds may be this much shorter.
const ROUNDING: Nanos = Nanos::from_secs(1);

/// The `Date` of an answer.
pub(crate) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    read_date(text(headers, "date")?)
}

/// The longest wait that the answer asks for; a precise one instead where it only lacks the rounding of the longest.
pub(crate) fn read_wait(headers: &HeaderMap, now: Timestamp) -> Option<Nanos> {
    let precise = MILLISECOND_FIELDS
        .iter()
        .filter_map(|name| read_decimal(text(headers, name)?, Nanos::from_millis(1)))
        .chain(pushback(headers))
        .chain(retry_info::read_delay(headers))
        .max();
    let rounded = ["retry-after", "x-ratelimit-retry-after"]
        .iter()
        .filter_map(|name| read_retry_after(text(headers, name)?, now))
        .max();
    match (precise, rounded) {
        (Some(precise), Some(rounded)) => {
            let is_same = rounded.get().abs_diff(precise.get()) < ROUNDING.get();
            Some(if is_same { precise } else { precise.max(rounded) })
        }
        (wait, None) | (None, wait) => wait,
    }
}

/// Whether a gRPC service asks not to retry.
pub(crate) fn forbids_retry(headers: &HeaderMap) -> bool {
    text(headers, "grpc-retry-pushback-ms")
        .and_then(|value| value.strip_prefix('-'))
        .is_some_and(|number| read_integer(number).is_some())
}

fn pushback(headers: &HeaderMap) -> Option<Nanos> {
    read_integer(text(headers, "grpc-retry-pushback-ms")?).map(Nanos::from_millis)
}

/// `Retry-After`: seconds, decimals, or a date.
fn read_retry_after(value: &str, now: Timestamp) -> Option<Nanos> {
    read_decimal(value, Nanos::from_secs(1)).or_else(|| Some(read_date(value)?.since(now)))
}

fn read_date(value: &str) -> Option<Timestamp> {
    let date = httpdate::parse_http_date(value).ok()?;
    let since = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_secs(since.as_secs()))
}
