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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After so many seconds.
    After(u64),
    /// It would be refused again.
    Never,
}

impl Retry {
    /// The seconds to wait, if waiting helps.
    pub const fn seconds(self) -> Option<u64> {
        match self {
            Retry::After(seconds) => Some(seconds),
            Retry::Never => None,
        }
    }
}

/// A number as a field has it.
pub fn number(number: u64) -> HeaderValue {
    ready(&NUMBERS, number).unwrap_or_else(|| HeaderValue::from(number))
}

/// Seconds as milliseconds.
pub fn millis(seconds: u64) -> HeaderValue {
    ready(&MILLIS, seconds).unwrap_or_else(|| HeaderValue::from(seconds.saturating_mul(1_000)))
}

fn ready(values: &[HeaderValue], number: u64) -> Option<HeaderValue> {
    values.get(usize::try_from(number).ok()?).cloned()
}
