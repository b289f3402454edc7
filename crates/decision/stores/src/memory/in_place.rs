//! Several known keys of one shard, decided where their states are: the limits of one rule.
//!
//! A rule's limits lie in one shard for each key, so one lock is enough. Buckets and windows are
//! judged in their slots, and requests in flight on the shelf, as long as their list has room for
//! one more holder: taking states out and putting them back would cost more than deciding.
//! Whatever is new, stands twice or would take more memory is left to `together`, which keeps to
//! the budget.
//!
//! The checks come from an iterator and the answers go to a closure. So whoever has a rule at
//! hand writes down neither.

use tidegate_algorithms::{Decision, Limit, Small, SmallLimit, Timestamp};

use super::in_flight::{are_slots_of, charge_slots, judge_slots, refuse_slots};
use super::shard::{Change, Shard};
use super::slot::Pack;
use super::{MemoryStore, ask};
use crate::batch::{Answer, Basis, Charge, Check, passes};

/// Checks that are decided in place at the most; longer requests take another way.
pub(super) const IN_PLACE_MAX: usize = 4;

/// The slots of a concurrency limit among the checks, and what was decided of them.
#[derive(Clone, Copy, Debug)]
struct Slots {
    place: usize,
    decision: Decision,
}

impl MemoryStore {
    /// Whether checks of these limits can be decided by [`MemoryStore::check_in_place`], once their keys are known.
    pub fn can_check_in_place<'l>(limits: impl Iterator<Item = &'l Limit>) -> bool {
        let (mut small, mut slots) = (0, 0);
        for limit in limits {
            match limit.small() {
                Some(_) => small += 1,
                None if are_slots_of(limit) => slots += 1,
                None => return false,
            }
        }
        slots <= 1 && small + slots <= IN_PLACE_MAX
    }

    /// Decides checks of one shard together, if each of them is of a key that is known, and up to one of
    /// them of requests in flight. Says whether it could; if not, nothing is charged. `tell` is told the place of
    /// a check and its answer; it may be told again, when another check refuses.
    // A function of its own: one that does everything has no registers left for what is common.
    #[inline(never)]
    pub fn check_in_place<'c>(
        &self,
        charge: Charge,
        now: Timestamp,
        checks: impl Iterator<Item = Check<'c>> + Clone,
        mut tell: impl FnMut(usize, &Check<'c>, Answer),
    ) -> bool {
        let Some(first) = checks.clone().next() else { return true };
        let mut shard = self.lock(first.key.fingerprint);
        let mut changes = [Change::default(); IN_PLACE_MAX];
        let mut slots = None;
        let (mut count, mut admitted) = (0, true);
        for (place, check) in checks.clone().enumerate() {
            let Some(change) = changes.get_mut(place) else { return false };
            let told = |answer| tell(place, &check, answer);
            let judged = match check.limit.small() {
                Some(limit) => judge(&shard, limit, &check, now, change, told),
                None if slots.is_some() => false,
                None => {
                    let (key, ask) = (check.key.fingerprint, ask(&check, now));
                    let judged = judge_slots(&mut shard, key, check.limit, ask, change);
                    slots = judged.map(|decision| Slots { place, decision });
                    judged.map(exact).map(told).is_some()
                }
            };
            if !judged {
                return false;
            }
            admitted &= change.admitted;
            count += 1;
        }
        let changes = changes.get(..count).unwrap_or_default();
        if stand_twice(changes) {
            return false;
        }
        if !admitted && !passes_anyway(charge, checks.clone(), changes) {
            refuse_in_place(&mut shard, now, checks, changes, slots, tell);
            return true;
        }
        for (place, change) in changes.iter().enumerate() {
            if slots.is_none_or(|slots| slots.place != place) {
                shard.set_in_place(change);
            }
        }
        if let Some(Slots { place, decision }) = slots
            && let Some(check) = checks.clone().nth(place)
        {
            let slot = changes[place].slot;
            charge_slots(&mut shard, slot, check.limit, ask(&check, now), &decision);
        }
        true
    }
}

/// Judges one of several known keys, if its state is in its slot; says whether it is.
// Told from here, where the decision is made: one that is handed on is copied.
#[inline(always)]
pub(super) fn judge(
    shard: &Shard,
    limit: Small<'_>,
    check: &Check<'_>,
    now: Timestamp,
    change: &mut Change,
    tell: impl FnOnce(Answer),
) -> bool {
    match limit {
        Small::TokenBucket(limit) => {
            if check.cost == 1
                && let Some((found, decision)) = shard.judge_unit(check.key.fingerprint, limit, now)
            {
                *change = found;
                tell(exact(decision));
                return true;
            }
            judge_by(shard, limit, check, now, change, tell)
        }
        Small::LeakyBucket(limit) => judge_by(shard, limit, check, now, change, tell),
        Small::FixedWindow(limit) => judge_by(shard, limit, check, now, change, tell),
    }
}

#[inline(always)]
fn judge_by<L: SmallLimit<State: Pack>>(
    shard: &Shard,
    limit: &L,
    check: &Check<'_>,
    now: Timestamp,
    change: &mut Change,
    tell: impl FnOnce(Answer),
) -> bool {
    let ask = ask(check, now);
    let judged = shard.judge_in_place(check.key.fingerprint, limit, ask);
    let Some((found, usage)) = judged else { return false };
    *change = found;
    tell(exact(limit.tell(usage, ask)));
    true
}

/// The answer of the key's own counter.
#[inline(always)]
const fn exact(decision: Decision) -> Answer {
    Answer { decision, basis: Basis::Exact }
}

/// Whether changes of one shard are of one key, two of them.
#[inline(always)]
fn stand_twice(changes: &[Change]) -> bool {
    if let [one, other] = changes {
        return one.slot == other.slot;
    }
    let twin = |(at, change): (usize, &Change)| {
        changes[..at].iter().any(|other| other.slot == change.slot)
    };
    changes.iter().enumerate().any(twin)
}

/// Whether all are charged although one of them refuses.
#[cold]
fn passes_anyway<'c>(
    charge: Charge,
    checks: impl Iterator<Item = Check<'c>>,
    changes: &[Change],
) -> bool {
    charge == Charge::Always
        || passes(checks.zip(changes).map(|(check, change)| (check.role, change.admitted)))
}

/// Charges nobody, and says so to those who would have admitted.
#[cold]
fn refuse_in_place<'c>(
    shard: &mut Shard,
    now: Timestamp,
    checks: impl Iterator<Item = Check<'c>>,
    changes: &[Change],
    slots: Option<Slots>,
    mut tell: impl FnMut(usize, &Check<'c>, Answer),
) {
    for (place, (check, change)) in checks.zip(changes).enumerate() {
        let held = slots.filter(|slots| slots.place == place);
        let decision = match held {
            Some(Slots { decision, .. }) => refuse_slots(shard, &check, *change, decision, now),
            None if change.admitted => Some(uncharged(shard, &check, change, now)),
            None => {
                // A limit may count what it refuses.
                shard.set_in_place(change);
                None
            }
        };
        if let Some(decision) = decision {
            tell(place, &check, exact(decision));
        }
    }
}

/// What a check is told that would have been admitted and is not charged after all.
#[cold]
pub(super) fn uncharged(
    shard: &Shard,
    check: &Check<'_>,
    change: &Change,
    now: Timestamp,
) -> Decision {
    let mut state = shard.state_before(change);
    check.limit.peek(&mut state, ask(check, now))
}
