//! The limiters of a node, and kill switches that stop them from refusing.
//!
//! A kill switch is one atomic word, so it works when everything else is down. Slots that are
//! held are freed as usual.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_algorithms::Timestamp;

/// A limiter of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// The worker utilization shedder.
    Worker,
    /// The fleet usage shedder.
    Fleet,
    /// The gate, and deadlines that cannot be met.
    Gate,
}

impl Limiter {
    /// All limiters, in the order in which they decide.
    pub const ALL: [Limiter; 3] = [Limiter::Worker, Limiter::Fleet, Limiter::Gate];

    /// The name in configuration and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Limiter::Worker => "worker",
            Limiter::Fleet => "fleet",
            Limiter::Gate => "gate",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Stops a limiter, for good or until a moment.
#[derive(Debug, Default)]
pub(crate) struct KillSwitch {
    /// Zero when not killed, the maximum when killed for good.
    until: AtomicU64,
}

impl KillSwitch {
    pub(crate) fn kill(&self, until: Option<Timestamp>) {
        self.until.store(until.map_or(u64::MAX, Timestamp::as_nanos), Relaxed);
    }

    pub(crate) fn revive(&self) {
        self.until.store(0, Relaxed);
    }

    #[inline]
    pub(crate) fn is_killed(&self, now: Timestamp) -> bool {
        let until = self.until.load(Relaxed);
        until != 0 && (until == u64::MAX || now.as_nanos() < until)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::{CallerMode, Mode, ModeCell, Nanos, Percent};

    use super::*;
    use crate::category::Caller;

    #[test]
    fn a_percentage_enforces_for_the_same_callers_always_and_watches_the_others() {
        let cell = ModeCell::new(Mode::Enforce(Percent::new(30)));
        let mut enforced = 0;
        for number in 0..1000u32 {
            let caller = Caller::named(number.to_string());
            let mode = cell.for_caller(|percent| caller.is_among(percent.get()));
            assert_eq!(mode, cell.for_caller(|percent| caller.is_among(percent.get())));
            enforced += u32::from(mode == Some(CallerMode::Enforce));
        }
        assert!((250..350).contains(&enforced));
    }

    #[test]
    fn a_kill_ends_at_its_moment_or_when_it_is_taken_back() {
        let now = Timestamp::from_secs(100);
        let switch = KillSwitch::default();
        assert!(!switch.is_killed(now));
        switch.kill(Some(now.after(Nanos::from_secs(1))));
        assert!(switch.is_killed(now));
        assert!(!switch.is_killed(now.after(Nanos::from_secs(1))));
        switch.kill(None);
        assert!(switch.is_killed(Timestamp::MAX));
        switch.revive();
        assert!(!switch.is_killed(now));
    }
}
