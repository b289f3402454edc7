use proptest::prelude::*;

use super::*;
use crate::limit::Limit;
use crate::tests::harness::{Harness, START, YEAR, ms, secs};

fn slots(limit: u64, time_to_live: Period) -> Limit {
    Limit::new(Concurrency::new(limit, time_to_live).unwrap())
}

fn for_a_minute(limit: u64) -> Harness {
    Harness::new(slots(limit, Period::MINUTE))
}

#[test]
fn admits_as_many_as_there_are_slots() {
    let mut t = for_a_minute(3);
    for holder in 0..3 {
        assert!(t.hold(holder, 1).is_admitted());
    }
    let refused = t.hold(3, 1);
    assert_eq!(refused.retry, Retry::After(secs(60)));
    assert_eq!((refused.limit, refused.remaining), (3, 0));
}

#[test]
fn a_slot_given_back_can_be_held_again() {
    let mut t = for_a_minute(1);
    t.hold(1, 1);
    assert_eq!(t.give_back(1, 1).remaining, 1);
    assert!(t.hold(2, 1).is_admitted());
}

#[test]
fn giving_back_twice_frees_no_other_holders_slot() {
    let mut t = for_a_minute(2);
    t.hold(1, 1);
    t.hold(2, 1);
    assert_eq!(t.give_back(1, 1).remaining, 1);
    assert_eq!(t.give_back(1, 1).remaining, 1);
    assert_eq!(t.give_back(9, u64::MAX).remaining, 1);
    assert_eq!(t.give_back(2, u64::MAX).remaining, 2);
}

#[test]
fn a_holder_may_hold_and_give_back_in_parts() {
    let mut t = for_a_minute(5);
    t.hold(1, 2);
    t.advance(secs(1));
    t.hold(1, 2);
    assert_eq!(t.give_back(1, 3).remaining, 4);
    assert_eq!(t.state.idle_at(), START.after(secs(61)));
    assert_eq!(t.give_back(1, 1).remaining, 5);
    assert_eq!(t.state.idle_at(), Timestamp::EPOCH);
}

#[test]
fn a_holder_that_takes_more_keeps_all_of_it_from_then() {
    let mut t = for_a_minute(3);
    assert!(t.hold(1, 1).is_admitted());
    assert!(t.hold(2, 1).is_admitted());
    t.advance(secs(40));
    assert!(t.hold(1, 1).is_admitted());
    t.advance(secs(40));
    assert_eq!(t.give_back(1, 2).remaining, 3);
}

#[test]
fn callers_without_a_name_do_not_keep_each_others_slots() {
    let mut t = for_a_minute(2);
    assert!(t.hold(0, 1).is_admitted());
    t.advance(secs(40));
    assert!(t.hold(0, 1).is_admitted());
    t.advance(secs(20));
    assert!(t.hold(0, 1).is_admitted());
}

#[test]
fn slots_of_a_crashed_holder_come_back_when_their_time_is_over() {
    let mut t = for_a_minute(2);
    t.hold(1, 1);
    t.advance(secs(20));
    t.hold(2, 1);
    let refused = t.hold(3, 1);
    assert_eq!(refused.retry, Retry::After(secs(40)));
    t.assert_honest(1, &refused);
    assert_eq!(t.hold(3, 2).retry, Retry::After(secs(60)));
    t.advance(secs(40));
    assert!(t.hold(3, 1).is_admitted());
    assert!(!t.hold(4, 1).is_admitted());
    assert_eq!(t.give_back(1, 1).remaining, 0, "the slot is another's now");
}

#[test]
fn a_cost_above_the_slots_never_fits() {
    let mut t = for_a_minute(3);
    assert_eq!(t.check(4).retry, Retry::Never);
    assert_eq!(t.check(u64::MAX).retry, Retry::Never);
    assert_eq!(t.left(), 3);
}

#[test]
fn a_cost_of_zero_is_always_admitted_and_holds_nothing() {
    let mut t = for_a_minute(0);
    assert!(t.admits(0));
    assert_eq!(t.check(1).retry, Retry::Never);
    let mut t = for_a_minute(1);
    t.spend(0);
    assert_eq!(t.state.heap_bytes(), 0);
    t.spend(1);
    assert!(t.admits(0));
}

#[test]
fn a_limit_beyond_the_largest_is_an_error() {
    assert!(Concurrency::new(CONCURRENCY_MAX, Period::MAX).is_ok());
    assert_eq!(
        Concurrency::new(u64::MAX, Period::MAX),
        Err(ParameterError::ConcurrencyTooLarge { limit: u64::MAX })
    );
}

#[test]
fn a_clock_that_stands_still_frees_nothing() {
    let mut t = for_a_minute(3);
    assert_eq!(t.burst(100), 3);
    t.set(Timestamp::MAX);
    assert_eq!(t.burst(100), 3);
}

#[test]
fn a_step_back_keeps_slots_for_one_time_to_live_at_most() {
    for back in [ms(1), secs(30), YEAR] {
        let mut t = for_a_minute(2);
        t.spend(1);
        t.advance(secs(1));
        t.spend(1);
        t.step_back(back);
        let refused = t.check(1);
        t.assert_honest(1, &refused);
        assert!(!refused.is_admitted());
        t.advance(secs(60));
        assert_eq!(t.left(), 2);
    }
}

#[test]
fn a_step_forward_expires_every_slot() {
    let mut t = for_a_minute(2);
    t.spend(2);
    t.advance(YEAR);
    assert_eq!(t.left(), 2);
}

#[test]
fn peek_take_and_reset_do_what_they_say() {
    let mut t = for_a_minute(5);
    t.spend(2);
    let seen = t.peek(3);
    assert_eq!((seen.is_admitted(), seen.remaining, seen.taken), (true, 3, 0));
    assert_eq!(t.take(9).taken, 3);
    assert!(!t.take(9).is_admitted());
    t.reset();
    assert_eq!(t.left(), 5);
}

#[test]
fn more_slots_give_room_at_once_and_fewer_let_holders_finish() {
    let mut t = for_a_minute(2);
    t.hold(1, 1);
    t.hold(2, 1);
    t.change(slots(4, Period::MINUTE));
    assert_eq!(t.left(), 2);
    t.change(slots(1, Period::MINUTE));
    assert_eq!(t.left(), 0);
    assert_eq!(t.give_back(1, 1).remaining, 0);
    assert_eq!(t.give_back(2, 1).remaining, 1);
}

#[test]
fn a_shorter_time_to_live_holds_for_slots_already_held() {
    let mut t = Harness::new(slots(1, Period::HOUR));
    t.spend(1);
    t.change(slots(1, Period::SECOND));
    assert_eq!(t.check(1).retry, Retry::After(secs(1)));
    t.advance(secs(1));
    assert!(t.admits(1));
}

#[test]
fn a_slot_that_is_held_stays_taken_until_it_is_given_back() {
    let mut t = for_a_minute(3);
    t.hold_until_released(7, 1);
    t.hold_until_released(3, 1);
    assert_eq!(t.hold(5, 1).reset_after, secs(60));
    assert_eq!(t.state.idle_at(), Timestamp::MAX);
    assert_eq!(t.hold(6, 1).retry, Retry::After(secs(60)));
    t.advance(secs(180));
    assert_eq!(t.left(), 1, "the anonymous slot has expired");
    assert_eq!(t.give_back(0, 3).remaining, 1, "somebody without a name has none of them");
    assert_eq!(t.give_back(7, 1).remaining, 2);
    assert_eq!(t.give_back(7, 1).remaining, 2);
    assert_eq!(t.give_back(3, 1).remaining, 3);
    assert_eq!(t.state.idle_at(), Timestamp::EPOCH);
}

#[test]
fn slots_that_are_held_and_slots_that_expire_keep_to_their_own_ways() {
    let mut t = for_a_minute(4);
    t.hold(1, 1);
    t.hold_until_released(2, 1);
    t.advance(secs(20));
    t.hold(3, 1);
    // A step back shortens what would expire too late, and nothing else.
    t.step_back(secs(70));
    assert_eq!(t.left(), 1);
    t.advance(secs(60));
    assert_eq!(t.left(), 3);
    t.hold_until_released(2, 1);
    assert_eq!(t.left(), 2, "a holder that takes more holds all of it");
    t.advance(secs(600));
    assert_eq!(t.left(), 2);
}

#[test]
fn anonymous_slots_and_slots_never_taken_cannot_be_held() {
    let mut t = for_a_minute(2);
    t.hold_until_released(0, 1);
    t.state.release(Holder(9), 1);
    assert_eq!(t.left(), 1);
    t.advance(secs(60));
    assert_eq!(t.left(), 2);
}

fn seconds(seconds: u64) -> Period {
    crate::tests::harness::period(secs(seconds))
}

#[test]
fn a_slot_on_a_lease_comes_back_when_the_lease_is_over_and_others_stay() {
    let mut t = for_a_minute(2);
    assert_eq!(t.hold(1, 1).reset_after, secs(60));
    assert_eq!(t.hold_on_lease(2, 1, seconds(10)).reset_after, secs(60), "as the other one has it");
    assert_eq!(t.state.idle_at(), START.after(secs(60)));
    let refused = t.hold(3, 1);
    assert_eq!(refused.retry, Retry::After(secs(10)));
    t.assert_honest(1, &refused);
    t.advance(secs(10));
    assert_eq!(t.left(), 1);
    t.advance(secs(50));
    assert_eq!(t.left(), 2);
}

#[test]
fn a_lease_is_never_longer_than_the_time_to_live() {
    for lease in [Period::MINUTE, Period::HOUR] {
        let mut t = for_a_minute(1);
        assert_eq!(t.hold_on_lease(1, 1, lease).reset_after, secs(60));
        assert_eq!(t.hold(2, 1).retry, Retry::After(secs(60)));
    }
}

#[test]
fn a_holder_that_takes_more_on_a_lease_loses_nothing_of_what_it_has() {
    let mut t = for_a_minute(3);
    t.hold(1, 1);
    assert!(t.hold_on_lease(1, 1, seconds(10)).is_admitted());
    t.advance(secs(59));
    assert_eq!(t.left(), 1);
    t.advance(secs(1));
    assert_eq!(t.left(), 3);
    t.hold_on_lease(2, 1, seconds(10));
    assert_eq!(t.hold(2, 1).reset_after, secs(60));
    t.advance(secs(59));
    assert_eq!(t.left(), 1, "all of a holder's slots live as long as the last of them");
}

#[test]
fn a_step_back_cuts_no_lease_that_the_time_to_live_allows() {
    let mut t = for_a_minute(2);
    t.hold(1, 1);
    t.hold_on_lease(2, 1, seconds(10));
    t.step_back(secs(30));
    assert_eq!(t.hold(3, 1).retry, Retry::After(secs(40)));
    assert_eq!(t.hold(3, 2).retry, Retry::After(secs(60)));
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    wait: u64,
    late: u64,
    holder: u64,
    cost: u64,
    gives_back: bool,
    /// In percent of the time to live.
    lease: Option<u64>,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let wait = prop_oneof![Just(0), 0..=1_000_000_000_u64];
    let late = prop_oneof![4 => Just(0), 1 => 0..=3_000_000_000_u64];
    let lease = prop_oneof![Just(None), Just(Some(100)), (1..=200_u64).prop_map(Some)];
    let turn = (wait, late, 0..4_u64, 0..=6_u64, any::<bool>(), lease).prop_map(
        |(wait, late, holder, cost, gives_back, lease)| Turn {
            wait,
            late,
            holder,
            cost,
            gives_back,
            lease,
        },
    );
    proptest::collection::vec(turn, 1..80)
}

proptest! {
    /// The model: a plain list, one row for each slot held.
    #[test]
    fn decides_as_a_list_of_held_slots_does_and_never_exceeds_the_limit(
        limit in 0..=8_u64,
        time_to_live in 1_000_000..=4_000_000_000_u64,
        turns in turns(),
    ) {
        let lives = crate::tests::harness::period(Nanos::new(time_to_live));
        let mut t = Harness::new(slots(limit, lives));
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut clock = START.as_nanos();
        for turn in turns {
            clock += turn.wait;
            let now = clock - turn.late;
            t.set(Timestamp::from_nanos(now));
            for (_, expires) in &mut held {
                *expires = (*expires).min(now + time_to_live);
            }
            held.retain(|(_, expires)| *expires > now);
            held.sort_by_key(|(holder, expires)| (*expires, *holder));
            let left = limit - held.len() as u64;
            if turn.gives_back {
                for _ in 0..turn.cost {
                    held.sort_by_key(|(holder, expires)| (*expires, *holder));
                    if let Some(first) = held.iter().position(|(holder, _)| turn.holder == 0 || *holder == turn.holder) {
                        held.remove(first);
                    }
                }
                let after = t.give_back(turn.holder, turn.cost);
                prop_assert_eq!(after.remaining, limit - held.len() as u64);
                continue;
            }
            let lease = turn.lease.map(|percent| (time_to_live * percent / 100).max(1_000_000));
            let decision = match lease {
                Some(lease) => {
                    t.hold_on_lease(turn.holder, turn.cost, crate::tests::harness::period(Nanos::new(lease)))
                }
                None => t.hold(turn.holder, turn.cost),
            };
            prop_assert_eq!(decision.is_admitted(), turn.cost <= left);
            if decision.is_admitted() {
                let mut expires = now + lease.map_or(time_to_live, |lease| lease.min(time_to_live));
                if turn.holder > 0 && turn.cost > 0 {
                    let own = || held.iter().filter(|(holder, _)| *holder == turn.holder);
                    expires = own().map(|(_, own)| *own).fold(expires, u64::max);
                    let own = held.iter_mut().filter(|(holder, _)| *holder == turn.holder);
                    own.for_each(|(_, own)| *own = expires);
                }
                held.extend((0..turn.cost).map(|_| (turn.holder, expires)));
                prop_assert!(held.len() as u64 <= limit);
                let last = held.iter().map(|(_, expires)| expires - now).max().unwrap_or(0);
                prop_assert_eq!(decision.reset_after, Nanos::new(last));
            } else {
                t.assert_honest(turn.cost, &decision);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take { holder: u64, cost: u64, holds: bool },
    GiveBack { holder: u64, cost: u64 },
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let take = (0..40_u64, 1..=3_u64, any::<bool>());
    let take = take.prop_map(|(holder, cost, holds)| Step::Take { holder, cost, holds });
    let back = (0..40_u64, 1..=3_u64).prop_map(|(holder, cost)| Step::GiveBack { holder, cost });
    let wait = (0..=30_u64).prop_map(Step::Wait);
    proptest::collection::vec(prop_oneof![4 => take, 3 => back, 1 => wait], 1..200)
}

proptest! {
    /// The model: one row for each slot, its holder and the second in which it expires; none for
    /// slots that are held.
    #[test]
    fn the_free_slots_are_those_without_a_holder_whichever_expire(steps in steps()) {
        const LIMIT: u64 = 60;
        let mut t = for_a_minute(LIMIT);
        let mut rows: Vec<(u64, Option<u64>)> = Vec::new();
        let mut now = 0;
        for step in steps {
            rows.retain(|(_, expires)| expires.is_none_or(|expires| expires > now));
            match step {
                Step::Take { holder, cost, holds } => {
                    let fits = rows.len() as u64 + cost <= LIMIT;
                    let own = rows.iter().filter(|(other, _)| *other == holder && holder > 0);
                    let held = holder > 0 && (holds || own.clone().any(|(_, expires)| expires.is_none()));
                    let decision =
                        if holds { t.hold_until_released(holder, cost) } else { t.hold(holder, cost) };
                    prop_assert_eq!(decision.is_admitted(), fits);
                    if fits {
                        rows.extend((0..cost).map(|_| (holder, Some(now + 60))));
                    }
                    let own = rows.iter_mut().filter(|(other, _)| *other == holder && holder > 0);
                    let expires = if held { None } else { Some(now + 60) };
                    own.filter(|_| fits).for_each(|(_, own)| *own = expires);
                }
                Step::GiveBack { holder, cost } => {
                    rows.sort_by_key(|(holder, expires)| (*expires, *holder));
                    for _ in 0..cost {
                        let its = |(other, expires): &(u64, Option<u64>)| match holder {
                            0 => expires.is_some(),
                            holder => *other == holder,
                        };
                        if let Some(index) = rows.iter().position(its) {
                            rows.remove(index);
                        }
                    }
                    prop_assert_eq!(t.give_back(holder, cost).remaining, LIMIT - rows.len() as u64);
                }
                Step::Wait(seconds) => {
                    now += seconds;
                    t.advance(secs(seconds));
                    rows.retain(|(_, expires)| expires.is_none_or(|expires| expires > now));
                }
            }
            prop_assert_eq!(t.left(), LIMIT - rows.len() as u64);
        }
    }
}
