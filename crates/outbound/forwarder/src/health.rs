//! Whether the target answers at all: a circuit breaker that spends no attempts on a dead target.
//!
//! After several failures in a row without a success, one record at a time probes the target, with growing pauses. The
//! other records wait and keep their attempts. Pure: takes `now`.

use tidegate_algorithms::{Nanos, Timestamp};

/// Failures in a row after which the target counts as down.
const FAILURES_MAX: u32 = 10;
/// The first pause between probes.
const PAUSE_MIN: Nanos = Nanos::from_millis(500);
/// The longest pause between probes.
const PAUSE_MAX: Nanos = Nanos::from_secs(15);

/// The health of a target as one process sees it.
#[derive(Clone, Copy, Debug)]
pub struct TargetHealth {
    failures: u32,
    pause: Nanos,
    /// When the next probe may leave, if the target is down.
    probe_at: Option<Timestamp>,
}

impl TargetHealth {
    /// A target that answers.
    pub const fn new() -> Self {
        TargetHealth { failures: 0, pause: PAUSE_MIN, probe_at: None }
    }

    /// Whether the target counts as down.
    pub const fn is_down(&self) -> bool {
        self.probe_at.is_some()
    }

    /// How long to wait before the next record; zero if it may leave now.
    pub fn wait(&self, now: Timestamp) -> Nanos {
        self.probe_at.map_or(Nanos::ZERO, |at| at.since(now))
    }

    /// A record leaves now. While the target is down it is the only one until its answer or the next pause.
    pub fn depart(&mut self, now: Timestamp) {
        if self.probe_at.is_some() {
            self.probe_at = Some(now.after(self.pause));
        }
    }

    /// Counts an answer, of any kind.
    pub const fn succeed(&mut self) {
        *self = TargetHealth::new();
    }

    /// Counts a failure.
    pub fn fail(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURES_MAX {
            return;
        }
        if self.probe_at.is_some() {
            self.pause = Nanos::new(self.pause.get().saturating_mul(2)).min(PAUSE_MAX);
        }
        self.probe_at = Some(now.after(self.pause));
    }
}

impl Default for TargetHealth {
    fn default() -> Self {
        TargetHealth::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_target_gets_one_probe_for_each_pause() {
        let mut health = TargetHealth::new();
        let mut now = Timestamp::from_secs(1);
        for _ in 0..FAILURES_MAX {
            assert_eq!(health.wait(now), Nanos::ZERO);
            health.fail(now);
        }
        assert!(health.is_down());
        let mut probes = 0;
        let end = Timestamp::from_secs(61);
        while now < end {
            now = now.after(health.wait(now).max(Nanos::from_millis(1)));
            health.depart(now);
            health.fail(now);
            probes += 1;
        }
        assert!((5..=12).contains(&probes), "{probes}");
        health.succeed();
        assert_eq!((health.is_down(), health.wait(now)), (false, Nanos::ZERO));
    }

    #[test]
    fn single_failures_among_successes_do_not_stop_the_target() {
        let mut health = TargetHealth::new();
        for second in 0..1_000 {
            health.fail(Timestamp::from_secs(second));
            health.succeed();
        }
        assert!(!health.is_down());
    }
}
