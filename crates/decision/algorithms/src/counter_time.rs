//! Time from a counter that is compared with a clock now and then.
//!
//! Asking the operating system for the time costs more than most decisions do, and reading the
//! processor's counter a fraction of that. A counter alone is no clock: its frequency is known
//! with an error, and it drifts. So ten times a second one reader compares, and the others go on
//! with what they have. A reading is off by no more than the counter drifts in that time, some
//! microseconds, and a comparison moves it by as much, forward or back.
//!
//! Here because the engine's clock and that of overload protection do the same with different
//! clocks, and no other crate is below both. It is arithmetic like the rest: whoever reads
//! brings the counter's steps and says how to compare. No clock is read in here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::time::{Nanos, Timestamp};

/// How often the counter is compared.
const COMPARE_EVERY: Nanos = Nanos::from_millis(100);

/// Attempts at one comparison, of which the best counts.
const ATTEMPTS: usize = 4;

/// Steps between both readings of the counter that are few enough to compare only once: a
/// microsecond of most counters. A reader that the system stops in between takes thousands of
/// times as long.
const STEPS_ENOUGH: u64 = 4_096;

/// Nanoseconds by a counter, in agreement with a clock.
#[derive(Debug)]
pub struct CounterTime {
    /// Nanoseconds per 2³² steps.
    scale: u64,
    /// What to add to the counter's nanoseconds to get those of the clock.
    offset: AtomicU64,
    /// The counter's nanoseconds when it was compared last.
    compared: AtomicU64,
}

/// What a clock shows, and how many steps the counter has made at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    steps: u64,
    nanos: u64,
}

impl Comparison {
    /// Reads both. The counter is read before and after the clock, and again if somebody was
    /// interrupted in between.
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

    /// The time after so many steps of the counter. `compare` is asked when it is time to compare.
    #[inline]
    pub fn at(&self, steps: u64, compare: impl FnOnce() -> Comparison) -> Timestamp {
        let counted = self.counted(steps);
        let compared = self.compared.load(Relaxed);
        // Also when the counter was set back, as on a machine that moved: that is far ahead.
        if counted.wrapping_sub(compared) >= COMPARE_EVERY.get() {
            self.compare(compared, counted, compare);
        }
        Timestamp::from_nanos(counted.wrapping_add(self.offset.load(Relaxed)))
    }

    #[cold]
    #[inline(never)]
    fn compare(&self, compared: u64, counted: u64, compare: impl FnOnce() -> Comparison) {
        // One reader compares; the others go on with the offset they have.
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

    /// A clock, and a counter beside it that is so many millionths too fast.
    struct Bench {
        time: CounterTime,
        nanos: Cell<u64>,
        too_fast: i64,
        began: u64,
    }

    impl Bench {
        fn new(too_fast: i64, began: u64) -> Self {
            let first = Comparison { steps: began, nanos: START };
            let time = CounterTime::new(SCALE, first);
            Bench { time, nanos: Cell::new(START), too_fast, began }
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
            let bench = Bench::new(too_fast, began);
            let mut last = bench.read();
            for span in spans {
                bench.pass(span);
                let now = bench.read();
                // 100 ms at 200 millionths, and what rounding takes away.
                prop_assert!(now.abs_diff(bench.nanos.get()) <= 20_000 + 1_000, "{}", now);
                prop_assert!(now + 20_000 + 1_000 >= last, "from {} to {}", last, now);
                last = now;
            }
        }
    }

    #[test]
    fn compares_ten_times_a_second_and_not_more_often() {
        let bench = Bench::new(0, 7);
        let compared = Cell::new(0);
        for _ in 0..10_000 {
            bench.pass(SECOND / 1_000);
            let compare = || {
                compared.set(compared.get() + 1);
                Comparison { steps: bench.steps(), nanos: bench.nanos.get() }
            };
            bench.time.at(bench.steps(), compare);
        }
        assert!((98..=100).contains(&compared.get()), "{}", compared.get());
    }

    #[test]
    fn a_counter_that_was_set_back_or_ran_on_alone_is_found_out_at_once() {
        for elsewhere in [0, 5_000_000_000, u64::MAX - 9] {
            let time = CounterTime::new(SCALE, Comparison { steps: 4_000_000_000, nanos: START });
            let compare = || Comparison { steps: elsewhere, nanos: START + SECOND };
            assert_eq!(time.at(elsewhere, compare).as_nanos(), START + SECOND);
        }
    }

    #[test]
    fn whoever_is_interrupted_while_comparing_compares_again() {
        let steps = Cell::new(0);
        let reading = Cell::new(0);
        let counter = || {
            reading.set(reading.get() + 1);
            // Interrupted for long before the second reading, and a little always.
            steps.set(steps.get() + if reading.get() == 2 { 90_000_000 } else { 30 });
            steps.get()
        };
        let found = Comparison::of(counter, || steps.get());
        assert!(found.steps.abs_diff(found.nanos) <= 30, "{found:?}");
    }

    #[test]
    fn a_system_that_always_interrupts_is_asked_a_few_times_only() {
        let asked = Cell::new(0u64);
        let counter = || {
            asked.set(asked.get() + 1);
            asked.get() * 1_000_000
        };
        Comparison::of(counter, || 0);
        assert!(asked.get() < 12);
    }
}
