//! How late the runtime wakes its tasks.
//!
//! A task that asked to be woken says how much too late it was. The median of the
//! last second is what the worker shedder wants to know: one late wake is
//! nothing, most of them late is a runtime that is blocked or starved.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidegate_algorithms::Nanos;

/// Readings that the median is of: a second of one each 50 ms.
const READINGS: usize = 20;

/// What a timer is late by itself: tokio's has a step of one millisecond.
const SLACK: Nanos = Nanos::from_millis(1);

/// The delays of the last wakes.
#[derive(Debug, Default)]
pub struct SchedulerProbe {
    delays: [AtomicU64; READINGS],
    next: AtomicUsize,
}

impl SchedulerProbe {
    /// How often to take a reading.
    pub const EVERY: Nanos = Nanos::from_millis(50);

    /// A probe that has seen no delay.
    pub fn new() -> Self {
        SchedulerProbe::default()
    }

    /// A task was woken so much later than it had asked for.
    pub fn record(&self, late: Nanos) {
        let late = late.get().saturating_sub(SLACK.get());
        let index = self.next.fetch_add(1, Ordering::Relaxed) % READINGS;
        self.delays[index].store(late, Ordering::Relaxed);
    }

    /// The median of the last readings.
    pub fn median(&self) -> Nanos {
        let mut delays: [u64; READINGS] =
            std::array::from_fn(|index| self.delays[index].load(Ordering::Relaxed));
        delays.sort_unstable();
        Nanos::new(delays[READINGS / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_wake_is_nothing_and_most_of_them_late_is_a_delay() {
        let probe = SchedulerProbe::new();
        probe.record(Nanos::from_secs(3));
        assert_eq!(probe.median(), Nanos::ZERO);
        for _ in 0..11 {
            probe.record(Nanos::from_millis(21));
        }
        assert_eq!(probe.median(), Nanos::from_millis(20));
        (0..20).for_each(|_| probe.record(Nanos::ZERO));
        assert_eq!(probe.median(), Nanos::ZERO);
    }
}
