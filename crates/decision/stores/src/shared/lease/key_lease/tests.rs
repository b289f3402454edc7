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
    KeyLease::new(key, limit, terms, 0)
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
        self.grant(&given(units, left), sent, 1, Nanos::from_secs(1));
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
    for _ in 0..6 {
        let units = lease.units_to_take(1, now);
        asked.push(units);
        lease.get(units, 800, now);
        assert!(lease.pays(units, now));
        now = now.after(Nanos::from_millis(1));
    }
    assert!(asked.is_sorted_by(|one, next| one * 3 / 2 < *next), "{asked:?}");
    assert!(asked[5] >= 32, "{asked:?}");
    lease.get(64, 800, now);
    for _ in 0..6 {
        now = now.after(Nanos::from_secs(1));
        lease.drop_expired(now);
        let units = lease.units_to_take(1, now);
        lease.get(units, 800, now);
        assert!(lease.pays(1, now));
    }
    assert!(lease.size(now) <= 2, "{}", lease.size(now));
}

#[test]
fn while_a_call_is_in_flight_others_take_only_what_they_need() {
    let mut lease = lease();
    lease.used_steadily(50, START);
    let asked = lease.units_to_take(1, at(1));
    assert!((50..60).contains(&asked), "{asked}");
    assert_eq!(lease.units_to_take(3, at(2)), 3);
    let again = lease.units_to_take(1, at(202));
    assert!((20..asked).contains(&again), "that answer does not come any more: {again}");
}

#[test]
fn near_the_limit_slices_get_small_for_the_sake_of_others() {
    let mut lease = lease();
    lease.used_steadily(100, START);
    lease.grant(&given(10, 40), START, 4, Nanos::from_secs(1));
    assert_eq!(lease.size(START), 5);
    lease.grant(&given(10, 0), START, 4, Nanos::from_secs(1));
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
    lease.grant(&nothing, START, 1, Nanos::from_secs(1));
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
fn what_dies_before_it_is_used_is_given_back_and_the_rest_is_kept() {
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::SECOND))));
    lease.used_steadily(10, START);
    lease.get(20, 500, START);
    assert!(lease.pays(1, at(100)));
    let (back, lost) = lease.take_returnable(at(100), return_options(false));
    assert!((15..18).contains(&back), "about two are used in 20 ms: {back}");
    assert_eq!((lease.units(), lost), (19 - back, 0));
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
    let asked = lease.units_to_take(0, at(96));
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
    assert_eq!(lease.units_to_take(0, at(5)), 0);
    assert!(!lease.marked);
    assert_eq!(lease.units_to_take(12, at(6)), 2);
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
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::SECOND))));
    lease.get(10, 500, START);
    let later = Decision { reset_after: Nanos::from_millis(401), ..given(1, 499) };
    lease.grant(&later, at(100), 1, Nanos::from_secs(1));
    assert!(lease.pays(1, at(200)));
    assert_eq!(lease.units(), 10, "none died at 120");
    let next = Decision { reset_after: Nanos::from_millis(1_299), ..given(1, 999) };
    lease.grant(&next, at(200), 1, Nanos::from_secs(1));
    assert_eq!(
        (lease.drop_expired(at(220)), lease.units()),
        (10, 1),
        "another window is not renewed"
    );
}

#[test]
fn at_the_end_of_a_window_little_is_taken_and_the_next_one_is_waited_for() {
    let mut lease = lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::SECOND))));
    lease.used_steadily(50, START);
    lease.get(50, 500, START);
    assert_eq!(lease.check_at(), Some(at(95)));
    let ending = Decision { reset_after: Nanos::from_millis(20), ..given(9, 450) };
    lease.grant(&ending, at(480), 1, Nanos::from_secs(1));
    lease.drop_expired(at(480));
    assert_eq!(lease.check_at(), Some(at(505)), "the window ends at 500");
    assert!(lease.size(at(485)) < 12, "{}", lease.size(at(485)));
}

#[test]
fn a_sliding_log_gets_nothing_back() {
    let mut lease = lease_of(Limit::new(SlidingLog::new(1_000, Period::MINUTE).unwrap()));
    lease.get(100, 500, START);
    assert_eq!(lease.take_returnable(at(900), return_options(true)), (0, 0));
    assert!(lease.pays(100, at(994)));
}
