use proptest::prelude::*;

use super::*;
use crate::decision::Retry;
use crate::limit::Limit;
use crate::tests::harness::{
    Harness, Model, YEAR, ms, period, run_with_model, secs, steps, without_refunds,
};
use crate::time::{Nanos, Timestamp};

fn bucket(amount: u64, period: Period, queue: u64) -> Limit {
    Limit::new(LeakyBucket::new(amount, period, queue))
}

fn per_second(amount: u64, queue: u64) -> Harness {
    Harness::new(bucket(amount, Period::SECOND, queue))
}

#[test]
fn a_burst_leaves_at_constant_spacing_and_a_full_queue_refuses() {
    let mut t = per_second(10, 3);
    let delays: Vec<Nanos> = (0..4).map(|_| t.check(1).delay).collect();
    assert_eq!(delays, [ms(0), ms(100), ms(200), ms(300)]);
    let refused = t.check(1);
    assert_eq!(refused.retry, Retry::After(ms(100)));
    assert_eq!((refused.limit, refused.remaining), (4, 0));
}

#[test]
fn a_queue_of_zero_admits_only_what_can_leave_at_once() {
    let mut t = per_second(10, 0);
    assert_eq!(t.check(1).delay, Nanos::ZERO);
    assert!(t.refuses(1));
    t.advance(ms(100));
    assert_eq!(t.check(1).delay, Nanos::ZERO);
}

#[test]
fn a_turn_comes_free_with_every_departure() {
    let mut t = per_second(10, 2);
    assert_eq!(t.burst(9), 3);
    t.advance(Nanos::new(99_999_999));
    assert!(t.refuses(1));
    t.advance(Nanos::new(1));
    assert_eq!(t.check(1).delay, ms(200));
}

#[test]
fn a_large_cost_takes_as_many_turns() {
    let mut t = per_second(10, 9);
    assert_eq!(t.check(4).delay, ms(0));
    assert_eq!(t.check(1).delay, ms(400));
}

#[test]
fn a_cost_above_the_queue_and_the_one_leaving_never_fits() {
    let mut t = per_second(10, 3);
    assert_eq!(t.check(5).retry, Retry::Never);
    assert_eq!(t.check(u64::MAX).retry, Retry::Never);
    assert!(t.admits(4));
}

#[test]
fn an_outflow_of_zero_refuses_every_cost_for_ever() {
    let mut t = per_second(0, 3);
    assert_eq!(t.check(1).retry, Retry::Never);
    assert_eq!(t.check(1).limit, 0);
    assert!(t.admits(0));
}

#[test]
fn a_cost_of_zero_is_admitted_even_when_the_queue_is_full() {
    let mut t = per_second(10, 1);
    assert_eq!(t.burst(9), 2);
    assert!(t.admits(0));
    t.step_back(ms(1));
    assert!(t.admits(0));
    assert_eq!(t.left(), 0);
}

#[test]
fn the_largest_parameters_still_limit() {
    for period in [Period::MIN, Period::MAX] {
        for amount in [1, u64::MAX] {
            let mut t = Harness::new(bucket(amount, period, u64::MAX));
            let capacity = t.check(0).limit;
            t.spend(capacity);
            assert!(t.refuses(1), "{amount} per {period:?}");
            assert!(t.refuses(u64::MAX), "{amount} per {period:?}");
        }
    }
}

#[test]
fn no_request_leaves_while_the_clock_stands_still() {
    let mut t = per_second(1_000_000, 2);
    assert_eq!(t.burst(1_000), 3);
}

#[test]
fn a_step_back_by_a_year_delays_no_longer_than_a_full_queue() {
    let mut t = per_second(10, 3);
    t.spend(2);
    t.step_back(YEAR);
    let refused = t.check(1);
    assert_eq!(refused.retry, Retry::After(ms(100)));
    t.assert_honest(1, &refused);
    t.advance(ms(100));
    assert_eq!(t.check(1).delay, ms(300));
}

#[test]
fn a_step_forward_empties_the_queue() {
    let mut t = per_second(10, 3);
    assert_eq!(t.burst(9), 4);
    t.advance(YEAR);
    assert_eq!(t.check(1).delay, ms(0));
}

#[test]
fn a_refund_gives_no_turn_back() {
    let mut t = per_second(10, 3);
    t.spend(2);
    assert_eq!(t.refund(2).remaining, 2);
    assert_eq!(t.check(1).delay, ms(200));
}

#[test]
fn peeking_shows_the_delay_and_takes_no_turn() {
    let mut t = per_second(10, 3);
    t.spend(2);
    for _ in 0..3 {
        let seen = t.peek(1);
        assert_eq!((seen.delay, seen.remaining, seen.taken), (ms(200), 2, 0));
    }
}

#[test]
fn taking_fills_the_queue() {
    let mut t = per_second(10, 3);
    t.spend(1);
    assert_eq!(t.take(10).taken, 3);
    assert!(!t.take(10).is_admitted());
    t.reset();
    assert_eq!(t.take(10).taken, 4);
}

#[test]
fn a_longer_queue_gives_room_at_once_and_a_shorter_one_is_not_stuck() {
    let mut t = per_second(10, 1);
    assert_eq!(t.burst(9), 2);
    t.change(bucket(10, Period::SECOND, 5));
    assert_eq!(t.left(), 4);
    assert_eq!(t.burst(9), 4);
    t.change(bucket(10, Period::MINUTE, 0));
    t.advance(secs(6));
    assert_eq!(t.check(1).delay, Nanos::ZERO);
}

#[test]
fn a_changed_outflow_keeps_how_many_wait() {
    let mut t = per_second(10, 9);
    t.spend(4);
    t.change(bucket(20, Period::SECOND, 9));
    let delay = t.check(1).delay;
    assert!(delay <= ms(200) && delay > ms(199), "{delay}");
}

/// A list of departures, one for each unit of cost.
#[derive(Debug)]
struct Departures {
    interval: u128,
    queue: u64,
    /// In 2⁻¹⁴ ns, the documented rounding.
    leaving: Vec<u128>,
}

impl Departures {
    fn new(amount: u64, period: Period, queue: u64) -> Self {
        let span = u128::from(period.as_nanos()) * 16_384;
        Departures { interval: span.div_ceil(u128::from(amount)), queue, leaving: Vec::new() }
    }

    fn next(&self, now: u64) -> u128 {
        let now = u128::from(now) * 16_384;
        let turn = self.leaving.last().map(|last| last + self.interval);
        turn.map_or(now, |turn| turn.max(now))
    }
}

impl Model for Departures {
    /// Adds one after the other until more than the queue holds would wait.
    fn left(&mut self, now: u64) -> u64 {
        let at = u128::from(now) * 16_384;
        let mut waiting = self.leaving.iter().filter(|leaves| **leaves > at).count() as u64;
        let mut next = self.next(now);
        let mut left = 0;
        loop {
            waiting += u64::from(next > at);
            if waiting > self.queue {
                return left;
            }
            left += 1;
            next += self.interval;
        }
    }

    fn charge(&mut self, cost: u64, now: u64) {
        for _ in 0..cost {
            let next = self.next(now);
            self.leaving.push(next);
        }
    }

    fn refund(&mut self, _cost: u64, _now: u64) {}
}

fn parameters() -> impl Strategy<Value = (u64, Period, u64)> {
    let amount = prop_oneof![1..=20_u64, 1_000..=3_000_000_000_u64];
    (amount, 1_000_000..=5_000_000_000_u64, 0..=20_u64)
        .prop_map(|(amount, length, queue)| (amount, period(Nanos::new(length)), queue))
}

proptest! {
    #[test]
    fn decides_as_a_list_of_departures_does(
        (amount, period, queue) in parameters(),
        steps in steps(25, ms(300), Nanos::ZERO),
    ) {
        let mut model = Departures::new(amount, period, queue);
        run_with_model(bucket(amount, period, queue), &steps, &mut model);
    }

    #[test]
    fn departures_are_one_interval_apart_while_anyone_waits_and_never_closer(
        (amount, period, queue) in parameters(),
        steps in steps(1, ms(300), Nanos::ZERO),
    ) {
        let mut model = Departures::new(amount, period, queue);
        let steps = without_refunds(&steps);
        let admitted = run_with_model(bucket(amount, period, queue), &steps, &mut model);
        let promised: Vec<u64> = admitted.iter().map(|one| one.at + one.delay).collect();
        let exact: Vec<u64> = model
            .leaving
            .iter()
            .map(|leaves| u64::try_from(leaves.div_ceil(16_384)).unwrap())
            .collect();
        prop_assert_eq!(&promised, &exact);
        let interval = u64::try_from(model.interval / 16_384).unwrap();
        for (pair, later) in promised.windows(2).zip(admitted.iter().skip(1)) {
            // Departures are whole nanoseconds, each rounded up.
            let spacing = pair[1] - pair[0];
            prop_assert!(spacing >= interval);
            prop_assert!(later.delay == 0 || spacing <= interval + 1);
        }
    }

    #[test]
    fn late_readings_never_bring_departures_closer(
        (amount, period, queue) in parameters(),
        steps in steps(1, ms(300), ms(1)),
    ) {
        let limit = bucket(amount, period, queue);
        let mut t = Harness::new(limit);
        let mut clock = t.now().as_nanos();
        let mut last = None;
        let interval = period.as_nanos() / amount;
        for step in steps {
            clock += step.wait;
            t.set(Timestamp::from_nanos(clock - step.late));
            let decision = t.check(1);
            if decision.is_admitted() {
                let leaves = t.now().as_nanos() + decision.delay.get();
                prop_assert!(last.is_none_or(|last| leaves >= last + interval));
                last = Some(leaves);
            }
        }
    }
}
