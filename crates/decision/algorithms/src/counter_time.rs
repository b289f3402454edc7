//! Time from a counter that is compared with a clock now and then.
//!
//! Reading the operating system's clock costs more than most decisions; reading the processor's
//! counter costs a fraction of that. But the counter's frequency is not known exactly, and it
//! drifts. So ten times a second one reader compares it with the clock, and the others use the last
//! comparison. A reading is off by at most the drift in that time, some microseconds, and each
//! comparison corrects it by as much, forward or back.
//!
//! It is in this crate because the clocks of the engine and of overload protection both need it. It
//! reads no clock itself: the caller passes the counter's steps and a function to compare with.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::time::{Nanos, Timestamp};

/// The time between two comparisons.
const COMPARE_EVERY: Nanos = Nanos::from_millis(100);

/// Attempts at one comparison; the best counts.
const ATTEMPTS: usize = 4;

/// With fewer steps between the two readings of the counter, one attempt is enough: about a
/// microsecond. A thread that is preempted in between needs thousands of times as many.
const STEPS_ENOUGH: u64 = 4_096;

/// Nanoseconds by a counter, in agreement with a clock.
#[derive(Debug)]
pub struct CounterTime {
    /// Nanoseconds per 2³² steps.
    scale: u64,
    /// The clock's nanoseconds minus the counter's.
    offset: AtomicU64,
    /// The counter's nanoseconds at the last comparison.
    compared: AtomicU64,
}

/// The time of a clock, and the steps of the counter at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    steps: u64,
    nanos: u64,
}

impl Comparison {
    /// Reads both. The counter is read before and after the clock, and again if the thread was
    /// preempted in between.
    pub fn of(counter: impl Fn() -> u64, clock: impl Fn() -> u64) -> Self {
        let attempt = || {
            let before = counter();
            let nanos = clock();
            let between = counter().wrapping_sub(before);
            (between, Comparison { steps: before.wrapping_add(between / 2), nanos })
        };
        let (mut least, mut best) = attempt();
        for _ in 1..ATTEMPTS {
            if least <= STEPS_ENOUGH {
                break;
            }
            let (between, comparison) = attempt();
            if between < least {
                (least, best) = (between, comparison);
            }
        }
        best
    }
}

impl CounterTime {
    /// Time by a counter that makes 2³² steps in so many nanoseconds.
    pub const fn new(nanos_per_2_32_steps: u64, first: Comparison) -> Self {
        let time = CounterTime {
            scale: nanos_per_2_32_steps,
            offset: AtomicU64::new(0),
            compared: AtomicU64::new(0),
        };
        let counted = time.counted(first.steps);
        CounterTime {
            offset: AtomicU64::new(first.nanos.wrapping_sub(counted)),
            compared: AtomicU64::new(counted),
            ..time
        }
    }

    /// The time after so many steps of the counter. Calls `compare` if a comparison is due.
    #[inline]
    pub fn at(&self, steps: u64, compare: impl FnOnce() -> Comparison) -> Timestamp {
        let counted = self.counted(steps);
        let compared = self.compared.load(Relaxed);
        // A counter that was set back, as by a migrated machine, wraps around and is compared too.
        if counted.wrapping_sub(compared) >= COMPARE_EVERY.get() {
            self.compare(compared, counted, compare);
        }
        Timestamp::from_nanos(counted.wrapping_add(self.offset.load(Relaxed)))
    }

    #[cold]
    #[inline(never)]
    fn compare(&self, compared: u64, counted: u64, compare: impl FnOnce() -> Comparison) {
        // One reader compares; the others use the old offset.
        if self.compared.compare_exchange(compared, counted, Relaxed, Relaxed).is_ok() {
            let Comparison { steps, nanos } = compare();
            self.offset.store(nanos.wrapping_sub(self.counted(steps)), Relaxed);
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only differences count, and they fit")]
    const fn counted(&self, steps: u64) -> u64 {
        ((steps as u128 * self.scale as u128) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// Three steps a nanosecond.
    const SCALE: u64 = (1 << 32) / 3;
    const START: u64 = 1_800_000_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    /// A clock, and a counter that is `too_fast` millionths faster.
    struct DriftingCounter {
        time: CounterTime,
        nanos: Cell<u64>,
        too_fast: i64,
        began: u64,
    }

    impl DriftingCounter {
        fn new(too_fast: i64, began: u64) -> Self {
            let first = Comparison { steps: began, nanos: START };
            let time = CounterTime::new(SCALE, first);
            DriftingCounter { time, nanos: Cell::new(START), too_fast, began }
        }

        fn steps(&self) -> u64 {
            let passed = i128::from(self.nanos.get() - START) * 3;
            let drift = passed * i128::from(self.too_fast) / 1_000_000;
            self.began.wrapping_add(u64::try_from(passed + drift).unwrap())
        }

        fn pass(&self, nanos: u64) {
            self.nanos.set(self.nanos.get() + nanos);
        }

        fn read(&self) -> u64 {
            let compare = || Comparison { steps: self.steps(), nanos: self.nanos.get() };
            self.time.at(self.steps(), compare).as_nanos()
        }
    }

    proptest! {
        #[test]
        fn is_never_off_by_more_than_the_drift_between_comparisons(
            too_fast in -200i64..200,
            began in any::<u64>(),
            spans in prop::collection::vec(0u64..400_000_000, 1..200),
        ) {
            let counter = DriftingCounter::new(too_fast, began);
            let mut last = counter.read();
            for span in spans {
                counter.pass(span);
                let now = counter.read();
                // 100 ms at 200 millionths, plus rounding.
                prop_assert!(now.abs_diff(counter.nanos.get()) <= 20_000 + 1_000, "{}", now);
                prop_assert!(now + 20_000 + 1_000 >= last, "from {} to {}", last, now);
                last = now;
            }
        }
    }

    #[test]
    fn compares_ten_times_a_second_and_not_more_often() {
        let counter = DriftingCounter::new(0, 7);
        let compared = Cell::new(0);
        for _ in 0..10_000 {
            counter.pass(SECOND / 1_000);
            let compare = || {
                compared.set(compared.get() + 1);
                Comparison { steps: counter.steps(), nanos: counter.nanos.get() }
            };
            counter.time.at(counter.steps(), compare);
        }
        assert!((98..=100).contains(&compared.get()), "{}", compared.get());
    }

    #[test]
    fn a_counter_that_jumped_is_compared_at_once() {
        for elsewhere in [0, 5_000_000_000, u64::MAX - 9] {
            let time = CounterTime::new(SCALE, Comparison { steps: 4_000_000_000, nanos: START });
            let compare = || Comparison { steps: elsewhere, nanos: START + SECOND };
            assert_eq!(time.at(elsewhere, compare).as_nanos(), START + SECOND);
        }
    }

    #[test]
    fn a_comparison_that_was_interrupted_is_repeated() {
        let steps = Cell::new(0);
        let reading = Cell::new(0);
        let counter = || {
            reading.set(reading.get() + 1);
            // A long interruption before the second reading, and a short one always.
            steps.set(steps.get() + if reading.get() == 2 { 90_000_000 } else { 30 });
            steps.get()
        };
        let found = Comparison::of(counter, || steps.get());
        assert!(found.steps.abs_diff(found.nanos) <= 30, "{found:?}");
    }

    #[test]
    fn a_comparison_is_repeated_only_a_few_times() {
        let asked = Cell::new(0u64);
        let counter = || {
            asked.set(asked.get() + 1);
            asked.get() * 1_000_000
        };
        Comparison::of(counter, || 0);
        assert!(asked.get() < 12);
    }
}
