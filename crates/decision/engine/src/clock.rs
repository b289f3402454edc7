//! The real clock.
//!
//! A system call costs as much as the rest of a decision, so the clock reads the processor's counter and compares it with
//! the system clock a few times a second; see [`CounterTime`]. Between two comparisons it is off by the counter's drift,
//! some microseconds. It may step back by as much, which every algorithm tolerates.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_algorithms::{Clock, Comparison, CounterTime, Timestamp};

/// Wall-clock time from the processor's counter.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    time: CounterTime,
}

impl SystemClock {
    /// A clock that agrees with the system's now.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let scale = counter.delta_as_nanos(0, 1 << 32);
        let time = CounterTime::new(scale, compare(&counter));
        SystemClock { counter, time }
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        self.time.at(self.counter.raw(), || compare(&self.counter))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

fn compare(counter: &quanta::Clock) -> Comparison {
    Comparison::of(|| counter.raw(), time_of_day)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the real clock")]
fn time_of_day() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}
