//! Detects that a clock was set back.
//!
//! Compares it with tokio's clock. The thread may be descheduled between the two readings, so tokio's clock is read
//! before and after: only time that has certainly passed counts. Forward jumps are ignored.

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tokio::time::Instant;

use super::lease::CLOCK_SLACK;

/// How often the clock is read again because the thread was descheduled.
const READINGS_MAX: usize = 4;
/// Readings this close together are good enough.
const CLOSE: Nanos = Nanos::from_millis(1);

/// A reading of the clock, between two readings of tokio's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    before: Instant,
    /// The time that the clock showed.
    pub(crate) shown: Timestamp,
    after: Instant,
}

impl ClockReading {
    /// The narrowest of up to four readings.
    pub(crate) fn of(clock: &impl Clock) -> Self {
        let mut best = ClockReading::once(clock);
        for _ in 1..READINGS_MAX {
            if best.width() <= CLOSE {
                break;
            }
            let next = ClockReading::once(clock);
            if next.width() < best.width() {
                best = next;
            }
        }
        best
    }

    fn once(clock: &impl Clock) -> Self {
        let before = Instant::now();
        let shown = clock.now();
        ClockReading { before, shown, after: Instant::now() }
    }

    fn width(&self) -> Nanos {
        self.after.duration_since(self.before).into()
    }

    /// Whether the clock was set back since the last reading: less time has passed on it than has certainly passed.
    pub(crate) fn is_behind(&self, last: &ClockReading) -> bool {
        let surely = Nanos::from(self.before.saturating_duration_since(last.after));
        self.shown.after(CLOCK_SLACK) < last.shown.after(surely)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn reading(origin: Instant, before: u64, shown: u64, after: u64) -> ClockReading {
        let at = |millis| origin + Duration::from_millis(millis);
        let shown = START.after(Nanos::from_millis(shown));
        ClockReading { before: at(before), shown, after: at(after) }
    }

    #[test]
    fn a_descheduled_thread_does_not_look_like_a_clock_that_was_set_back() {
        let origin = Instant::now();
        // Descheduled after the reading, then before it, then on both sides.
        let readings = [(0, 0, 0), (10, 10, 90), (100, 180, 180), (200, 240, 290), (300, 300, 300)];
        let readings = readings.map(|(before, shown, after)| reading(origin, before, shown, after));
        for pair in readings.windows(2) {
            assert!(!pair[1].is_behind(&pair[0]), "{pair:?}");
        }
    }

    #[test]
    fn a_clock_that_was_set_back_by_more_than_the_slack_is_detected() {
        let origin = Instant::now();
        let first = reading(origin, 100, 100, 100);
        assert!(reading(origin, 110, 104, 110).is_behind(&first));
        assert!(!reading(origin, 110, 106, 110).is_behind(&first), "within the slack");
        assert!(!reading(origin, 110, 4_000, 110).is_behind(&first), "forward is not back");
    }
}
