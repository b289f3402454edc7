//! The scheduling delay of the runtime: how late it wakes its tasks.
//!
//! A task sleeps for a fixed time and records how late it woke. The worker shedder reads the
//! median of the last second: one late wake means nothing, but when most are late the runtime is
//! blocked or starved.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidegate_algorithms::Nanos;

/// Readings of the last second.
const READINGS: usize = 20;

/// The resolution of tokio's timer: a delay of less is none.
const SLACK: Nanos = Nanos::from_millis(1);

/// The delays of the last wakes.
#[derive(Debug, Default)]
pub struct SchedulerProbe {
    delays: [AtomicU64; READINGS],
    next: AtomicUsize,
}

impl SchedulerProbe {
    /// The time between two readings.
    pub const EVERY: Nanos = Nanos::from_millis(50);

    /// A probe that has seen no delay.
    pub fn new() -> Self {
        SchedulerProbe::default()
    }

    /// Records how late a task woke.
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
