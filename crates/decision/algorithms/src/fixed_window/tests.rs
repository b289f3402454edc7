use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::limit::Limit;
use crate::period::Period;
use crate::state::State;
use crate::tests::harness::{
    Harness, Model, START, YEAR, ms, period, run_with_model, secs, steps, without_refunds,
};
use crate::time::Nanos;
use crate::window::CalendarUnit;

fn window(limit: u64, period: Period) -> Limit {
    Limit::new(FixedWindow::new(limit, Window::Every(period)))
}

fn per_minute(limit: u64) -> Harness {
    Harness::new(window(limit, Period::MINUTE))
}

#[test]
fn admits_the_limit_and_then_refuses_until_the_window_ends() {
    let mut t = per_minute(3);
    t.advance(secs(20));
    assert_eq!(t.burst(9), 3);
    let refused = t.check(1);
    assert_eq!(refused.retry, Retry::After(secs(40)));
    assert_eq!(refused.reset_after, secs(40));
    t.advance(Nanos::new(39_999_999_999));
    assert!(t.refuses(1));
    t.advance(Nanos::new(1));
    assert_eq!(t.burst(9), 3);
}

#[test]
fn windows_are_counted_from_the_epoch() {
    let hour = Window::Every(Period::HOUR);
    assert_eq!(hour.end(START), START.after(secs(3_600)));
    assert_eq!(hour.end(START.after(secs(3_599))), START.after(secs(3_600)));
    let odd = Window::Every(period(secs(7)));
    assert_eq!(odd.end(Timestamp::from_secs(20)), Timestamp::from_secs(21));
}

#[test]
fn a_cost_above_the_limit_never_fits() {
    let mut t = per_minute(3);
    assert_eq!(t.check(4).retry, Retry::Never);
    assert_eq!(t.check(u64::MAX).retry, Retry::Never);
    assert_eq!(t.left(), 3);
}

#[test]
fn a_cost_of_zero_is_always_admitted() {
    let mut t = per_minute(1);
    t.spend(1);
    assert!(t.admits(0));
    let mut t = per_minute(0);
    assert!(t.admits(0));
}

#[test]
fn a_limit_of_zero_refuses_every_cost_for_ever() {
    let mut t = per_minute(0);
    assert_eq!(t.check(1).retry, Retry::Never);
}

#[test]
fn the_largest_parameters_still_limit() {
    let mut t = Harness::new(window(u64::MAX, Period::MAX));
    t.spend(u64::MAX);
    assert!(t.refuses(1));
    assert!(t.refuses(u64::MAX));
    let mut t = Harness::new(window(u64::MAX, Period::MIN));
    t.spend(1);
    assert!(t.refuses(u64::MAX));
}

#[test]
fn the_last_instant_that_can_be_named_still_limits() {
    let mut t = per_minute(3);
    t.set(Timestamp::MAX);
    assert_eq!(t.burst(9), 3);
    assert_eq!(t.state.idle_at(), Timestamp::MAX);
}

#[test]
fn a_clock_that_stands_still_never_opens_another_window() {
    let mut t = per_minute(3);
    assert_eq!(t.burst(1_000), 3);
}

#[test]
fn a_reading_that_comes_late_does_not_forget_the_open_window() {
    let mut t = per_minute(3);
    for left in [2, 1, 0] {
        t.spend(1);
        for late in [Nanos::new(1), ms(900)] {
            t.step_back(late);
            assert_eq!(t.left(), left);
            t.advance(late);
            assert_eq!(t.left(), left);
        }
    }
}

#[test]
fn a_step_back_keeps_usage_until_the_end_of_the_window_it_lands_in() {
    for back in [secs(30), YEAR] {
        let mut t = per_minute(3);
        t.spend(3);
        t.step_back(back);
        let refused = t.check(1);
        t.assert_honest(1, &refused);
        let Retry::After(wait) = refused.retry else { panic!("one fits the limit") };
        assert!(wait <= secs(60), "{wait}");
        t.advance(wait);
        assert_eq!(t.burst(9), 3);
    }
}

#[test]
fn a_step_forward_opens_one_window() {
    let mut t = per_minute(3);
    t.spend(3);
    t.advance(YEAR);
    assert_eq!(t.burst(9), 3);
}

#[test]
fn peek_refund_take_and_reset_do_what_they_say() {
    let mut t = per_minute(5);
    t.spend(2);
    let seen = t.peek(3);
    assert_eq!((seen.is_admitted(), seen.remaining, seen.taken), (true, 3, 0));
    assert!(!t.peek(4).is_admitted());
    assert_eq!(t.refund(1).remaining, 4);
    assert_eq!(t.take(9).taken, 4);
    let refused = t.take(9);
    assert_eq!((refused.taken, refused.retry), (0, Retry::After(secs(60))));
    assert_eq!(t.refund(u64::MAX).remaining, 5);
    t.spend(5);
    t.reset();
    assert_eq!(t.left(), 5);
}

#[test]
fn a_refund_after_the_window_has_ended_gives_nothing_extra() {
    let mut t = per_minute(3);
    t.spend(3);
    t.advance(secs(60));
    t.spend(1);
    t.advance(secs(60));
    assert_eq!(t.refund(3).remaining, 3);
}

#[test]
fn refused_costs_count_only_if_configured() {
    let counting = FixedWindow::new(3, Window::Every(Period::MINUTE)).counting_refused(true);
    for (limit, left) in [(window(3, Period::MINUTE), 1), (Limit::new(counting), 0)] {
        let mut t = Harness::new(limit);
        t.spend(2);
        assert!(t.refuses(2));
        assert_eq!(t.left(), left);
        t.advance(secs(60));
        assert_eq!(t.left(), 3);
    }
}

#[test]
fn a_raised_limit_gives_room_at_once_and_a_lowered_one_lasts_one_window() {
    let mut t = per_minute(10);
    t.spend(10);
    t.change(window(20, Period::MINUTE));
    assert_eq!(t.left(), 10);
    t.change(window(5, Period::MINUTE));
    assert_eq!(t.left(), 0);
    assert!(t.refuses(1));
    t.advance(secs(60));
    assert_eq!(t.burst(9), 5);
}

#[test]
fn a_changed_period_keeps_usage_until_the_new_windows_end() {
    let mut t = per_minute(10);
    t.spend(4);
    t.change(window(10, Period::HOUR));
    assert_eq!(t.left(), 6);
    t.advance(secs(3_599));
    assert_eq!(t.left(), 6);
    t.change(window(10, Period::SECOND));
    assert_eq!(t.left(), 6);
    t.advance(secs(1));
    assert_eq!(t.left(), 10);
}

#[test]
fn a_change_to_the_calendar_keeps_usage_until_the_old_window_ends() {
    let day = Window::Calendar(CalendarUnit::Day, jiff::tz::TimeZone::UTC);
    let mut t = per_minute(10);
    t.spend(4);
    t.change(Limit::new(FixedWindow::new(10, day)));
    assert_eq!(t.left(), 6);
    t.advance(secs(60));
    assert_eq!(t.left(), 10);
}

#[test]
fn an_unused_window_is_idle_from_the_start() {
    let mut t = per_minute(3);
    t.peek(1);
    assert_eq!(t.state.idle_at(), Timestamp::EPOCH);
    t.spend(1);
    assert_eq!(t.state.idle_at(), START.after(secs(60)));
    assert!(matches!(t.state, State::Window(_)));
}

/// A map from window to count. A late reading counts in the window seen last.
#[derive(Debug)]
struct Counts {
    limit: u64,
    length: u64,
    count_refused: bool,
    seen: u64,
    counts: HashMap<u64, u64>,
}

impl Counts {
    fn count(&mut self, now: u64) -> &mut u64 {
        self.seen = self.seen.max(now);
        self.counts.entry(self.seen / self.length).or_default()
    }
}

impl Model for Counts {
    fn left(&mut self, now: u64) -> u64 {
        let limit = self.limit;
        limit.saturating_sub(*self.count(now))
    }

    fn charge(&mut self, cost: u64, now: u64) {
        *self.count(now) += cost;
    }

    fn refund(&mut self, cost: u64, now: u64) {
        let count = self.count(now);
        *count = count.saturating_sub(cost);
    }

    fn exceeded(&mut self, now: u64) -> bool {
        let limit = self.limit;
        self.count_refused && *self.count(now) > limit
    }

    fn refuse(&mut self, cost: u64, now: u64) {
        if self.count_refused {
            self.charge(cost, now);
        }
    }
}

proptest! {
    #[test]
    fn decides_as_a_map_of_counts_does(
        limit in 0..=20_u64,
        length in 1_000_000..=2_000_000_000_u64,
        count_refused: bool,
        steps in steps(22, ms(300), ms(1)),
    ) {
        let length = period(Nanos::new(length));
        let algorithm =
            FixedWindow::new(limit, Window::Every(length)).counting_refused(count_refused);
        let mut model = Counts {
            limit,
            length: length.as_nanos(),
            count_refused,
            seen: 0,
            counts: HashMap::new(),
        };
        run_with_model(Limit::new(algorithm), &steps, &mut model);
    }

    #[test]
    fn never_admits_more_than_the_limit_in_one_window(
        limit in 0..=20_u64,
        length in 1_000_000..=2_000_000_000_u64,
        steps in steps(5, ms(300), ms(1)),
    ) {
        let length = period(Nanos::new(length));
        let mut model = Counts {
            limit,
            length: length.as_nanos(),
            count_refused: false,
            seen: 0,
            counts: HashMap::new(),
        };
        let steps = without_refunds(&steps);
        let mut per_window: HashMap<u64, u64> = HashMap::new();
        for one in run_with_model(window(limit, length), &steps, &mut model) {
            *per_window.entry(one.at / length.as_nanos()).or_default() += one.cost;
        }
        prop_assert!(per_window.values().all(|count| *count <= limit));
    }

    #[test]
    fn a_changed_limit_keeps_the_count_and_is_never_stuck(
        (limit, new_limit) in (1..=30_u64, 1..=30_u64),
        (length, new_length) in (1_000_000..=9_000_000_000_u64, 1_000_000..=9_000_000_000_u64),
        into in 0..=9_000_000_000_u64,
        used in 0..=30_u64,
    ) {
        let (length, new_length) = (period(Nanos::new(length)), period(Nanos::new(new_length)));
        let mut t = Harness::new(window(limit, length));
        t.advance(Nanos::new(into));
        let used = t.take(used).taken;
        t.change(window(new_limit, new_length));
        prop_assert_eq!(t.left(), new_limit.saturating_sub(used));
        t.advance(new_length.as_span());
        t.advance(new_length.lag_max());
        prop_assert!(t.admits(1));
    }
}
