//! One verb applied to one key: every verb but a check of a known key, which `known_keys` decides.

use tidegate_algorithms::{Holder, State, Timestamp};

use super::MemoryStore;
use super::general::RoomNeeded;
use super::known_keys::has_only_slots;
use crate::batch::{Answer, Basis, Check, Key, Verb};

impl MemoryStore {
    /// Applies a verb to one key, inserting it if it is new.
    #[cold]
    pub(crate) fn apply_to_key(&self, verb: Verb, check: &Check<'_>, now: Timestamp) -> Answer {
        let key = check.key.fingerprint;
        let mut shard = self.lock(key);
        match verb {
            Verb::Check | Verb::Peek | Verb::Take | Verb::Charge => {
                let mut counter = self.find_counter(&mut shard, check, RoomNeeded::default(), now);
                let verb = if counter.basis == Basis::Full { Verb::Peek } else { verb };
                let input = counter.input(check, now);
                let decision = verb.apply(check.limit, &mut counter.loaded.state, input);
                let is_known = !counter.loaded.is_new();
                match self.store_counter(&mut shard, counter, now) {
                    basis @ Basis::Full => {
                        Answer { decision: self.decision_when_full(decision, is_known), basis }
                    }
                    basis => Answer { decision, basis },
                }
            }
            // A key without a counter of its own gets nothing back: its use of a shared counter stays.
            Verb::Refund => {
                let mut loaded = shard.load(key);
                let decision = verb.apply(check.limit, &mut loaded.state, check.input(now));
                if !loaded.is_new() {
                    let _ = shard.store(key, loaded, now, self.shard_budget_shared);
                }
                Answer::exact(decision)
            }
            Verb::Reset => {
                shard.remove(key);
                Answer::exact(verb.apply(check.limit, &mut State::Unused, check.input(now)))
            }
        }
    }

    /// Gives back what a check charged, and builds no decision.
    pub(super) fn give_back_to_key(&self, check: &Check<'_>, now: Timestamp) {
        let (key, input) = (check.key.fingerprint, check.input(now));
        let mut shard = self.lock(key);
        if has_only_slots(check.limit)
            && let Some(state) = shard.overflow_state(key).filter(|state| state.is_slots())
        {
            // In place: giving slots back needs no more memory.
            check.limit.give_back(state, input);
            return;
        }
        let mut loaded = shard.load(key);
        if !loaded.is_new() {
            check.limit.give_back(&mut loaded.state, input);
            let _ = shard.store(key, loaded, now, self.shard_budget_shared);
        }
    }

    /// Frees slots that were taken as [`Tenure::Held`](tidegate_algorithms::Tenure::Held), whatever the limit is by
    /// now.
    pub fn release(&self, key: Key, holder: Holder, count: u64) {
        let mut shard = self.lock(key.fingerprint);
        if let Some(state) = shard.overflow_state(key.fingerprint) {
            state.release(holder, count);
        }
    }
}
