//! The length of a window or of one refill.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::time::Nanos;

/// A span between one millisecond and 366 days. An `Option` of it is as small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(NonZeroU64);

/// A span that is too short or too long for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a period must be between 1ms and 366 days, not {0:?}")]
pub struct PeriodError(pub Duration);

impl Period {
    /// One millisecond.
    pub const MIN: Period = Period::of(1_000_000);
    /// A leap year.
    pub const MAX: Period = Period::of(366 * 86_400 * 1_000_000_000);
    /// One second.
    pub const SECOND: Period = Period::of(1_000_000_000);
    /// Sixty seconds.
    pub const MINUTE: Period = Period::of(60 * 1_000_000_000);
    /// Sixty minutes.
    pub const HOUR: Period = Period::of(3_600 * 1_000_000_000);
    /// Twenty-four hours.
    pub const DAY: Period = Period::of(86_400 * 1_000_000_000);

    /// A period of this length.
    ///
    /// # Errors
    /// If `length` is under a millisecond or over 366 days.
    pub fn new(length: Duration) -> Result<Self, PeriodError> {
        let period = NonZeroU64::new(Nanos::from(length).get()).map(Period);
        period.filter(|period| (Self::MIN..=Self::MAX).contains(period)).ok_or(PeriodError(length))
    }

    /// For the constants, which are never zero.
    const fn of(nanos: u64) -> Self {
        match NonZeroU64::new(nanos) {
            Some(nanos) => Period(nanos),
            None => Period(NonZeroU64::MIN),
        }
    }

    /// The length in nanoseconds; never zero.
    pub const fn as_nanos(self) -> u64 {
        self.0.get()
    }

    /// How far `now` may be behind an earlier reading and still count as a late reading instead of
    /// a clock that stepped back.
    ///
    /// Threads read the clock before they lock a key, so readings arrive out of order. If each
    /// counted as a step back, a little use would be dropped every time.
    pub fn lag_max(self) -> Nanos {
        self.min(Period::SECOND).as_span()
    }

    /// The length as a span.
    pub const fn as_span(self) -> Nanos {
        Nanos::new(self.0.get())
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Self {
        Duration::from_nanos(period.as_nanos())
    }
}
