//! The real clock, for measuring. Nothing else in this crate reads it.

use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

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

/// The CPU time of the calling thread. It excludes the time of other threads, so other load of the
/// machine hardly changes it.
pub(crate) fn on_processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// The time of day, for a peer that takes it as an argument.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the peer's clock reading is part of its decision")]
pub(crate) fn time_of_day() -> SystemTime {
    SystemTime::now()
}
