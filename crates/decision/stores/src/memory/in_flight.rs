//! Slots of requests in flight, judged and taken where they are.
//!
//! They are a list, and so on the shelf of their shard. Whatever would make the list take more
//! memory is left to `together`, which keeps to the budget.

use tidegate_algorithms::{Ask, Decision, Holder, Limit, State, Timestamp};

use super::shard::{Change, Shard};
use super::{MemoryStore, ask};
use crate::batch::{Check, Key};
use crate::fingerprint::Fingerprint;

impl MemoryStore {
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
        let state = shard.shelved(check.key.fingerprint);
        let Some(state) = state.filter(|state| are_slots(check.limit, state)) else {
            return false;
        };
        check.limit.give_back(state, ask(check, now));
        true
    }
}

/// Judges the slots of a known key, if they are on the shelf and have room.
// Not told of a whole check, which would have to be written down for it.
#[inline(never)]
pub(super) fn judge_slots(
    shard: &mut Shard,
    key: Fingerprint,
    limit: &Limit,
    ask: Ask,
    change: &mut Change,
) -> Option<Decision> {
    let slot = shard.find(key)?;
    let state = shard.shelved_at(slot).filter(|state| are_slots(limit, state))?;
    if state.growth_bytes() > 0 {
        return None;
    }
    limit.settle(state, ask.now);
    let decision = limit.decide(state, ask);
    *change = Change::on_shelf(slot, decision.is_admitted());
    Some(decision)
}

/// Takes the slots that were judged, if they were admitted; the shard must not have changed since.
#[inline(never)]
pub(super) fn charge_slots(
    shard: &mut Shard,
    slot: usize,
    limit: &Limit,
    ask: Ask,
    decision: &Decision,
) {
    let Some(state) = shard.shelved_at(slot) else { return };
    if decision.is_admitted() {
        limit.charge(state, ask, decision);
    } else {
        limit.refuse(state, ask);
    }
}

/// Takes none of the slots that were judged, because another limit refuses or they do. Says what
/// is left, where the check was told otherwise.
#[cold]
pub(super) fn refuse_slots(
    shard: &mut Shard,
    check: &Check<'_>,
    change: Change,
    decision: Decision,
    now: Timestamp,
) -> Option<Decision> {
    let state = shard.shelved_at(change.slot)?;
    if decision.is_admitted() {
        return Some(check.limit.uncharged(state, ask(check, now), decision));
    }
    check.limit.refuse(state, ask(check, now));
    None
}

/// Whether a limit has slots and nothing else, such as a soft allowance.
pub(super) fn are_slots_of(limit: &Limit) -> bool {
    limit.algorithm().holds_slots() && limit.soft().is_none()
}

fn are_slots(limit: &Limit, state: &State) -> bool {
    are_slots_of(limit) && matches!(state, State::Slots(_))
}
