//! The state machine of a circuit breaker: pure, with `now` passed in.
//!
//! It opens on five failures in a row, or when half of at least twenty calls within a second fail. While it is open no
//! request waits for the remote; single probes in the background find out when it answers again. Their interval has
//! random jitter, so that nodes do not come back at the same moment.

use tidegate_algorithms::{Nanos, Timestamp};

use super::random::Random;

/// Failures in a row that open it.
const IN_A_ROW: u32 = 5;
/// The fewest calls in a window whose failure rate counts.
const CALLS_MIN: u32 = 20;
/// The window of the failure rate.
const WINDOW: Nanos = Nanos::from_secs(1);
/// The shortest interval between probes.
const PROBE_AFTER: Nanos = Nanos::from_secs(1);
/// The maximum of the jitter on top of it.
const PROBE_JITTER: Nanos = Nanos::from_millis(250);

/// Counts successes and failures, and opens on too many failures.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: BreakerState,
    in_a_row: u32,
    window_began: Timestamp,
    calls: u32,
    failures: u32,
    random: Random,
}

#[derive(Clone, Copy, Debug)]
enum BreakerState {
    Closed,
    Open {
        since: Timestamp,
        /// The last probe, or the failure that opened it.
        tried: Timestamp,
        probe_after: Nanos,
    },
}

impl Breaker {
    /// A closed breaker.
    pub(crate) const fn new(random: Random) -> Self {
        Breaker {
            state: BreakerState::Closed,
            in_a_row: 0,
            window_began: Timestamp::EPOCH,
            calls: 0,
            failures: 0,
            random,
        }
    }

    /// Whether calls must not be made.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.state, BreakerState::Open { .. })
    }

    /// Counts a call that was answered.
    pub(crate) fn succeeded(&mut self, now: Timestamp) {
        self.count(now);
        self.in_a_row = 0;
    }

    /// Counts a call that failed; returns whether that opened the breaker.
    pub(crate) fn failed(&mut self, now: Timestamp) -> bool {
        self.count(now);
        self.failures = self.failures.saturating_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let half = self.calls >= CALLS_MIN && self.failures.saturating_mul(2) >= self.calls;
        if self.is_open() || (self.in_a_row < IN_A_ROW && !half) {
            return false;
        }
        let probe_after = self.next_probe();
        self.state = BreakerState::Open { since: now, tried: now, probe_after };
        true
    }

    /// Whether a probe is due. The caller must send it if so.
    pub(crate) fn probe_due(&mut self, now: Timestamp) -> bool {
        let after = self.next_probe();
        let BreakerState::Open { tried, probe_after, .. } = &mut self.state else { return false };
        // A clock that was set back must not delay probes.
        let due = now < *tried || now.since(*tried) >= *probe_after;
        if due {
            (*tried, *probe_after) = (now, after);
        }
        due
    }

    /// Closes the breaker after a probe was answered; returns how long it was open, if it was.
    pub(crate) fn close(&mut self, now: Timestamp) -> Option<Nanos> {
        let BreakerState::Open { since, .. } = self.state else { return None };
        self.state = BreakerState::Closed;
        (self.in_a_row, self.calls, self.failures) = (0, 0, 0);
        self.window_began = now;
        Some(now.since(since))
    }

    /// How long the breaker has been open.
    pub(crate) fn open_for(&self, now: Timestamp) -> Nanos {
        match self.state {
            BreakerState::Open { since, .. } => now.since(since),
            BreakerState::Closed => Nanos::ZERO,
        }
    }

    fn count(&mut self, now: Timestamp) {
        if now < self.window_began || now.since(self.window_began) >= WINDOW {
            (self.window_began, self.calls, self.failures) = (now, 0, 0);
        }
        self.calls = self.calls.saturating_add(1);
    }

    fn next_probe(&mut self) -> Nanos {
        Nanos::new(PROBE_AFTER.get() + self.random.below(PROBE_JITTER.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn at(millis: u64) -> Timestamp {
        START.after(Nanos::from_millis(millis))
    }

    fn breaker() -> Breaker {
        Breaker::new(Random::new(Some(1)))
    }

    fn opened() -> Breaker {
        let mut breaker = breaker();
        for _ in 0..IN_A_ROW {
            breaker.failed(START);
        }
        assert!(breaker.is_open());
        breaker
    }

    #[test]
    fn five_failures_in_a_row_open_it() {
        let mut breaker = breaker();
        for _ in 0..4 {
            assert!(!breaker.failed(START));
        }
        breaker.succeeded(START);
        for _ in 0..4 {
            assert!(!breaker.failed(START));
        }
        assert!(breaker.failed(START));
        assert!(!breaker.failed(START), "it opens once");
    }

    #[test]
    fn half_of_twenty_calls_in_a_second_open_it() {
        let mut breaker = breaker();
        let opened: Vec<u64> = (1..=20)
            .filter(|call| {
                if call % 2 == 1 {
                    breaker.succeeded(at(*call));
                    return false;
                }
                breaker.failed(at(*call))
            })
            .collect();
        assert_eq!(opened, [20]);
    }

    #[test]
    fn a_third_of_the_calls_failing_leaves_it_closed() {
        let mut breaker = breaker();
        for call in 0..300 {
            breaker.succeeded(at(call));
            breaker.succeeded(at(call));
            assert!(!breaker.failed(at(call)));
        }
    }

    #[test]
    fn failures_of_another_second_do_not_count() {
        let mut breaker = breaker();
        for second in 0..20 {
            for _ in 0..4 {
                breaker.failed(at(second * 1_000));
            }
            for _ in 0..5 {
                breaker.succeeded(at(second * 1_000));
            }
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn probes_are_single_and_a_second_apart() {
        let mut breaker = opened();
        assert!(!breaker.probe_due(at(999)));
        assert!(breaker.probe_due(at(1_250)));
        assert!(!breaker.probe_due(at(1_250)), "one is under way");
        assert!(!breaker.probe_due(at(2_249)));
        assert!(breaker.probe_due(at(2_500)));
    }

    #[test]
    fn probes_of_many_nodes_are_spread() {
        let due = |seed, millis| {
            let mut breaker = Breaker::new(Random::new(Some(seed)));
            for _ in 0..IN_A_ROW {
                breaker.failed(START);
            }
            breaker.probe_due(at(millis))
        };
        let early = (0..100).filter(|seed| due(*seed, 1_125)).count();
        assert!((20..80).contains(&early), "{early} of 100 in the first half");
    }

    #[test]
    fn a_probe_that_is_answered_closes_it_and_resets_the_counts() {
        let mut breaker = opened();
        assert_eq!(breaker.close(at(1_500)), Some(Nanos::from_millis(1_500)));
        assert_eq!(breaker.close(at(1_500)), None);
        assert!(!breaker.failed(at(1_501)));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_delay_probes() {
        let mut breaker = opened();
        assert!(breaker.probe_due(Timestamp::from_secs(1)));
    }
}
