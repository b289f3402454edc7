//! The length of a window or of one refill.

use std::time::Duration;

use crate::time::Nanos;

/// A span between one millisecond and 366 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(u64);

/// A span that cannot be the period of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a period must be between 1ms and 366 days, not {0:?}")]
pub struct PeriodError(pub Duration);

impl Period {
    /// One millisecond.
    pub const MIN: Period = Period(1_000_000);
    /// A leap year.
    pub const MAX: Period = Period(366 * 86_400 * 1_000_000_000);
    /// One second.
    pub const SECOND: Period = Period(1_000_000_000);
    /// Sixty seconds.
    pub const MINUTE: Period = Period(60 * 1_000_000_000);
    /// Sixty minutes.
    pub const HOUR: Period = Period(3_600 * 1_000_000_000);
    /// Twenty-four hours.
    pub const DAY: Period = Period(86_400 * 1_000_000_000);

    /// A period of this length.
    ///
    /// # Errors
    /// When `length` is under a millisecond or over 366 days.
    pub fn new(length: Duration) -> Result<Self, PeriodError> {
        let nanos = Nanos::from(length).get();
        if (Self::MIN.0..=Self::MAX.0).contains(&nanos) {
            Ok(Period(nanos))
        } else {
            Err(PeriodError(length))
        }
    }

    /// The length in nanoseconds; never zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How far `now` may lie behind an instant already seen and still be taken
    /// for late rather than for a clock that stepped back.
    ///
    /// Threads read the clock before they take their turn at a key, so readings
    /// arrive out of order. Were each taken for a step back, usage would be
    /// forgotten a little every time.
    pub fn lag_max(self) -> Nanos {
        Nanos::new(self.0.min(Period::SECOND.0))
    }

    /// The length as a span.
    pub const fn as_span(self) -> Nanos {
        Nanos::new(self.0)
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Self {
        Duration::from_nanos(period.0)
    }
}
