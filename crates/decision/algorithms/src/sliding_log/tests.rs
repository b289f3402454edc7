use proptest::prelude::*;

use super::*;
use crate::limit::Limit;
use crate::state::State;
use crate::tests::harness::{
    Harness, Model, START, YEAR, busiest_window, ms, period, run_with_model, secs, steps,
    without_refunds,
};

fn log(limit: u64, period: Period) -> Limit {
    Limit::new(SlidingLog::new(limit, period).unwrap())
}

fn counting_refused(limit: u64, period: Period) -> Limit {
    let log = SlidingLog::new(limit, period).unwrap();
    Limit::new(log.counting_refused(true))
}

fn per_minute(limit: u64) -> Harness {
    Harness::new(log(limit, Period::MINUTE))
}

#[test]
fn each_request_leaves_one_period_after_it_came() {
    let mut t = per_minute(2);
    t.spend(1);
    t.advance(secs(20));
    t.spend(1);
    let refused = t.check(1);
    assert_eq!(refused.retry, Retry::After(secs(40)));
    assert_eq!(refused.reset_after, secs(60));
    t.advance(Nanos::new(39_999_999_999));
    assert!(t.refuses(1));
    t.advance(Nanos::new(1));
    assert_eq!(t.burst(9), 1);
    t.advance(secs(20));
    assert_eq!(t.burst(9), 1);
}

#[test]
fn the_edge_of_a_minute_makes_no_difference() {
    let mut t = per_minute(5);
    t.advance(secs(59));
    assert_eq!(t.burst(9), 5);
    t.advance(secs(2));
    assert_eq!(t.burst(9), 0);
}

#[test]
fn a_cost_above_the_limit_never_fits() {
    let mut t = per_minute(3);
    assert_eq!(t.check(4).retry, Retry::Never);
    assert_eq!(t.check(u64::MAX).retry, Retry::Never);
    assert_eq!(t.left(), 3);
}

#[test]
fn a_cost_of_zero_is_always_admitted_and_leaves_no_entry() {
    let mut t = per_minute(1);
    assert!(t.admits(0));
    assert_eq!(t.state.heap_bytes(), 0);
    t.spend(1);
    assert!(t.admits(0));
    let mut t = per_minute(0);
    assert!(t.admits(0));
    assert_eq!(t.check(1).retry, Retry::Never);
}

#[test]
fn a_limit_beyond_the_largest_is_an_error() {
    assert!(SlidingLog::new(SLIDING_LOG_MAX, Period::MAX).is_ok());
    assert_eq!(
        SlidingLog::new(u64::MAX, Period::MAX),
        Err(ParameterError::SlidingLogTooLarge { limit: u64::MAX })
    );
}

#[test]
fn requests_of_one_instant_share_one_entry() {
    let mut t = per_minute(1_000);
    assert_eq!(t.burst(2_000), 1_000);
    let State::Log(log) = &t.state else { panic!("a log keeps a log's state") };
    assert_eq!(log.entries.len(), 1);
}

#[test]
fn an_entry_refunded_in_part_still_merges_and_leaves_whole() {
    let mut t = per_minute(10);
    t.spend(4);
    assert_eq!(t.refund(1).remaining, 7);
    t.spend(2);
    assert_eq!(t.refund(5).remaining, 10);
    assert_eq!(t.state.idle_at(), t.now());
    t.spend(3);
    t.advance(secs(10));
    t.spend(3);
    assert_eq!(t.refund(4).remaining, 8);
    t.spend(1);
    t.advance(secs(50));
    assert_eq!(t.left(), 9);
    t.advance(secs(10));
    assert_eq!(t.left(), 10);
}

#[test]
fn a_clock_that_stands_still_admits_the_limit_once() {
    let mut t = per_minute(3);
    assert_eq!(t.burst(1_000), 3);
    t.set(Timestamp::MAX);
    assert_eq!(t.burst(1_000), 3);
}

#[test]
fn a_step_back_by_a_year_keeps_every_entry_for_one_period() {
    let mut t = per_minute(4);
    for _ in 0..4 {
        t.spend(1);
        t.advance(secs(2));
    }
    t.step_back(YEAR);
    let refused = t.check(1);
    assert_eq!(refused.retry, Retry::After(secs(60)));
    t.assert_honest(1, &refused);
    t.advance(secs(60));
    assert_eq!(t.burst(9), 4);
}

#[test]
fn a_step_back_into_the_log_moves_only_what_lies_ahead() {
    let mut t = per_minute(4);
    for _ in 0..4 {
        t.spend(1);
        t.advance(secs(10));
    }
    t.step_back(secs(25));
    assert_eq!(t.check(1).retry, Retry::After(secs(45)));
    t.advance(secs(45));
    assert_eq!(t.left(), 1);
    t.advance(secs(15));
    assert_eq!(t.left(), 4);
}

#[test]
fn a_step_forward_forgets_what_has_left() {
    let mut t = per_minute(3);
    t.spend(3);
    t.advance(YEAR);
    assert_eq!(t.burst(9), 3);
}

#[test]
fn a_late_reading_joins_the_newest_entry() {
    let mut t = per_minute(3);
    t.spend(1);
    t.step_back(ms(500));
    t.spend(1);
    assert_eq!(t.state.idle_at(), START.after(secs(60)));
    t.advance(ms(500));
    assert_eq!(t.left(), 1);
}

#[test]
fn peek_take_and_reset_do_what_they_say() {
    let mut t = per_minute(5);
    t.spend(2);
    let seen = t.peek(3);
    assert_eq!((seen.is_admitted(), seen.remaining, seen.taken), (true, 3, 0));
    assert_eq!(t.take(9).taken, 3);
    assert_eq!(t.take(9).retry, Retry::After(secs(60)));
    t.reset();
    assert_eq!(t.left(), 5);
}

#[test]
fn a_caller_that_keeps_retrying_is_kept_out_where_refused_costs_count() {
    let mut t = Harness::new(counting_refused(2, Period::MINUTE));
    t.spend(2);
    for _ in 0..10 {
        t.advance(secs(30));
        let refused = t.check(1);
        t.assert_honest(1, &refused);
        assert!(!refused.is_admitted());
        assert!(t.refuses(1));
    }
    t.advance(secs(60));
    assert_eq!(t.burst(9), 2);
}

#[test]
fn counted_refusals_take_bounded_memory() {
    let mut t = Harness::new(counting_refused(3, Period::MINUTE));
    for cost in (0..10_000).map(|turn| turn % 5) {
        t.advance(Nanos::new(1));
        t.check(cost);
        let State::Log(log) = &t.state else { panic!("a log keeps a log's state") };
        assert!(log.entries.len() <= 4);
    }
    t.check(u64::MAX);
    assert!(t.state.heap_bytes() < 1_000);
}

#[test]
fn a_raised_limit_gives_room_at_once_and_a_lowered_one_lasts_one_period() {
    let mut t = per_minute(10);
    t.spend(10);
    t.change(log(20, Period::MINUTE));
    assert_eq!(t.left(), 10);
    t.change(log(5, Period::MINUTE));
    let refused = t.check(1);
    t.assert_honest(1, &refused);
    t.advance(secs(60));
    assert_eq!(t.burst(9), 5);
}

#[test]
fn a_changed_period_judges_the_entries_by_the_new_one() {
    let mut t = per_minute(10);
    t.spend(3);
    t.advance(secs(30));
    t.spend(3);
    t.change(log(10, period(secs(20))));
    assert_eq!(t.left(), 7);
    t.change(log(10, Period::HOUR));
    t.advance(secs(3_599));
    assert_eq!(t.left(), 7);
    t.advance(secs(1));
    assert_eq!(t.left(), 10);
}

/// Every instant ever, one for each unit of cost.
#[derive(Debug)]
struct Instants {
    limit: u64,
    length: u64,
    count_refused: bool,
    seen: u64,
    instants: Vec<u64>,
}

impl Instants {
    fn new(limit: u64, length: u64, count_refused: bool) -> Self {
        Instants { limit, length, count_refused, seen: 0, instants: Vec::new() }
    }
}

impl Model for Instants {
    fn left(&mut self, now: u64) -> u64 {
        self.seen = self.seen.max(now);
        self.instants.retain(|at| at + self.length > self.seen);
        self.limit.saturating_sub(self.instants.len() as u64)
    }

    fn charge(&mut self, cost: u64, now: u64) {
        let at = self.instants.last().map_or(now, |last| now.max(*last));
        self.instants.extend((0..cost).map(|_| at));
    }

    fn refund(&mut self, cost: u64, now: u64) {
        self.left(now);
        for _ in 0..cost {
            self.instants.pop();
        }
    }

    fn refuse(&mut self, cost: u64, now: u64) {
        if self.count_refused {
            self.charge(cost.min(self.limit), now);
        }
    }
}

proptest! {
    #[test]
    fn decides_as_a_list_of_instants_does(
        limit in 0..=20_u64,
        length in 1_000_000..=2_000_000_000_u64,
        steps in steps(22, ms(300), ms(1)),
    ) {
        let mut model = Instants::new(limit, length, false);
        run_with_model(log(limit, period(Nanos::new(length))), &steps, &mut model);
    }

    #[test]
    fn decides_as_a_list_of_instants_does_where_refused_costs_count(
        limit in 0..=20_u64,
        length in 1_000_000..=2_000_000_000_u64,
        steps in steps(22, ms(300), ms(1)),
    ) {
        let mut model = Instants::new(limit, length, true);
        let limit = counting_refused(limit, period(Nanos::new(length)));
        // What counted refusals push out of the log cannot be refunded.
        run_with_model(limit, &without_refunds(&steps), &mut model);
    }

    #[test]
    fn never_admits_more_than_the_limit_in_any_window(
        limit in 0..=20_u64,
        length in 1_000_000..=2_000_000_000_u64,
        steps in steps(5, ms(300), Nanos::ZERO),
    ) {
        let mut model = Instants::new(limit, length, false);
        let steps = without_refunds(&steps);
        let admitted = run_with_model(log(limit, period(Nanos::new(length))), &steps, &mut model);
        prop_assert!(busiest_window(&admitted, length) <= limit);
    }

    #[test]
    fn late_readings_shorten_the_window_by_no_more_than_they_are_late(
        limit in 0..=20_u64,
        length in 2_000_000..=2_000_000_000_u64,
        steps in steps(5, ms(300), ms(1)),
    ) {
        let mut model = Instants::new(limit, length, false);
        let steps = without_refunds(&steps);
        let admitted = run_with_model(log(limit, period(Nanos::new(length))), &steps, &mut model);
        prop_assert!(busiest_window(&admitted, length - 1_000_000) <= limit);
    }

    #[test]
    fn a_changed_limit_keeps_the_entries_and_is_never_stuck(
        (limit, new_limit) in (1..=30_u64, 1..=30_u64),
        (length, new_length) in (1_000_000..=9_000_000_000_u64, 1_000_000..=9_000_000_000_u64),
        used in 0..=30_u64,
    ) {
        let mut t = Harness::new(log(limit, period(Nanos::new(length))));
        let used = t.take(used).taken;
        t.change(log(new_limit, period(Nanos::new(new_length))));
        prop_assert_eq!(t.left(), new_limit.saturating_sub(used));
        t.advance(Nanos::new(new_length));
        prop_assert_eq!(t.left(), new_limit);
    }
}
