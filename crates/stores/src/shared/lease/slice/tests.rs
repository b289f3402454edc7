use tidegate_algorithms::{FixedWindow, Period, SlidingLog, TokenBucket, Window};

use super::*;
use crate::fingerprint::Fingerprinter;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

fn at(millis: u64) -> Timestamp {
    START.after(Nanos::from_millis(millis))
}

fn lease_of(limit: Limit) -> Lease {
    let key = Key { fingerprint: Fingerprinter::seeded(1).of(1, b"key"), group: 1 };
    let terms = Terms::of(&limit).expect("can be leased");
    Lease::new(key, limit, terms, 0)
}

/// A bucket of 1000 that refills at 1000 a second: slices live 125 ms.
fn lease() -> Lease {
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

impl Lease {
    fn get(&mut self, units: u64, left: u64, sent: Timestamp) {
        self.grant(&given(units, left), sent, 1, Nanos::from_secs(1));
    }

    fn pays(&mut self, cost: u64, now: Timestamp) -> bool {
        self.bury(now);
        matches!(self.spend(cost, now), Spend::Paid { .. })
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
    assert_eq!((lease.older.units, lease.newer.units), (0, 8));
    assert!(lease.pays(8, at(179)));
}

#[test]
fn units_put_back_live_no_longer_than_before() {
    let mut lease = lease();
    lease.get(2, 500, START);
    let Spend::Paid { dies, .. } = lease.spend(2, at(10)) else { panic!("there are two") };
    lease.get(5, 500, at(60));
    assert!(!lease.put_back(2, dies), "the slice is gone, and the next one dies later");
    let Spend::Paid { dies, .. } = lease.spend(3, at(61)) else { panic!("there are five") };
    assert!(lease.put_back(3, dies));
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
        let units = lease.ask(1, now);
        asked.push(units);
        lease.get(units, 800, now);
        assert!(lease.pays(units, now));
        now = now.after(Nanos::from_millis(1));
    }
    assert_eq!(asked, [1, 2, 4, 8, 16, 32]);
    lease.get(64, 800, now);
    for _ in 0..6 {
        now = now.after(Nanos::from_secs(1));
        lease.bury(now);
        let units = lease.ask(1, now);
        lease.get(units, 800, now);
        assert!(lease.pays(1, now));
    }
    assert!(lease.size <= 2, "{}", lease.size);
}

#[test]
fn while_somebody_asks_others_ask_only_for_what_they_need() {
    let mut lease = lease();
    lease.size = 50;
    assert_eq!(lease.ask(1, at(500)), 25, "half of what it was, since nothing was used");
    assert_eq!(lease.ask(3, at(501)), 3);
    assert_eq!(lease.ask(1, at(701)), 12, "that answer does not come any more");
}

#[test]
fn near_the_limit_slices_get_small_for_the_sake_of_others() {
    let mut lease = lease();
    lease.size = 100;
    lease.grant(&given(10, 40), START, 4, Nanos::from_secs(1));
    assert_eq!(lease.size, 5);
    lease.grant(&given(10, 0), START, 4, Nanos::from_secs(1));
    assert_eq!(lease.size, 1);
}

#[test]
fn an_empty_remote_is_not_asked_again_before_it_can_give() {
    let mut lease = lease();
    let nothing = Decision {
        outcome: Outcome::Refused,
        retry: Retry::After(Nanos::from_millis(7)),
        ..given(0, 0)
    };
    lease.grant(&nothing, START, 1, Nanos::from_secs(1));
    let Spend::Refused(told) = lease.spend(1, at(6)) else { panic!("known to be empty") };
    assert_eq!(told.retry, Retry::After(Nanos::from_millis(1)), "one unit at this rate");
    assert_eq!(lease.spend(1, at(7)), Spend::Short);
    let Spend::Refused(told) = lease.spend(876, at(6)) else { panic!("known to be empty") };
    assert_eq!(told.retry, Retry::Never);
}

fn leaving(all: bool) -> Leaving {
    Leaving { all, soon: Nanos::from_millis(10), within: Nanos::from_millis(10) }
}

#[test]
fn a_bucket_gets_back_what_has_not_refilled_meanwhile() {
    let mut lease = lease();
    lease.get(100, 500, START);
    assert_eq!(lease.give_back(at(20), leaving(false)), (0, 0), "in use");
    assert_eq!(lease.give_back(at(40), leaving(false)), (50, 50), "40 ms old, 10 on the way");
    assert_eq!(lease.units(), 0);
}

#[test]
fn a_window_gets_everything_back_while_it_lasts() {
    let minute = || lease_of(Limit::new(FixedWindow::new(1_000, Window::Every(Period::MINUTE))));
    let mut lease = minute();
    lease.get(100, 500, START);
    assert_eq!(lease.give_back(at(400), leaving(true)), (100, 0));
    lease.get(100, 500, START);
    assert_eq!(lease.give_back(at(490), leaving(true)), (0, 0), "it could arrive in the next");
    assert!(!lease.pays(1, at(495)), "the window ends");
}

#[test]
fn a_sliding_log_gets_nothing_back() {
    let mut lease = lease_of(Limit::new(SlidingLog::new(1_000, Period::MINUTE).unwrap()));
    lease.get(100, 500, START);
    assert_eq!(lease.give_back(at(900), leaving(true)), (0, 0));
    assert!(lease.pays(100, at(994)));
}
