use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::decision::Retry;
use crate::limit::Limit;
use crate::tests::harness::{
    Harness, Model, START, YEAR, ms, period, run_with_model, secs, steps, without_refunds,
};
use crate::time::Nanos;

fn bucket(amount: u64, period: Period, burst: u64) -> Limit {
    Limit::new(TokenBucket::new(amount, period, burst))
}

fn per_second(amount: u64, burst: u64) -> Harness {
    Harness::new(bucket(amount, Period::SECOND, burst))
}

#[test]
fn admits_the_burst_at_once_and_then_refuses() {
    let mut t = per_second(1, 3);
    assert_eq!(t.burst(10), 3);
    assert_eq!(t.check(1).retry, Retry::After(secs(1)));
}

#[test]
fn admits_again_once_one_interval_has_passed() {
    let mut t = per_second(2, 2);
    t.spend(2);
    t.advance(Nanos::new(499_999_999));
    assert!(t.refuses(1));
    t.advance(Nanos::new(1));
    assert!(t.admits(1));
    assert!(t.refuses(1));
}

#[test]
fn an_idle_bucket_never_holds_more_than_its_burst() {
    let mut t = per_second(1, 3);
    t.spend(3);
    t.advance(YEAR);
    assert_eq!(t.burst(10), 3);
}

#[test]
fn a_cost_above_the_burst_never_fits() {
    let mut t = per_second(1, 3);
    assert_eq!(t.check(4).retry, Retry::Never);
    assert_eq!(t.check(u64::MAX).retry, Retry::Never);
    assert_eq!(t.left(), 3);
}

#[test]
fn a_cost_of_zero_is_admitted_even_from_an_empty_bucket() {
    let mut t = per_second(1, 3);
    t.spend(3);
    let decision = t.check(0);
    assert!(decision.is_admitted());
    assert_eq!((decision.taken, decision.remaining), (0, 0));
    t.step_back(ms(1));
    assert!(t.admits(0));
}

#[test]
fn a_limit_of_zero_refuses_every_cost_for_ever() {
    for (amount, burst) in [(0, 5), (5, 0), (0, 0)] {
        let mut t = per_second(amount, burst);
        let decision = t.check(1);
        assert_eq!((decision.retry, decision.limit, decision.remaining), (Retry::Never, 0, 0));
        assert!(t.admits(0));
    }
}

#[test]
fn the_largest_parameters_still_limit() {
    for period in [Period::MIN, Period::MAX] {
        for amount in [1, u64::MAX] {
            let mut t = Harness::new(bucket(amount, period, u64::MAX));
            let burst = t.check(0).limit;
            assert!(burst > 0);
            t.spend(burst);
            assert!(t.refuses(1), "{amount} per {period:?}");
            assert!(t.refuses(u64::MAX), "{amount} per {period:?}");
        }
    }
}

#[test]
fn a_cost_beyond_the_largest_burst_is_not_taken_for_it() {
    let mut t = Harness::new(bucket(1, Period::MAX, 1 << 52));
    let burst = t.check(0).limit;
    assert_eq!(t.check(burst + 1).retry, Retry::Never);
    assert_eq!(t.check(u64::MAX).retry, Retry::Never);
    assert!(t.admits(burst));
}

#[test]
fn a_burst_cut_to_the_largest_admits_not_one_more() {
    let mut t = Harness::new(bucket(1, period(Nanos::new(1 << 40)), u64::MAX));
    let burst = t.check(0).limit;
    // A burst may take 146 years to refill.
    assert_eq!(burst, 1 << 22);
    assert_eq!(t.check(burst + 1).retry, Retry::Never);
    assert!(t.admits(burst));
}

#[test]
fn a_clock_that_stands_still_refills_nothing() {
    let mut t = per_second(1_000_000, 2);
    assert_eq!(t.burst(1_000), 2);
}

#[test]
fn readings_that_come_late_give_no_tokens_away() {
    let mut t = per_second(1_000_000, 5);
    assert_eq!(t.burst(10), 5);
    for _ in 0..1_000 {
        t.step_back(Nanos::new(1_000));
        assert!(t.refuses(1));
        t.advance(Nanos::new(1_000));
        assert!(t.refuses(1));
    }
}

#[test]
fn a_step_back_by_a_year_delays_by_one_interval_at_most() {
    let mut t = per_second(10, 5);
    t.spend(5);
    t.step_back(YEAR);
    let decision = t.check(1);
    assert_eq!(decision.retry, Retry::After(ms(100)));
    t.assert_honest(1, &decision);
    t.advance(ms(100));
    assert!(t.admits(1));
}

#[test]
fn a_step_forward_and_back_leaves_no_more_than_the_burst() {
    let mut t = per_second(10, 5);
    t.spend(5);
    t.advance(YEAR);
    t.spend(1);
    t.step_back(YEAR);
    assert_eq!(t.burst(10), 0);
    t.advance(ms(500));
    assert_eq!(t.burst(10), 5);
}

#[test]
fn peeking_charges_nothing() {
    let mut t = per_second(1, 3);
    t.spend(1);
    for _ in 0..5 {
        let seen = t.peek(2);
        assert!(seen.is_admitted());
        assert_eq!((seen.taken, seen.remaining), (0, 2));
        assert_eq!(seen.reset_after, secs(1));
    }
    assert!(!t.peek(3).is_admitted());
    assert_eq!(t.burst(9), 2);
}

#[test]
fn a_refund_gives_back_no_more_than_was_used() {
    let mut t = per_second(1, 3);
    t.spend(3);
    assert_eq!(t.refund(1).remaining, 1);
    assert_eq!(t.refund(u64::MAX).remaining, 3);
    assert_eq!(t.burst(9), 3);
}

#[test]
fn taking_gets_what_is_left_and_refuses_when_nothing_is() {
    let mut t = per_second(1, 3);
    t.spend(1);
    let taken = t.take(10);
    assert!(taken.is_admitted());
    assert_eq!((taken.taken, taken.remaining), (2, 0));
    let refused = t.take(10);
    assert_eq!(
        (refused.taken, refused.retry),
        (0, Retry::After(secs(1))),
        "says when one unit is there"
    );
    assert_eq!(t.take(0).taken, 0);
    assert!(t.take(0).is_admitted());
}

#[test]
fn a_reset_key_is_as_good_as_new() {
    let mut t = per_second(1, 3);
    t.spend(3);
    t.reset();
    assert_eq!(t.burst(9), 3);
}

#[test]
fn intervals_under_a_nanosecond_limit_to_the_stated_rate() {
    let gigabytes = 10_000_000_000;
    let mut t = per_second(gigabytes, 1);
    t.set(START);
    let mut admitted = 0;
    for _ in 0..1_000 {
        t.advance(Nanos::new(1));
        admitted += t.take(u64::MAX).taken;
    }
    // A burst of one holds only a tenth of what refills in a nanosecond.
    assert_eq!(admitted, 1_000);
    let mut t = per_second(gigabytes, 1_000_000);
    t.spend(1_000_000);
    t.advance(ms(1_000));
    t.spend(1_000_000);
    t.advance(Nanos::new(10_000));
    let taken = t.take(u64::MAX).taken;
    assert!((99_900..=100_000).contains(&taken), "{taken}");
}

#[test]
fn a_raised_limit_gives_room_at_once() {
    let mut t = Harness::new(bucket(10, Period::MINUTE, 10));
    t.spend(10);
    t.change(bucket(20, Period::MINUTE, 20));
    assert_eq!(t.burst(99), 10);
    let Retry::After(wait) = t.check(1).retry else { panic!("one fits the burst") };
    // Three seconds, less what the scale rounds in the caller's favour.
    assert!(wait <= secs(3) && wait > ms(2_980), "{wait}");
}

#[test]
fn a_lowered_limit_owes_no_more_than_an_empty_bucket() {
    let mut t = Harness::new(bucket(1_000, Period::MINUTE, 1_000));
    t.spend(1_000);
    t.change(bucket(6, Period::MINUTE, 2));
    assert_eq!(t.check(1).retry, Retry::After(secs(10)));
    t.advance(secs(10));
    assert!(t.admits(1));
}

#[test]
fn a_changed_period_keeps_the_amount_used() {
    let mut t = Harness::new(bucket(10, Period::SECOND, 10));
    t.spend(4);
    t.change(bucket(10, Period::HOUR, 10));
    assert_eq!(t.left(), 6);
    t.change(bucket(10, Period::DAY, 10));
    assert_eq!(t.left(), 6);
    t.change(bucket(10, Period::MIN, 10));
    assert_eq!(t.left(), 6);
}

#[test]
fn a_yearly_limit_keeps_its_usage_when_its_period_changes() {
    let mut t = Harness::new(bucket(1, Period::MAX, 2));
    t.spend(2);
    t.change(bucket(1, period(secs(365 * 86_400)), 2));
    assert_eq!(t.left(), 0);
}

#[test]
fn a_leaky_buckets_usage_is_kept_when_it_becomes_a_token_bucket() {
    let mut t = Harness::new(Limit::new(crate::LeakyBucket::new(10, Period::SECOND, 9)));
    t.spend(4);
    t.change(bucket(10, Period::SECOND, 10));
    assert_eq!(t.left(), 6);
}

/// Tokens counted one by one: a credit that grows with time up to the burst.
/// Counts in 2⁻¹⁴ ns, the documented rounding, and follows the clock back.
#[derive(Debug)]
struct Credit {
    interval: i128,
    full: i128,
    late_max: i128,
    credit: i128,
    at: u64,
}

impl Credit {
    fn new(amount: u64, period: Period, burst: u64) -> Self {
        let span = i128::from(period.as_nanos()) * 16_384;
        let amount = i128::from(amount);
        let interval = span / amount + i128::from(span % amount != 0);
        let full = interval * i128::from(burst);
        Credit { interval, full, late_max: span.min(1_000_000_000 * 16_384), credit: full, at: 0 }
    }
}

impl Model for Credit {
    fn left(&mut self, now: u64) -> u64 {
        let passed = (i128::from(now) - i128::from(self.at)) * 16_384;
        self.at = now;
        self.credit = (self.credit + passed).min(self.full);
        if self.credit < -self.late_max {
            self.credit = 0;
        }
        u64::try_from(self.credit.max(0) / self.interval).unwrap()
    }

    fn charge(&mut self, cost: u64, _now: u64) {
        self.credit -= i128::from(cost) * self.interval;
    }

    fn refund(&mut self, cost: u64, _now: u64) {
        self.credit = (self.credit + i128::from(cost) * self.interval).min(self.full);
    }
}

/// Every pair of admissions: what lies between them is at most burst + rate × time.
fn assert_bounded(admitted: &[crate::tests::harness::Admission], model: &Credit) {
    for (first, start) in admitted.iter().enumerate() {
        let mut sum = 0;
        for end in &admitted[first..] {
            sum += i128::from(end.cost) * model.interval;
            let refilled = i128::from(end.at - start.at) * 16_384;
            assert!(sum <= model.full + refilled, "from {start:?} to {end:?}");
        }
    }
}

fn parameters() -> impl Strategy<Value = (u64, Period, u64)> {
    let amount = prop_oneof![1..=20_u64, 1_000..=3_000_000_000_u64];
    let length = prop_oneof![1_000_000..=20_000_000_u64, 1_000_000..=60_000_000_000_u64];
    (amount, length, 1..=30_u64)
        .prop_map(|(amount, length, burst)| (amount, period(Nanos::new(length)), burst))
}

proptest! {
    #[test]
    fn decides_as_tokens_counted_one_by_one(
        (amount, period, burst) in parameters(),
        steps in steps(35, ms(200), secs(2)),
    ) {
        let mut model = Credit::new(amount, period, burst);
        run_with_model(bucket(amount, period, burst), &steps, &mut model);
    }

    #[test]
    fn never_admits_more_than_burst_and_rate_allow_in_any_window(
        (amount, period, burst) in parameters(),
        steps in steps(6, ms(100), ms(1)),
    ) {
        let mut model = Credit::new(amount, period, burst);
        let steps = without_refunds(&steps);
        let admitted = run_with_model(bucket(amount, period, burst), &steps, &mut model);
        assert_bounded(&admitted, &model);
    }

    #[test]
    fn a_raised_limit_is_never_less_room_and_a_lowered_one_never_stuck(
        (amount, old_period, burst) in parameters(),
        (new_amount, new_period, new_burst) in parameters(),
        used in 0..=30_u64,
    ) {
        let mut t = Harness::new(bucket(amount, old_period, burst));
        let used = t.take(used).taken;
        t.change(bucket(new_amount, new_period, new_burst));
        let left = t.left();
        // Rates that share a scale are not distinguished, and the time is kept.
        let scale = |amount, period| TokenBucket::new(amount, period, 1).meter.terms().scale;
        let alike = scale(amount, old_period) == scale(new_amount, new_period);
        prop_assert!(left + u64::from(alike) >= new_burst.saturating_sub(used));
        // Kept to one part in two thousand, so these few are kept to one.
        prop_assert!(left <= new_burst.saturating_sub(used) + 1);
        t.advance(new_period.as_span());
        t.advance(new_period.lag_max());
        prop_assert!(t.admits(1));
    }
}

#[test]
fn paces_that_share_a_scale_may_lose_the_last_part_of_a_unit() {
    let old = (2_053_071_149, Period::new(Duration::from_nanos(22_305_470_199)).unwrap());
    let new = (2_386_821_430, Period::new(Duration::from_nanos(25_928_712_488)).unwrap());
    let mut t = Harness::new(bucket(old.0, old.1, 1));
    assert_eq!(t.take(1).taken, 1);
    t.change(bucket(new.0, new.1, 2));
    assert_eq!(t.left(), 0, "one unit took longer before, by less than the scale tells");
    t.advance(Nanos::new(1));
    assert_eq!(t.left(), 1);
}

#[test]
fn idle_then_burst_never_exceeds_the_burst_in_any_small_state() {
    let waits = [0, 1, 499_999, 500_000, 1_000_000, 100_000_000];
    for (amount, burst) in [(1, 1), (1, 3), (2, 1), (2, 3), (3, 2)] {
        for pattern in 0..waits.len().pow(4) {
            let model = Credit::new(amount, Period::MIN, burst);
            let mut t = Harness::new(bucket(amount, Period::MIN, burst));
            let mut admitted = Vec::new();
            for turn in 0..4 {
                let wait = waits[pattern / waits.len().pow(turn) % waits.len()];
                t.advance(Nanos::new(wait));
                let cost = t.burst(burst + 1);
                assert!(cost <= burst);
                admitted.push(crate::tests::harness::Admission {
                    at: t.now().as_nanos(),
                    cost,
                    delay: 0,
                });
            }
            assert_bounded(&admitted, &model);
        }
    }
}
