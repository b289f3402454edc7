//! The real clock.
//!
//! Asking the operating system costs as much as the rest of a decision, so the
//! processor's counter is read instead and compared with the system's clock a
//! few times a second. Between two comparisons it can be off by as much as the
//! counter drifts in that time, some microseconds; it may step back by as
//! much, which no algorithm minds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_algorithms::{Clock, Timestamp};

/// How often the counter is compared with the system's clock.
const COMPARE_EVERY: u64 = 100_000_000;

/// Wall-clock time from the processor's counter.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    /// Nanoseconds per 2³² of the counter's steps.
    scale: u64,
    /// What to add to the counter's nanoseconds to get time since the epoch.
    offset: AtomicU64,
    /// The counter's nanoseconds at which to compare again.
    compare_at: AtomicU64,
}

impl SystemClock {
    /// A clock that agrees with the system's now.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let scale = counter.delta_as_nanos(0, 1 << 32);
        let clock = SystemClock {
            counter,
            scale,
            offset: AtomicU64::new(0),
            compare_at: AtomicU64::new(0),
        };
        clock.compare(clock.counted());
        clock
    }

    /// Nanoseconds that the counter has counted since the clock was made.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "2^64 nanoseconds are 584 years")]
    fn counted(&self) -> u64 {
        ((u128::from(self.counter.raw()) * u128::from(self.scale)) >> 32) as u64
    }

    #[cold]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the real clock"
    )]
    fn compare(&self, counted: u64) {
        let due = self.compare_at.load(Ordering::Relaxed);
        let next = counted.saturating_add(COMPARE_EVERY);
        // One caller compares; the others go on with the offset they have.
        let mine =
            self.compare_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if mine.is_ok() {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
            self.offset.store(now.wrapping_sub(counted), Ordering::Relaxed);
        }
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let counted = self.counted();
        if counted >= self.compare_at.load(Ordering::Relaxed) {
            self.compare(counted);
        }
        Timestamp::from_nanos(counted.wrapping_add(self.offset.load(Ordering::Relaxed)))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}
