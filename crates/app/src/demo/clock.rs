//! The clock of the demo, which can skip time.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_engine::{Clock, Nanos, SystemClock, Timestamp};

/// The time at which a script starts: 2026-01-01 00:00 UTC.
const SCRIPT_START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// A clock that can skip time.
#[derive(Debug)]
pub(super) struct DemoClock {
    /// `None` if only skipping moves the clock.
    real: Option<SystemClock>,
    /// Nanoseconds skipped so far.
    skipped: AtomicU64,
}

impl DemoClock {
    /// A clock that runs, from now.
    pub(super) fn flowing() -> Self {
        DemoClock { real: Some(SystemClock::new()), skipped: AtomicU64::new(0) }
    }

    /// A clock that only moves when time is skipped.
    pub(super) const fn standing() -> Self {
        DemoClock { real: None, skipped: AtomicU64::new(0) }
    }

    pub(super) const fn is_standing(&self) -> bool {
        self.real.is_none()
    }

    /// Skips this much time.
    pub(super) fn skip(&self, span: Nanos) {
        let skipped = self.skipped.load(Ordering::Relaxed).saturating_add(span.get());
        self.skipped.store(skipped, Ordering::Relaxed);
    }
}

impl Clock for DemoClock {
    fn now(&self) -> Timestamp {
        let base = self.real.as_ref().map_or(SCRIPT_START, Clock::now);
        base.after(Nanos::new(self.skipped.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_clock_moves_only_when_time_is_skipped() {
        let clock = DemoClock::standing();
        assert_eq!(clock.now(), SCRIPT_START);
        clock.skip(Nanos::from_secs(5));
        assert_eq!(clock.now().since(SCRIPT_START), Nanos::from_secs(5));
        clock.skip(Nanos::MAX);
        clock.skip(Nanos::MAX);
        assert_eq!(clock.now(), Timestamp::EPOCH.after(Nanos::MAX));
    }

    #[test]
    fn skipping_puts_a_flowing_clock_ahead_of_the_real_one() {
        let (clock, real) = (DemoClock::flowing(), SystemClock::new());
        clock.skip(Nanos::from_secs(3_600));
        assert!(clock.now().since(real.now()) > Nanos::from_secs(3_000));
    }
}
