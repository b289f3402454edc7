//! Arrival times of open-loop requests.

use std::time::Duration;

use crate::keys::Draw;

/// Bits of a share between zero and one.
const SHARES: u64 = 1 << 53;

/// Times of a Poisson process from a fixed seed, until its end.
#[derive(Debug)]
pub(super) struct Arrivals {
    draw: Draw,
    mean_gap_seconds: f64,
    next: Duration,
    end: Duration,
}

impl Arrivals {
    /// Arrivals at this rate per second, between two times.
    pub(super) fn new(per_second: f64, start: Duration, end: Duration) -> Self {
        let mean_gap_seconds = 1.0 / per_second.max(1.0);
        Arrivals { draw: Draw::uniform(SHARES), mean_gap_seconds, next: start, end }
    }

    /// The next arrival, if it is not after `now`.
    #[inline]
    pub(super) fn due(&mut self, now: Duration) -> Option<Duration> {
        if self.next > now || self.is_over() {
            return None;
        }
        let due = self.next;
        // Never zero, whose logarithm is infinite.
        let share = (self.draw.next().unwrap_or(0) + 1) as f64 / SHARES as f64;
        self.next += Duration::from_secs_f64(-share.ln() * self.mean_gap_seconds);
        Some(due)
    }

    /// Whether all requests have arrived.
    pub(super) fn is_over(&self) -> bool {
        self.next >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_arrive_as_were_asked_for() {
        let hour = Duration::from_secs(3_600);
        let mut arrivals = Arrivals::new(100.0, Duration::ZERO, hour);
        let times: Vec<Duration> = std::iter::from_fn(|| arrivals.due(hour)).collect();
        assert!((355_000..365_000).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted());
        assert!(arrivals.is_over());
    }

    #[test]
    fn nothing_arrives_early() {
        let mut arrivals = Arrivals::new(1.0, Duration::from_secs(5), Duration::from_secs(9));
        assert_eq!(arrivals.due(Duration::from_secs(4)), None);
        assert_eq!(arrivals.due(Duration::from_secs(5)), Some(Duration::from_secs(5)));
    }
}
