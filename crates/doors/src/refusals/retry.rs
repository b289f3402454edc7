//! When to ask again, in whole seconds.
//!
//! Small numbers are written once for all answers.

use std::sync::LazyLock;

use http::header::HeaderValue;

/// Numbers up to this are there already.
const READY_MAX: u64 = 300;

static NUMBERS: LazyLock<Vec<HeaderValue>> =
    LazyLock::new(|| (0..=READY_MAX).map(HeaderValue::from).collect());
static MILLIS: LazyLock<Vec<HeaderValue>> =
    LazyLock::new(|| (0..=READY_MAX).map(|secs| HeaderValue::from(secs * 1_000)).collect());

/// When to ask again.
#[cfg(feature = "gateway")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// After so many seconds.
    After(u64),
    /// It would be refused again.
    Never,
}

#[cfg(feature = "gateway")]
impl Retry {
    pub(crate) const fn seconds(self) -> Option<u64> {
        match self {
            Retry::After(seconds) => Some(seconds),
            Retry::Never => None,
        }
    }
}

/// A number as a field has it.
pub(crate) fn number(number: u64) -> HeaderValue {
    ready(&NUMBERS, number).unwrap_or_else(|| HeaderValue::from(number))
}

/// Seconds as milliseconds.
pub(crate) fn millis(seconds: u64) -> HeaderValue {
    ready(&MILLIS, seconds).unwrap_or_else(|| HeaderValue::from(seconds.saturating_mul(1_000)))
}

fn ready(values: &[HeaderValue], number: u64) -> Option<HeaderValue> {
    values.get(usize::try_from(number).ok()?).cloned()
}
