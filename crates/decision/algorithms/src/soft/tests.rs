use super::*;
use crate::limit::Limit;
use crate::tests::harness::{Harness, START, YEAR, secs};
use crate::{
    Concurrency, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket, Window,
};

/// Half as much again, for ten seconds.
fn half_more() -> Soft {
    Soft { over_percent: 50, lasting: crate::tests::harness::period(secs(10)) }
}

fn bucket() -> Limit {
    Limit::new(TokenBucket::new(1, Period::SECOND, 10))
}

fn per_minute() -> Limit {
    Limit::new(FixedWindow::new(10, Window::Every(Period::MINUTE)))
}

fn every_algorithm() -> Vec<Limit> {
    vec![
        bucket(),
        per_minute(),
        Limit::new(LeakyBucket::new(1, Period::SECOND, 9)),
        Limit::new(SlidingLog::new(10, Period::MINUTE).unwrap()),
        Limit::new(SlidingWindow::new(10, Period::MINUTE, 4).unwrap()),
        Limit::new(Concurrency::new(10, Period::MINUTE).unwrap()),
    ]
}

#[test]
fn the_first_excess_opens_an_allowance_of_the_stated_size() {
    for limit in every_algorithm() {
        let mut t = Harness::new(limit.with_soft(half_more()));
        t.spend(10);
        let over = t.check(1);
        assert!(over.is_admitted() && over.soft);
        assert_eq!((over.limit, over.remaining), (10, 4));
        assert_eq!(t.burst(99), 4);
        let refused = t.check(1);
        assert!(!refused.is_admitted() && !refused.soft);
    }
}

#[test]
fn what_fits_the_limit_itself_opens_nothing() {
    for limit in every_algorithm() {
        let mut t = Harness::new(limit.with_soft(half_more()));
        let within = t.check(10);
        assert!(!within.soft);
        let State::Soft(state) = &t.state else { panic!("a soft limit keeps a soft state") };
        assert_eq!(state.allowance, None);
    }
}

#[test]
fn after_its_time_the_limit_holds_hard_and_rests_for_one_period() {
    let mut t = Harness::new(per_minute().with_soft(half_more()));
    t.spend(15);
    // The allowance closes after 10 s and rests until 70 s; the window ends at 60 s.
    t.advance(secs(60));
    t.spend(10);
    let refused = t.check(1);
    assert_eq!(refused.retry, Retry::After(secs(10)));
    assert_eq!(refused.remaining, 0);
    t.assert_honest(1, &refused);
    t.advance(secs(10));
    let again = t.check(1);
    assert!(again.is_admitted() && again.soft);
}

#[test]
fn an_open_allowance_is_not_prolonged_by_use() {
    let mut t = Harness::new(bucket().with_soft(half_more()));
    t.spend(11);
    t.advance(secs(9));
    t.spend(10);
    assert!(t.check(1).soft);
    t.advance(secs(1));
    // Nine seconds and one have refilled ten of the twenty-two.
    assert_eq!(t.left(), 0);
    assert!(t.refuses(1));
}

#[test]
fn remaining_counts_the_allowance_while_it_may_be_used() {
    let mut t = Harness::new(per_minute().with_soft(half_more()));
    assert_eq!(t.left(), 15);
    assert_eq!(t.check(4).remaining, 11);
    assert_eq!(t.check(7).remaining, 4);
    assert_eq!(t.refund(3).remaining, 7);
    t.advance(secs(10));
    assert_eq!(t.left(), 2);
}

#[test]
fn taking_uses_the_allowance_too() {
    let mut t = Harness::new(per_minute().with_soft(half_more()));
    let taken = t.take(99);
    assert_eq!((taken.taken, taken.remaining, taken.soft), (15, 0, true));
    assert!(!t.take(99).is_admitted());
}

#[test]
fn peeking_opens_no_allowance() {
    let mut t = Harness::new(per_minute().with_soft(half_more()));
    t.spend(10);
    assert!(t.peek(1).soft);
    t.advance(secs(11));
    assert!(t.check(1).soft, "the first excess is now");
}

#[test]
fn a_cost_that_only_the_allowance_holds_waits_for_it() {
    let mut t = Harness::new(per_minute().with_soft(half_more()));
    assert_eq!(t.check(16).retry, Retry::Never);
    t.spend(15);
    t.advance(secs(60));
    let refused = t.check(12);
    assert_eq!(refused.retry, Retry::After(secs(10)));
    t.assert_honest(12, &refused);
}

#[test]
fn counted_refusals_keep_a_caller_from_its_allowance() {
    let log = SlidingLog::new(10, Period::MINUTE).unwrap();
    let mut t = Harness::new(Limit::new(log.counting_refused(true)).with_soft(half_more()));
    t.spend(15);
    for _ in 0..9 {
        t.advance(secs(1));
        assert!(t.refuses(1));
    }
}

#[test]
fn a_refusal_while_the_allowance_rests_counts_itself() {
    let window = FixedWindow::new(10, Window::Every(Period::MINUTE)).counting_refused(true);
    let mut t = Harness::new(Limit::new(window).with_soft(half_more()));
    t.spend(11);
    t.advance(secs(60));
    // Twelve fit the raised window, but not a second time.
    let refused = t.check(12);
    assert_eq!(refused.retry, Retry::After(secs(60)));
    t.assert_honest(12, &refused);
}

#[test]
fn an_allowance_of_nothing_changes_nothing() {
    let none = Soft { over_percent: 0, ..half_more() };
    let mut t = Harness::new(per_minute().with_soft(none));
    assert_eq!(t.burst(99), 10);
}

#[test]
fn the_largest_allowance_still_limits() {
    let most = Soft { over_percent: u32::MAX, lasting: Period::MAX };
    for limit in every_algorithm() {
        let mut t = Harness::new(limit.with_soft(most));
        let taken = t.take(u64::MAX).taken;
        assert!((11..=10 + 10 * u64::from(u32::MAX) / 100).contains(&taken));
        assert!(t.refuses(1));
    }
    let mut t = Harness::new(
        Limit::new(FixedWindow::new(u64::MAX, Window::Every(Period::MAX))).with_soft(most),
    );
    t.spend(u64::MAX);
    assert!(t.refuses(1));
}

#[test]
fn a_limit_of_zero_stays_zero() {
    let zero = FixedWindow::new(0, Window::Every(Period::MINUTE));
    let mut t = Harness::new(Limit::new(zero).with_soft(half_more()));
    assert_eq!(t.check(1).retry, Retry::Never);
}

#[test]
fn a_limit_that_becomes_soft_keeps_its_usage_and_may_be_exceeded_at_once() {
    for limit in every_algorithm() {
        let mut t = Harness::new(limit.clone());
        t.spend(10);
        t.change(limit.with_soft(half_more()));
        assert_eq!(t.burst(99), 5);
    }
}

#[test]
fn a_limit_that_becomes_hard_again_is_not_stuck() {
    for limit in every_algorithm() {
        let mut t = Harness::new(limit.clone().with_soft(half_more()));
        t.spend(15);
        t.change(limit.clone());
        assert_eq!(t.left(), 0);
        let refused = t.check(1);
        t.assert_honest(1, &refused);
        t.advance(limit.algorithm().period());
        t.advance(limit.algorithm().period());
        assert!(t.admits(1));
    }
}

#[test]
fn a_step_back_leaves_an_allowance_open_or_resting_no_longer_than_a_new_one() {
    let mut t = Harness::new(per_minute().with_soft(half_more()));
    t.spend(15);
    t.step_back(YEAR);
    assert!(t.refuses(1));
    t.advance(secs(70));
    t.spend(10);
    assert!(t.check(1).soft);
}

#[test]
fn a_shorter_allowance_holds_for_the_one_that_is_open() {
    let mut t = Harness::new(per_minute().with_soft(Soft { lasting: Period::HOUR, ..half_more() }));
    t.spend(11);
    t.change(per_minute().with_soft(half_more()));
    assert_eq!(t.left(), 4);
    t.advance(secs(10));
    assert_eq!(t.left(), 0);
}

#[test]
fn a_soft_state_is_idle_once_it_is_unused_and_rested() {
    let mut t = Harness::new(per_minute().with_soft(half_more()));
    t.spend(10);
    assert_eq!(t.state.idle_at(), START.after(secs(60)));
    t.spend(1);
    assert_eq!(t.state.idle_at(), START.after(secs(70)));
    assert!(t.state.heap_bytes() > 0);
}
