use tidegate_algorithms::{FixedWindow, Period, SlidingLog, TokenBucket, Window};

use super::*;
use crate::fingerprint::Fingerprinter;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

fn at(millis: u64) -> Timestamp {
    START.after(Nanos::from_millis(millis))
}

fn lease_of(limit: Limit) -> KeyLease {
    let key = Key { fingerprint: Fingerprinter::seeded(1).of(1, b"key"), group: 1 };
    let terms = LeaseTerms::of(&limit).expect("can be leased");
    KeyLease::new(key, limit, terms, 0, START)
}

fn among(nodes: u64) -> GrantContext {
    GrantContext { nodes, pause_max: Nanos::from_secs(1), round_trip: Nanos::ZERO }
}

/// A bucket of 1000 that refills at 1000 a second: slices live 125 ms.
fn lease() -> KeyLease {
    lease_of(Limit::new(TokenBucket::new(1_000, Period::SECOND, 1_000)))
}

fn given(units: u64, left: u64) -> Decision {
    Decision {
        outcome: Outcome::Admitted,
        limit: 875,
        remaining: left,
        taken: units,
        retry: Retry::Now,
        reset_after: Nanos::from_millis(500),
        delay: Nanos::ZERO,
        soft: false,
    }
}

impl KeyLease {
    fn get(&mut self, units: u64, left: u64, sent: Timestamp) {
        self.grant(&given(units, left), sent, among(1));
    }

    /// So many units were used while each slice lasted, until now.
    fn used_steadily(&mut self, units: u64, now: Timestamp) {
        let passed = Nanos::from_millis(109);
        for _ in 0..100 {
            self.demand.update(Usage { units, passed, ran_dry: false });
        }
        self.estimated_at = now;
    }

    fn pays(&mut self, cost: u64, now: Timestamp) -> bool {
        self.drop_expired(now);
        matches!(self.spend(cost, now), SpendOutcome::Paid { .. })
    }
}

#[test]
fn units_end_a_little_before_their_life_does() {
    let mut lease = lease();
    lease.get(10, 500, START);
    assert!(lease.pays(1, at(119)));
    assert!(!lease.pays(1, at(120)), "125 ms, less what a clock may slip");
    assert_eq!(lease.units(), 0);
}

#[test]
fn the_older_slice_is_spent_first_and_the_newer_lives_on() {
    let mut lease = lease();
    lease.get(10, 500, START);
    lease.get(10, 490, at(60));
    assert!(lease.pays(12, at(70)));
    assert_eq!(lease.units(), 8);
    assert!(lease.pays(8, at(179)));
}

#[test]
fn units_put_back_live_no_longer_than_before() {
    let mut lease = lease();
    lease.get(2, 500, START);
    let SpendOutcome::Paid { expires, .. } = lease.spend(2, at(10)) else {
        panic!("there are two")
    };
    lease.get(5, 500, at(60));
    assert!(lease.put_back(2, expires));
    assert_eq!(lease.drop_expired(at(120)), 2, "not those that were taken later");
    assert_eq!(lease.units(), 5);
}

#[test]
fn a_clock_that_was_put_back_makes_units_worthless() {
    let mut lease = lease();
    lease.get(10, 500, at(1_000));
    assert!(!lease.pays(1, START));
}

#[test]
fn takes_more_while_slices_run_dry_and_less_when_they_last() {
    let mut lease = lease();
    let mut now = START;
    let mut asked = Vec::new();
    for _ in 0..12 {
        let units = lease.take_for_check(1, now).units;
        asked.push(units);
        lease.get(units, 800, now);
        assert!(lease.pays(units, now));
        now = now.after(Nanos::from_millis(1));
    }
    let first = asked.iter().position(|units| *units > 1).expect("it pays off");
    assert!((2..=6).contains(&first), "a few checks first: {asked:?}");
    assert!(asked[first..].is_sorted_by(|one, next| one * 3 / 2 <= *next), "{asked:?}");
    assert!(asked[11] >= 32, "{asked:?}");
    lease.get(64, 800, now);
    for _ in 0..6 {
        now = now.after(Nanos::from_secs(1));
        lease.drop_expired(now);
        let units = lease.take_for_check(1, now).units;
        lease.get(units, 800, now);
        assert!(lease.pays(1, now));
    }
    assert!(lease.size(now) <= 2, "{}", lease.size(now));
}

#[test]
fn a_rare_key_takes_its_own_cost_only() {
    let exact = TakePlan::exact(1);
    for limit in [
        Limit::new(TokenBucket::new(1_000, Period::SECOND, 1_000)),
        Limit::new(FixedWindow::new(1_000, Window::Every(Period::SECOND))),
        Limit::new(FixedWindow::new(1_000, Window::Every(Period::HOUR))),
        Limit::new(SlidingLog::new(1_000, Period::MINUTE).unwrap()),
    ] {
        let mut lease = lease_of(limit);
        for check in 0..20 {
            let now = at(check * 1_000);
            assert_eq!(lease.take_for_check(1, now), exact, "check {check}");
            lease.get(1, 900, now);
            assert!(lease.pays(1, now));
            assert!(!lease.is_wanted(now) && !lease.pays_ahead(now));
        }
    }
}

#[test]
fn a_slow_key_takes_a_slice_for_as_long_as_it_can_be_used() {
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::SECOND))));
    let mut calls = 0;
    for check in 0..100 {
        // Six in each window.
        let passed = check * 1_000 / 6;
        let now = at(passed);
        if lease.pays(1, now) {
            continue;
        }
        calls += 1;
        let units = lease.take_for_check(1, now).units;
        let reset_after = Nanos::from_millis(1_000 - passed % 1_000);
        lease.grant(&Decision { reset_after, ..given(units, 900) }, now, among(1));
        assert!(lease.pays(1, now));
    }
    assert!(calls <= 30, "{calls} calls for 100 checks in 17 windows");
}

#[test]
fn a_few_units_of_a_large_bucket_live_longer_and_many_do_not() {
    let rate = 1_000_000;
    let large = || lease_of(Limit::new(TokenBucket::new(rate, Period::SECOND, rate)));
    let granted = |units| {
        let mut lease = large();
        lease.get(units, 800_000, START);
        lease
    };
    assert!(granted(300).pays(1, at(999)), "5 ms of the rate, for sixteen nodes: 312");
    assert!(!granted(300).pays(1, at(1_000)));
    assert!(granted(400).pays(1, at(114)));
    assert!(!granted(400).pays(1, at(115)), "5 ms earlier than without the others");
    let mut both = granted(200);
    both.get(200, 800_000, at(10));
    assert_eq!(both.drop_expired(at(125)), 200, "no more than 312 together");
    assert_eq!(both.drop_expired(at(999)), 0);
}

#[test]
fn a_key_far_from_the_remote_is_leased_only_if_units_are_used_before_they_expire() {
    let plan_at = |round_trip| {
        let mut lease = lease();
        lease.used_steadily(10, START);
        lease.grant(&given(0, 800), START, GrantContext { round_trip, ..among(1) });
        lease.take_for_check(1, START)
    };
    assert!(plan_at(Nanos::from_millis(2)).units >= 8);
    assert!(plan_at(Nanos::from_millis(80)).units >= 4);
    assert_eq!(plan_at(Nanos::from_millis(110)), TakePlan::exact(1));
}

#[test]
fn the_longer_the_way_the_earlier_more_is_taken() {
    let low_mark_at = |round_trip| {
        let mut lease = lease_of(Limit::new(TokenBucket::new(1_000, Period::SECOND, 10_000)));
        lease.used_steadily(50, START);
        lease.grant(&given(50, 8_000), START, GrantContext { round_trip, ..among(1) });
        lease.low_mark
    };
    assert_eq!(low_mark_at(Nanos::ZERO), 14, "eleven in 25 ms, and a root");
    assert_eq!(low_mark_at(Nanos::from_millis(10)), 25, "twenty in 45 ms, and a root");
    assert_eq!(low_mark_at(Nanos::from_millis(90)), 103, "94 in 205 ms, and a root");
}

#[test]
fn a_refused_cost_that_is_too_large_does_not_refuse_smaller_ones() {
    let mut lease = lease();
    let too_little = Decision {
        outcome: Outcome::Refused,
        retry: Retry::After(Nanos::from_millis(7)),
        ..given(0, 3)
    };
    lease.grant(&too_little, START, among(1));
    assert_eq!(lease.spend(1, at(1)), SpendOutcome::Short, "the remote has three");
}

#[test]
fn while_a_call_is_in_flight_others_take_only_what_they_need() {
    let mut lease = lease();
    lease.used_steadily(50, START);
    let asked = lease.take_for_check(1, at(1)).units;
    assert!((50..60).contains(&asked), "{asked}");
    assert_eq!(lease.take_for_check(3, at(2)).units, 3);
    let again = lease.take_for_check(1, at(202)).units;
    assert!((20..asked).contains(&again), "that answer does not come any more: {again}");
}

#[test]
fn near_the_limit_slices_get_small_for_the_sake_of_others() {
    let mut lease = lease();
    lease.used_steadily(100, START);
    lease.grant(&given(10, 40), START, among(4));
    assert_eq!(lease.size(START), 5);
    lease.grant(&given(10, 0), START, among(4));
    assert_eq!(lease.size(START), 1);
}

#[test]
fn an_empty_remote_is_not_called_again_before_it_has_units() {
    let mut lease = lease();
    let nothing = Decision {
        outcome: Outcome::Refused,
        retry: Retry::After(Nanos::from_millis(7)),
        ..given(0, 0)
    };
    lease.grant(&nothing, START, among(1));
    let SpendOutcome::Refused(decision) = lease.spend(1, at(6)) else {
        panic!("known to be empty")
    };
    assert_eq!(decision.retry, Retry::After(Nanos::from_millis(1)), "one unit at this rate");
    assert_eq!(lease.spend(1, at(7)), SpendOutcome::Short);
    let SpendOutcome::Refused(decision) = lease.spend(876, at(6)) else {
        panic!("known to be empty")
    };
    assert_eq!(decision.retry, Retry::Never);
}

fn return_options(all: bool) -> ReturnOptions {
    ReturnOptions { all, within: Nanos::from_millis(10) }
}

#[test]
fn a_bucket_gets_back_what_has_not_refilled_meanwhile() {
    let mut lease = lease();
    lease.get(100, 500, START);
    assert_eq!(lease.take_returnable(at(60), return_options(false)), (0, 0), "in use");
    assert_eq!(
        lease.take_returnable(at(65), return_options(false)),
        (25, 75),
        "65 ms old, 10 on the way"
    );
    assert_eq!(lease.units(), 0);
}

#[test]
fn a_busy_key_that_is_used_no_more_is_given_back_sooner() {
    let mut lease = lease();
    lease.used_steadily(50, START);
    lease.get(100, 500, START);
    assert_eq!(lease.take_returnable(at(30), return_options(false)), (0, 0), "in use");
    assert_eq!(
        lease.take_returnable(at(35), return_options(false)),
        (55, 45),
        "35 ms old, 10 on the way"
    );
}

#[test]
fn what_dies_before_it_is_used_is_given_back_and_the_rest_is_kept_where_little_remains() {
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::SECOND))));
    lease.used_steadily(2, START);
    lease.get(20, 400, START);
    assert!(lease.pays(1, at(100)));
    let (back, lost) = lease.take_returnable(at(100), return_options(false));
    assert!((11..15).contains(&back), "about five are used in 250 ms: {back}");
    assert_eq!((lease.units(), lost), (19 - back, 0));
}

#[test]
fn units_whose_window_ends_soon_are_not_given_back_while_enough_remains() {
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::SECOND))));
    lease.get(20, 500, START);
    assert_eq!(lease.take_returnable(at(400), return_options(false)), (0, 0));
    assert_eq!(lease.units(), 20);
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::MINUTE))));
    let long = Decision { reset_after: Nanos::from_secs(30), ..given(20, 500) };
    lease.grant(&long, START, among(1));
    assert_eq!(lease.take_returnable(at(501), return_options(false)), (20, 0), "lost for long");
}

#[test]
fn more_is_taken_while_enough_is_left_for_the_way() {
    let mut lease = lease();
    lease.used_steadily(50, START);
    lease.get(50, 800, START);
    let left = (1..=50).rev().find(|_| {
        let SpendOutcome::Paid { low, .. } = lease.spend(1, at(1)) else {
            panic!("there are enough")
        };
        low
    });
    assert!(left.is_some_and(|left| (12..20).contains(&left)), "eleven in 25 ms: {left:?}");
}

#[test]
fn a_renewal_replaces_units_that_expire_before_the_next_one() {
    let mut lease = lease();
    lease.used_steadily(10, START);
    lease.get(10, 800, START);
    assert!(lease.pays(4, at(96)));
    assert_eq!(lease.check_at(), Some(at(95)));
    assert!(lease.is_wanted(at(96)));
    let asked = lease.take_ahead(at(96));
    assert!(asked >= 9, "{asked}: six are left, for less than 25 ms");
    lease.get(asked, 800, at(96));
    assert_eq!(lease.check_at(), Some(at(191)));
    assert!(!lease.is_wanted(at(191)), "not used since");
}

#[test]
fn a_renewal_that_needs_nothing_does_not_keep_the_next_one_from_asking() {
    let mut lease = lease();
    lease.get(10, 800, START);
    lease.marked = true;
    assert_eq!(lease.take_ahead(at(5)), 0);
    assert!(!lease.marked);
    assert_eq!(lease.take_for_check(12, at(6)).units, 2);
}

#[test]
fn a_window_gets_everything_back_while_it_lasts() {
    let minute = || lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::MINUTE))));
    let mut lease = minute();
    lease.get(100, 500, START);
    assert_eq!(lease.take_returnable(at(400), return_options(true)), (100, 0));
    lease.get(100, 500, START);
    assert_eq!(
        lease.take_returnable(at(490), return_options(true)),
        (0, 0),
        "it could arrive in the next"
    );
    assert!(!lease.pays(1, at(495)), "the window ends");
}

#[test]
fn units_of_a_window_live_on_while_they_are_renewed() {
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::MINUTE))));
    let resets = |millis| Decision { reset_after: Nanos::from_millis(millis), ..given(1, 499) };
    lease.grant(&Decision { taken: 10, ..resets(30_000) }, START, among(1));
    lease.grant(&resets(29_101), at(900), among(1));
    assert!(lease.pays(1, at(1_200)));
    assert_eq!(lease.units(), 10, "none died at 995");
    lease.grant(&resets(88_799), at(1_200), among(1));
    assert_eq!(
        (lease.drop_expired(at(1_900)), lease.units()),
        (10, 1),
        "another window is not renewed"
    );
}

#[test]
fn units_of_a_short_window_live_as_long_as_it_does() {
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::SECOND))));
    let begun = Decision { reset_after: Nanos::from_millis(900), ..given(3, 900) };
    lease.grant(&begun, START, among(1));
    assert!(lease.pays(1, at(894)));
    assert!(!lease.pays(1, at(895)), "the window ends, less what a clock may slip");
}

#[test]
fn a_slice_lasts_until_its_window_ends_where_enough_is_left_for_others() {
    let limit = Limit::new(FixedWindow::new(10_000, Window::Every(Period::SECOND)));
    // A hundred a second, in a window that ends in half a second.
    for (left, expected) in [(8_000, 48..=60), (2_000, 20..=35)] {
        let mut lease = lease_of(limit.clone());
        lease.get(0, left, START);
        lease.used_steadily(11, START);
        let units = lease.take_ahead(START);
        assert!(expected.contains(&units), "{units} with {left} left");
    }
}

#[test]
fn at_the_end_of_a_window_little_is_taken_and_the_next_one_is_waited_for() {
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::MINUTE))));
    lease.used_steadily(50, START);
    let resets = |millis| Decision { reset_after: Nanos::from_millis(millis), ..given(50, 500) };
    lease.grant(&resets(1_500), START, among(1));
    assert_eq!(lease.check_at(), Some(at(970)));
    lease.grant(&Decision { taken: 9, ..resets(20) }, at(1_480), among(1));
    lease.drop_expired(at(1_480));
    assert_eq!(lease.check_at(), Some(at(1_505)), "the window ends at 1500");
    assert!(lease.size(at(1_485)) < 12, "{}", lease.size(at(1_485)));
}

#[test]
fn a_sliding_log_gets_nothing_back() {
    let mut lease = lease_of(Limit::new(SlidingLog::new(1_000, Period::MINUTE).unwrap()));
    lease.get(100, 500, START);
    assert_eq!(lease.take_returnable(at(900), return_options(true)), (0, 0));
    assert!(lease.pays(100, at(994)));
}
