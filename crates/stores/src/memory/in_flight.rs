//! A rule that limits requests in flight beside others, decided where its states are.
//!
//! The slots of a concurrency limit are a list, and so on the shelf of their shard. As long as
//! the list has room for one more holder, it is judged and charged there: taking it from the shelf
//! and putting it back would cost more than deciding. Whatever would make it take more memory is
//! left to `together`, which keeps to the budget.

use tidegate_algorithms::{Algorithm, Ask, Decision, Holder, Limit, State, Timestamp};

use super::shard::{Change, Shard};
use super::together::{IN_PLACE_MAX, has_twins, judge, uncharged};
use super::{MemoryStore, ask};
use crate::batch::{Answer, Answered, Basis, Batch, Charge, Check, Key, passes};
use crate::fingerprint::Fingerprint;

impl MemoryStore {
    /// Several known keys of one shard, one of which has slots. Says whether it was that case; if
    /// not, nothing is charged.
    #[inline(never)]
    pub(super) fn check_in_flight(&self, batch: &Batch<'_>, places: &mut [impl Answered]) -> bool {
        let Batch { checks, now, .. } = *batch;
        let Some(first) = checks.first() else { return true };
        let index = self.shard_of(first.key.fingerprint);
        let elsewhere = |check: &Check<'_>| self.shard_of(check.key.fingerprint) != index;
        if checks.len() > IN_PLACE_MAX || checks.iter().any(elsewhere) || has_twins(checks) {
            return false;
        }
        let mut shard = self.shards[index].lock();
        let mut changes = [Change::default(); IN_PLACE_MAX];
        let mut slots = None;
        for ((check, change), place) in checks.iter().zip(&mut changes).zip(&mut *places) {
            let judged = match check.limit.small() {
                Some(_) => judge(&shard, check, now, change, place),
                None if slots.is_some() => false,
                None => {
                    slots = judge_slots(&mut shard, check, now);
                    if let Some(decision) = slots {
                        change.admitted = decision.is_admitted();
                        place.put(Answer { decision, basis: Basis::Exact });
                    }
                    slots.is_some()
                }
            };
            if !judged {
                return false;
            }
        }
        let each = || checks.iter().zip(&changes);
        let pass = passes(each().map(|(check, change)| (check.role, change.admitted)))
            || batch.charge == Charge::Always;
        for ((check, change), place) in each().zip(places) {
            match (check.limit.small().is_none(), slots) {
                (true, Some(decision)) => {
                    settle_slots(&mut shard, check, decision, pass, now, place)
                }
                _ if pass || !change.admitted => shard.set_in_place(change),
                _ => place.put(uncharged(&shard, check, change, now)),
            }
        }
        true
    }

    /// Gives slots back, whatever is known of their limit.
    pub(super) fn release_slots(&self, key: Key, holder: Holder, count: u64) {
        let mut shard = self.lock(key.fingerprint);
        if let Some(state) = shard.shelved(key.fingerprint) {
            state.release(holder, count);
        }
    }

    /// Gives slots back where they are. Says whether it could.
    pub(super) fn give_back_slots(&self, check: &Check<'_>, now: Timestamp) -> bool {
        let mut shard = self.lock(check.key.fingerprint);
        let Some(state) = slots_of(&mut shard, check.limit, check.key.fingerprint) else {
            return false;
        };
        check.limit.give_back(state, ask(check, now));
        true
    }
}

/// Judges the slots of a known key, if they are on the shelf and have room.
fn judge_slots(shard: &mut Shard, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
    let state = slots_of(shard, check.limit, check.key.fingerprint)?;
    if state.growth_bytes() > 0 {
        return None;
    }
    check.limit.settle(state, now);
    Some(check.limit.decide(state, ask(check, now)))
}

/// Takes the slots that were judged, or says what is left without taking any.
fn settle_slots(
    shard: &mut Shard,
    check: &Check<'_>,
    decision: Decision,
    pass: bool,
    now: Timestamp,
    place: &mut impl Answered,
) {
    let ask: Ask = ask(check, now);
    let Some(state) = slots_of(shard, check.limit, check.key.fingerprint) else { return };
    if !decision.is_admitted() {
        check.limit.refuse(state, ask);
    } else if pass {
        check.limit.charge(state, ask, &decision);
    } else {
        let decision = check.limit.uncharged(state, ask, decision);
        place.put(Answer { decision, basis: Basis::Exact });
    }
}

/// The slots of a known key, where they are; none of what is more than slots.
fn slots_of<'s>(shard: &'s mut Shard, limit: &Limit, key: Fingerprint) -> Option<&'s mut State> {
    let hard = matches!(limit.algorithm(), Algorithm::Concurrency(_)) && limit.soft().is_none();
    let state = if hard { shard.shelved(key)? } else { return None };
    matches!(state, State::Slots(_)).then_some(state)
}
