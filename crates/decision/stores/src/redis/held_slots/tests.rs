use std::time::Duration;

use tidegate_algorithms::{Concurrency, Tenure};

use super::*;
use crate::batch::{Charge, Verb};
use crate::fingerprint::Fingerprinter;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
/// How often these tests call `due`, in milliseconds.
const BEAT: u64 = 100;

fn after(millis: u64) -> Timestamp {
    START.after(Nanos::from_millis(millis))
}

fn seconds(seconds: u64) -> Period {
    Period::new(Duration::from_secs(seconds)).expect("in range")
}

fn limit(time_to_live: u64) -> Limit {
    Limit::new(Concurrency::new(3, seconds(time_to_live)).expect("small"))
}

fn check(limit: &Limit, lease: Option<u64>) -> Check<'_> {
    let key = Key { fingerprint: Fingerprinter::shared().of(1, b"a"), group: 1 };
    Check { holder: Holder(7), tenure: lease.map(seconds).into(), ..Check::new(key, limit, 1) }
}

/// One slot of a minute that is held since the start, on a lease of nine seconds.
fn holding() -> HeldSlots {
    let (limit, slots) = (limit(60), HeldSlots::default());
    let checks = [check(&limit, Some(9))];
    slots.hold(&Batch::new(Verb::Refund, Charge::AllOrNothing, START, &checks));
    slots
}

/// The instants at which slots are due from one to another, in milliseconds;
/// `renews` says which tries succeed.
fn tries(slots: &HeldSlots, span: [u64; 2], renews: impl Fn(usize) -> bool) -> Vec<u64> {
    let mut tries = Vec::new();
    for millis in (span[0]..=span[1]).step_by(usize::try_from(BEAT).expect("small")) {
        for held in slots.due(after(millis)) {
            if renews(tries.len()) {
                slots.renewed(&held, after(millis));
            }
            tries.push(millis);
        }
    }
    tries
}

#[test]
fn slots_are_due_at_a_third_of_their_lease_until_they_are_given_back() {
    let slots = holding();
    assert_eq!(tries(&slots, [0, 10_000], |_| true), [3_000, 6_000, 9_000]);
    let limit = limit(60);
    let checks = [check(&limit, Some(9))];
    slots.release(&Batch::new(Verb::Refund, Charge::AllOrNothing, after(10_000), &checks));
    assert_eq!(tries(&slots, [10_100, 30_000], |_| true), [] as [u64; 0]);
    assert_eq!(slots.counts(), HeldCounts { held: 0, renewed: 3, lost: 0 });
}

#[test]
fn renewals_that_fail_are_tried_again_while_the_lease_lasts() {
    let slots = holding();
    let seen = tries(&slots, [0, 9_000], |tried| tried == 5);
    assert_eq!(seen, [3_000, 4_000, 5_000, 6_000, 7_000, 8_000], "five may fail");
    assert_eq!(tries(&slots, [9_000, 11_000], |_| true), [11_000], "a third after the last");
}

#[test]
fn a_slot_without_a_lease_or_with_a_longer_one_goes_by_its_time_to_live() {
    let limit = limit(18);
    for lease in [None, Some(18), Some(600)] {
        let slots = HeldSlots::default();
        let checks = [check(&limit, lease)];
        slots.hold(&Batch::new(Verb::Refund, Charge::AllOrNothing, START, &checks));
        assert_eq!(tries(&slots, [0, 12_000], |_| true), [6_000, 12_000], "{lease:?}");
    }
}

#[test]
fn a_renewal_asks_for_the_lease_and_leaves_time_for_another() {
    let slots = holding();
    let held = slots.due(after(3_000)).remove(0);
    assert_eq!(held.check().tenure.lease(), Some(seconds(9)));
    assert_eq!(held.renew_within(), RENEW_WITHIN);
    let short = Period::new(Duration::from_millis(300)).expect("in range");
    let limit = limit(60);
    let held =
        HolderSlots::new(&Check { tenure: Tenure::Lease(short), ..check(&limit, None) }, START);
    assert_eq!(held.renew_within(), Duration::from_millis(100));
}

#[test]
fn slots_that_were_leaked_are_not_renewed_after_a_quarter_of_an_hour() {
    let slots = holding();
    let seen = tries(&slots, [0, 1_000_000], |_| true);
    assert_eq!(seen.len(), 301);
    assert_eq!(seen.last(), Some(&903_000));
    assert_eq!(slots.counts().held, 1, "it can still be given back");
    assert!(slots.due(START).is_empty(), "a clock that is set back does not renew it");
}

#[test]
fn a_clock_that_jumps_neither_keeps_slots_from_being_renewed_nor_ages_them() {
    let slots = holding();
    let hour = 3_600_000;
    let back = Timestamp::from_nanos(START.as_nanos() - 3_600_000_000_000);
    for now in [after(hour), START, back, after(hour)] {
        let due = slots.due(now);
        assert_eq!(due.len(), 1, "at {now:?}");
        slots.renewed(&due[0], now);
    }
}

#[test]
fn a_clock_that_is_set_back_by_little_delays_no_renewal_beyond_the_lease() {
    let slots = holding();
    // Tried at eight seconds, not renewed, and the clock set back by five.
    assert_eq!(tries(&slots, [8_000, 8_000], |_| false), [8_000]);
    assert_eq!(tries(&slots, [3_000, 3_000], |_| false), [3_000]);
    assert_eq!(tries(&slots, [3_100, 4_000], |_| false), [4_000]);
}

#[test]
fn slots_that_were_lost_are_not_renewed_any_more() {
    let slots = holding();
    let held = slots.due(after(3_000)).remove(0);
    assert!(slots.is_held(&held));
    slots.lost(&held);
    assert!(!slots.is_held(&held) && slots.due(after(9_000)).is_empty());
    assert_eq!(slots.counts(), HeldCounts { held: 0, renewed: 0, lost: 1 });
}
