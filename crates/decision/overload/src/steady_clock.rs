//! A monotonic clock that starts at a given time.
//!
//! Leases and waits are spans, and setting the system's clock must not change a span. Every
//! request reads the time three times, so this clock reads the processor's counter and compares
//! it with the system's monotonic clock a few times a second, see [`CounterTime`]. It may differ
//! from tokio's timers by some microseconds and step back by as much. That is harmless: readings
//! of several threads come out of order anyway.
//!
//! Tests that pause tokio's time use a [`TokioClock`](crate::TokioClock).

use std::sync::LazyLock;
use std::time::Instant;

use tidegate_algorithms::{Clock, Comparison, CounterTime, Timestamp};

/// One for the process: clocks differ only in their start, and stay small enough to copy.
static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::new);

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    start: Timestamp,
    /// The counter's time when the clock was created.
    began: Timestamp,
}

impl SteadyClock {
    /// A clock that shows `start` now. Use the time of day: the hour of the cohorts comes from it.
    pub fn starting_at(start: Timestamp) -> Self {
        SteadyClock { start, began: COUNTER.now() }
    }
}

impl Clock for SteadyClock {
    #[inline]
    fn now(&self) -> Timestamp {
        self.start.after(COUNTER.now().since(self.began))
    }
}

/// The processor's counter, compared with the system's monotonic clock.
#[derive(Debug)]
struct Counter {
    counter: quanta::Clock,
    /// The origin of times: the system's monotonic clock has none.
    zero: Instant,
    time: CounterTime,
}

impl Counter {
    #[expect(clippy::disallowed_methods, reason = "what the counter is compared with")]
    fn new() -> Self {
        let counter = quanta::Clock::new();
        let scale = counter.delta_as_nanos(0, 1 << 32);
        let zero = Instant::now();
        let time = CounterTime::new(scale, compare(&counter, zero));
        Counter { counter, zero, time }
    }

    #[inline]
    fn now(&self) -> Timestamp {
        self.time.at(self.counter.raw(), || compare(&self.counter, self.zero))
    }
}

#[expect(clippy::disallowed_methods, reason = "what the counter is compared with")]
fn compare(counter: &quanta::Clock, zero: Instant) -> Comparison {
    let passed = || u64::try_from(zero.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Comparison::of(|| counter.raw(), passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_it_was_told_and_goes_on_from_there() {
        let start = Timestamp::from_secs(1_000);
        let clock = SteadyClock::starting_at(start);
        let first = clock.now();
        assert!(first >= start && first < Timestamp::from_secs(2_000));
        assert!((0..u32::MAX).any(|_| clock.now() != first), "however coarse, it moves");
    }

    #[test]
    fn clocks_that_start_apart_stay_apart() {
        let early = SteadyClock::starting_at(Timestamp::from_secs(1_000));
        let late = SteadyClock { start: Timestamp::from_secs(5_000), ..early };
        for _ in 0..1_000 {
            let (before, after) = (early.now(), late.now());
            let apart = after.since(before);
            assert!(apart.get() > 3_999_000_000_000, "{apart:?}");
        }
    }
}
