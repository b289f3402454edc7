//! Notices that a clock was put back.
//!
//! Compares it with tokio's. A thread may be held up between the two readings,
//! so tokio's is read before and after: only what the clock cannot have missed
//! counts against it. Forward jumps are no concern of this.

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tokio::time::Instant;

use super::lease::SLIP;

/// How often the clock is read again because the thread was held up.
const READINGS_MAX: usize = 4;
/// Readings that lie closer together are good enough.
const CLOSE: Nanos = Nanos::from_millis(1);

/// What a clock showed, and between which two moments.
#[derive(Clone, Copy, Debug)]
struct Reading {
    before: Instant,
    shown: Timestamp,
    after: Instant,
}

/// Watches a clock.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    last: Reading,
}

impl ClockWatch {
    /// Begins with what the clock shows now.
    pub(crate) fn new(clock: &impl Clock) -> Self {
        ClockWatch { last: Reading::of(clock) }
    }

    /// Reads the clock; says what it shows, and whether it was put back since the last time.
    pub(crate) fn look(&mut self, clock: &impl Clock) -> (Timestamp, bool) {
        let seen = Reading::of(clock);
        let put_back = seen.is_behind(&self.last);
        self.last = seen;
        (seen.shown, put_back)
    }
}

impl Reading {
    /// The closest of a few, if the thread is held up.
    fn of(clock: &impl Clock) -> Self {
        let mut best = Reading::once(clock);
        for _ in 1..READINGS_MAX {
            if best.width() <= CLOSE {
                break;
            }
            let next = Reading::once(clock);
            if next.width() < best.width() {
                best = next;
            }
        }
        best
    }

    fn once(clock: &impl Clock) -> Self {
        let before = Instant::now();
        let shown = clock.now();
        Reading { before, shown, after: Instant::now() }
    }

    fn width(&self) -> Nanos {
        self.after.duration_since(self.before).into()
    }

    /// Whether less has passed on the clock than has surely passed.
    fn is_behind(&self, last: &Reading) -> bool {
        let surely = Nanos::from(self.before.saturating_duration_since(last.after));
        self.shown.after(SLIP) < last.shown.after(surely)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn reading(origin: Instant, before: u64, shown: u64, after: u64) -> Reading {
        let at = |millis| origin + Duration::from_millis(millis);
        let shown = START.after(Nanos::from_millis(shown));
        Reading { before: at(before), shown, after: at(after) }
    }

    #[test]
    fn a_thread_that_is_held_up_is_no_reason_to_distrust_the_clock() {
        let origin = Instant::now();
        // Held up after the reading, then before it, then on both sides.
        let readings = [(0, 0, 0), (10, 10, 90), (100, 180, 180), (200, 240, 290), (300, 300, 300)];
        let readings = readings.map(|(before, shown, after)| reading(origin, before, shown, after));
        for pair in readings.windows(2) {
            assert!(!pair[1].is_behind(&pair[0]), "{pair:?}");
        }
    }

    #[test]
    fn a_clock_that_was_put_back_by_more_than_a_slip_is_noticed() {
        let origin = Instant::now();
        let first = reading(origin, 100, 100, 100);
        assert!(reading(origin, 110, 104, 110).is_behind(&first));
        assert!(!reading(origin, 110, 106, 110).is_behind(&first), "a slip is allowed for");
        assert!(!reading(origin, 110, 4_000, 110).is_behind(&first), "forward is not back");
    }
}
