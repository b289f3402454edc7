use proptest::prelude::*;

use super::*;
use crate::limit::Limit;
use crate::tests::harness::{
    Harness, Model, START, YEAR, busiest_window, ms, period, run_with_model, secs, steps,
    without_refunds,
};

fn window(limit: u64, period: Period, slices: u16) -> Limit {
    Limit::new(SlidingWindow::new(limit, period, slices).unwrap())
}

fn per_minute(limit: u64, slices: u16) -> Harness {
    Harness::new(window(limit, Period::MINUTE, slices))
}

#[test]
fn the_window_before_counts_in_proportion_to_what_is_still_inside() {
    let mut t = per_minute(10, 1);
    t.spend(8);
    t.advance(secs(60));
    assert_eq!(t.left(), 2);
    t.advance(secs(30));
    assert_eq!(t.left(), 6);
    t.advance(secs(15));
    assert_eq!(t.left(), 8);
    t.advance(secs(15));
    assert_eq!(t.left(), 10);
}

#[test]
fn a_refusal_says_exactly_when_enough_has_left() {
    let mut t = per_minute(10, 1);
    t.spend(10);
    let refused = t.check(5);
    assert_eq!(refused.retry, Retry::After(secs(90)));
    t.assert_honest(5, &refused);
    let mut t = per_minute(10, 4);
    t.spend(10);
    assert_eq!(t.check(5).retry, Retry::After(ms(67_500)));
}

#[test]
fn a_use_rounded_down_admits_one_more_while_a_unit_is_partly_inside() {
    for (rounding, left) in [(RoundingMode::Up, 0), (RoundingMode::Down, 1)] {
        let window = SlidingWindow::new(7, Period::MINUTE, 1).unwrap().rounded(rounding);
        let mut t = Harness::new(Limit::new(window));
        t.spend(5);
        t.advance(secs(60));
        t.spend(2);
        t.advance(secs(18));
        t.spend(1);
        // 3 and 70 % of 5 are 6.5.
        assert_eq!(t.left(), left, "{rounding:?}");
    }
}

#[test]
fn more_slices_forget_sooner() {
    let idle = |slices: u16| {
        let mut t = per_minute(10, slices);
        t.spend(1);
        t.state.idle_at().since(START)
    };
    assert_eq!(idle(1), secs(120));
    assert_eq!(idle(2), secs(90));
    assert_eq!(idle(60), secs(61));
}

#[test]
fn slices_outside_one_to_the_largest_are_an_error() {
    for slices in [0, SLICES_MAX + 1, u16::MAX] {
        assert_eq!(
            SlidingWindow::new(1, Period::MINUTE, slices),
            Err(ParameterError::Slices { slices })
        );
    }
    assert!(SlidingWindow::new(u64::MAX, Period::MAX, SLICES_MAX).is_ok());
}

#[test]
fn a_cost_above_the_limit_never_fits() {
    let mut t = per_minute(3, 2);
    assert_eq!(t.check(4).retry, Retry::Never);
    assert_eq!(t.check(u64::MAX).retry, Retry::Never);
    assert_eq!(t.left(), 3);
}

#[test]
fn a_cost_of_zero_is_always_admitted() {
    let mut t = per_minute(1, 2);
    t.spend(1);
    assert!(t.admits(0));
    let mut t = per_minute(0, 2);
    assert!(t.admits(0));
    assert_eq!(t.check(1).retry, Retry::Never);
}

#[test]
fn the_largest_parameters_still_limit() {
    for slices in [1, SLICES_MAX] {
        for period in [Period::MIN, Period::MAX] {
            let mut t = Harness::new(window(u64::MAX, period, slices));
            t.spend(u64::MAX);
            let refused = t.check(1);
            t.assert_honest(1, &refused);
            assert!(!refused.is_admitted());
            t.advance(period.as_span());
            assert!(t.refuses(u64::MAX));
        }
    }
}

#[test]
fn a_clock_that_stands_still_admits_the_limit_once() {
    let mut t = per_minute(3, 4);
    assert_eq!(t.burst(1_000), 3);
    t.set(Timestamp::MAX);
    assert_eq!(t.burst(1_000), 3);
}

#[test]
fn a_late_reading_counts_in_the_slice_seen_last() {
    for slices in [1, 2, 64] {
        let mut t = per_minute(3, slices);
        t.spend(3);
        let idle_at = t.state.idle_at();
        for _ in 0..100 {
            t.step_back(ms(500));
            assert!(t.refuses(1));
            t.advance(ms(500));
            assert!(t.refuses(1));
        }
        assert_eq!(t.state.idle_at(), idle_at);
    }
}

#[test]
fn a_step_back_keeps_usage_for_one_window_and_one_slice() {
    for slices in [1, 2, 7, 64] {
        for back in [secs(3), secs(45), YEAR] {
            let mut t = per_minute(10, slices);
            t.spend(10);
            t.step_back(back);
            let refused = t.check(10);
            t.assert_honest(10, &refused);
            let Retry::After(wait) = refused.retry else { panic!("ten fit the limit") };
            assert!(wait <= secs(120), "{wait}");
            t.advance(wait);
            assert_eq!(t.burst(99), 10);
        }
    }
}

#[test]
fn a_step_back_carries_no_more_than_the_limit() {
    let mut t = per_minute(10, 1);
    t.advance(secs(59));
    t.spend(10);
    for _ in 0..60 {
        t.advance(secs(1));
        t.take(10);
    }
    t.step_back(YEAR);
    let refused = t.check(1);
    let Retry::After(wait) = refused.retry else { panic!("one fits the limit") };
    // One second to the slice's end, and a tenth of the next for one of ten.
    assert_eq!(wait, secs(7));
}

#[test]
fn a_step_forward_forgets_what_has_left() {
    let mut t = per_minute(3, 4);
    t.spend(3);
    t.advance(YEAR);
    assert_eq!(t.burst(9), 3);
}

#[test]
fn peek_refund_take_and_reset_do_what_they_say() {
    let mut t = per_minute(5, 2);
    t.spend(2);
    let seen = t.peek(3);
    assert_eq!((seen.is_admitted(), seen.remaining, seen.taken), (true, 3, 0));
    assert_eq!(t.refund(1).remaining, 4);
    assert_eq!(t.take(9).taken, 4);
    assert!(!t.take(9).is_admitted());
    assert_eq!(t.refund(u64::MAX).remaining, 5);
    assert_eq!(t.state.idle_at(), Timestamp::EPOCH);
    t.spend(5);
    t.reset();
    assert_eq!(t.left(), 5);
}

#[test]
fn a_refund_takes_from_the_newest_slice_first() {
    let mut t = per_minute(10, 1);
    t.spend(4);
    t.advance(secs(60));
    t.spend(3);
    t.advance(secs(30));
    assert_eq!(t.left(), 5);
    assert_eq!(t.refund(3).remaining, 8);
    assert_eq!(t.refund(2).remaining, 9);
}

#[test]
fn a_caller_that_keeps_retrying_is_kept_out_where_refused_costs_count() {
    let algorithm = SlidingWindow::new(2, Period::MINUTE, 4).unwrap();
    let mut t = Harness::new(Limit::new(algorithm.counting_refused(true)));
    t.spend(2);
    for _ in 0..20 {
        t.advance(secs(20));
        let refused = t.check(2);
        assert!(!refused.is_admitted());
        t.assert_honest(2, &refused);
    }
    t.advance(secs(75));
    assert_eq!(t.burst(9), 2);
}

#[test]
fn a_raised_limit_gives_room_at_once_and_a_lowered_one_is_not_stuck() {
    for slices in [1, 8] {
        let mut t = per_minute(10, slices);
        t.spend(10);
        t.change(window(20, Period::MINUTE, slices));
        assert_eq!(t.left(), 10);
        t.change(window(1, Period::MINUTE, slices));
        let refused = t.check(1);
        t.assert_honest(1, &refused);
        t.advance(secs(120));
        assert!(t.admits(1));
    }
}

#[test]
fn a_window_with_other_slices_keeps_its_use() {
    let mut t = per_minute(10, 1);
    t.spend(10);
    t.advance(secs(90));
    assert_eq!(t.left(), 5);
    t.change(window(10, Period::MINUTE, 4));
    assert_eq!(t.left(), 5);
    assert_eq!(t.state.idle_at(), START.after(secs(90 + 75)));
    t.change(window(20, Period::HOUR, 2));
    assert_eq!(t.left(), 15);
    t.change(window(3, Period::SECOND, 2));
    assert_eq!(t.left(), 0);
    t.advance(secs(2));
    assert_eq!(t.left(), 3);
}

#[test]
fn an_idle_window_with_other_slices_starts_unused() {
    let mut t = per_minute(10, 1);
    t.spend(10);
    t.advance(secs(120));
    t.change(window(10, Period::HOUR, 3));
    assert_eq!(t.left(), 10);
}

#[test]
fn the_state_is_idle_once_its_newest_use_has_left() {
    let mut t = per_minute(10, 4);
    t.spend(1);
    t.advance(secs(50));
    t.peek(1);
    assert_eq!(t.state.idle_at(), START.after(secs(75)));
}

/// Recounts from the full history: every unit with the slice it came in.
#[derive(Debug)]
struct History {
    limit: u64,
    slice: u64,
    slices: u64,
    count_refused: bool,
    rounding: RoundingMode,
    seen: u64,
    units: Vec<(u64, u64)>,
}

impl History {
    fn new(limit: u64, length: u64, slices: u16, count_refused: bool) -> Self {
        History {
            limit,
            slice: length.div_ceil(u64::from(slices)),
            slices: u64::from(slices),
            count_refused,
            rounding: RoundingMode::Up,
            seen: 0,
            units: Vec::new(),
        }
    }

    fn count(&self, slice: u64) -> u64 {
        let inside = self.units.iter().filter(|(at, _)| *at == slice);
        inside.map(|(_, cost)| cost).sum()
    }
}

impl Model for History {
    fn left(&mut self, now: u64) -> u64 {
        self.seen = self.seen.max(now);
        let newest = self.seen / self.slice;
        let oldest = newest - self.slices;
        let whole: u64 = (oldest + 1..=newest).map(|slice| self.count(slice)).sum();
        let passed = now.saturating_sub(newest * self.slice);
        let part = u128::from(self.count(oldest)) * u128::from(self.slice - passed);
        let slice = u128::from(self.slice);
        let part = match self.rounding {
            RoundingMode::Up => part.div_ceil(slice),
            RoundingMode::Down => part / slice,
        };
        self.limit.saturating_sub(whole + u64::try_from(part).unwrap())
    }

    fn charge(&mut self, cost: u64, now: u64) {
        self.seen = self.seen.max(now);
        self.units.push((self.seen / self.slice, cost));
    }

    fn refund(&mut self, cost: u64, now: u64) {
        self.seen = self.seen.max(now);
        let oldest = self.seen / self.slice - self.slices;
        let mut left = cost;
        for (at, count) in self.units.iter_mut().rev() {
            if *at >= oldest {
                let back = left.min(*count);
                *count -= back;
                left -= back;
            }
        }
    }

    fn refuse(&mut self, cost: u64, now: u64) {
        if self.count_refused {
            self.charge(cost, now);
        }
    }
}

fn slices() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 1..=8_u16, 1 => 1..=SLICES_MAX]
}

proptest! {
    #[test]
    fn decides_as_a_recount_of_the_full_history_does(
        limit in 0..=20_u64,
        length in 1_000_000..=2_000_000_000_u64,
        slices in slices(),
        count_refused: bool,
        rounding in prop_oneof![Just(RoundingMode::Up), Just(RoundingMode::Down)],
        steps in steps(22, ms(300), ms(1)),
    ) {
        let model = History::new(limit, length, slices, count_refused);
        let mut model = History { rounding, ..model };
        let algorithm = SlidingWindow::new(limit, period(Nanos::new(length)), slices).unwrap();
        let limit = Limit::new(algorithm.counting_refused(count_refused).rounded(rounding));
        run_with_model(limit, &steps, &mut model);
    }

    /// The slices that lie wholly inside are counted in full, and they cover
    /// all but one slice of any window.
    #[test]
    fn never_admits_more_than_the_limit_in_any_window_less_one_slice(
        limit in 0..=20_u64,
        length in 1_000_000..=2_000_000_000_u64,
        slices in slices(),
        steps in steps(5, ms(100), ms(1)),
    ) {
        let mut model = History::new(limit, length, slices, false);
        let steps = without_refunds(&steps);
        let limiter = window(limit, period(Nanos::new(length)), slices);
        let admitted = run_with_model(limiter, &steps, &mut model);
        let length = model.slice * (model.slices - 1);
        prop_assert!(busiest_window(&admitted, length) <= limit);
    }

    /// The leaving slice counts for at least one, so at most one less than its
    /// own count escapes; and no slice counts more than the limit.
    #[test]
    fn never_admits_twice_the_limit_in_any_window(
        limit in 1..=20_u64,
        length in 1_000_000..=2_000_000_000_u64,
        slices in slices(),
        steps in steps(20, ms(300), ms(1)),
    ) {
        let mut model = History::new(limit, length, slices, false);
        let steps = without_refunds(&steps);
        let limiter = window(limit, period(Nanos::new(length)), slices);
        let admitted = run_with_model(limiter, &steps, &mut model);
        prop_assert!(busiest_window(&admitted, model.slice * model.slices) < 2 * limit);
    }

    /// What counts came in the slices kept: the window and the one leaving it.
    #[test]
    fn refuses_only_what_would_not_fit_a_window_longer_by_one_slice(
        limit in 1..=20_u64,
        length in 1_000_000..=2_000_000_000_u64,
        slices in slices(),
        steps in steps(20, ms(300), Nanos::ZERO),
    ) {
        let mut t = Harness::new(window(limit, period(Nanos::new(length)), slices));
        let longer = length.div_ceil(u64::from(slices)) * (u64::from(slices) + 1);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            t.advance(Nanos::new(step.wait));
            let now = t.now().as_nanos();
            if t.admits(step.cost) {
                admitted.push((now, step.cost));
            } else {
                let recent = admitted.iter().filter(|(at, _)| now - at < longer);
                let count: u64 = recent.map(|(_, cost)| cost).sum();
                prop_assert!(count + step.cost > limit);
            }
        }
    }

    #[test]
    fn a_changed_limit_keeps_what_counts_and_is_never_stuck(
        (limit, new_limit) in (1..=30_u64, 1..=30_u64),
        (length, new_length) in (1_000_000..=9_000_000_000_u64, 1_000_000..=9_000_000_000_u64),
        (slices, new_slices) in (slices(), slices()),
        used in 0..=30_u64,
    ) {
        let mut t = Harness::new(window(limit, period(Nanos::new(length)), slices));
        let used = t.take(used).taken;
        t.change(window(new_limit, period(Nanos::new(new_length)), new_slices));
        prop_assert_eq!(t.left(), new_limit.saturating_sub(used));
        t.advance(Nanos::new(2 * new_length));
        prop_assert!(t.admits(1));
    }
}

#[test]
fn the_bound_of_one_less_than_twice_the_limit_is_reached() {
    for slices in [1, 2, 4, 8, 16, 64] {
        let limit = 10;
        let length = 64_000_000;
        let slice = length / u64::from(slices);
        let mut t = Harness::new(window(limit, period(Nanos::new(length)), slices));
        let begun = t.now().as_nanos() / slice * slice;
        // All of it in the last nanosecond of one slice, and as much as goes
        // while that slice leaves, one window later.
        t.set(Timestamp::from_nanos(begun + slice - 1));
        t.spend(limit);
        let first = t.now().as_nanos();
        let mut admitted = limit;
        for part in 1..limit {
            let leaving = begun + length + slice * part / limit;
            t.set(Timestamp::from_nanos(leaving));
            admitted += t.take(limit).taken;
        }
        assert!(t.now().as_nanos() - first < length);
        assert_eq!(admitted, 2 * limit - 1, "{slices} slices");
    }
}
