//! The real clock, for measuring. Nothing else in this crate reads it.

use std::time::{Duration, Instant, SystemTime};

/// Runs from when it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn start() -> Self {
        Stopwatch(Instant::now())
    }

    #[inline]
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The time of day, for a peer that wants to be told.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the peer's clock reading is part of its decision")]
pub(crate) fn time_of_day() -> SystemTime {
    SystemTime::now()
}
