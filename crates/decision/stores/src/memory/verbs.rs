//! One verb applied to one key: every verb but a check of a known key, which `known_keys` decides.

use tidegate_algorithms::{CheckInput, Decision, Holder, Limit, State, Timestamp};

use super::general::RoomNeeded;
use super::known_keys::has_only_slots;
use super::{MemoryStore, input};
use crate::batch::{Answer, Basis, Check, Key, Verb};

impl MemoryStore {
    /// Applies a verb to one key, inserting it if it is new.
    #[cold]
    pub(super) fn apply_to_key(&self, verb: Verb, check: &Check<'_>, now: Timestamp) -> Answer {
        match verb {
            Verb::Check => self.charge_key(check, now, Limit::check),
            Verb::Peek => self.charge_key(check, now, Limit::peek),
            Verb::Take => self.charge_key(check, now, Limit::take),
            Verb::Charge => self.charge_key(check, now, Limit::overcharge),
            Verb::Refund => self.refund_key(check, now),
            Verb::Reset => self.reset_key(check, now),
        }
    }

    fn charge_key(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        charge: fn(&Limit, &mut State, CheckInput) -> Decision,
    ) -> Answer {
        let mut shard = self.lock(check.key.fingerprint);
        let mut counter = self.find_counter(&mut shard, check, RoomNeeded::default(), now);
        let input = counter.input(check, now);
        let state = &mut counter.loaded.state;
        let decision = match counter.basis {
            Basis::Full => check.limit.peek(state, input),
            _ => charge(check.limit, state, input),
        };
        self.store_counter(&mut shard, counter, decision, now)
    }

    /// A key without a counter of its own gets nothing back: its use of a shared counter stays.
    fn refund_key(&self, check: &Check<'_>, now: Timestamp) -> Answer {
        let key = check.key.fingerprint;
        let mut shard = self.lock(key);
        let mut loaded = shard.load(key);
        let decision = check.limit.refund(&mut loaded.state, input(check, now));
        if !loaded.is_new() {
            let _ = shard.store(key, loaded, now, self.shard_budget_shared);
        }
        Answer { decision, basis: Basis::Exact }
    }

    fn reset_key(&self, check: &Check<'_>, now: Timestamp) -> Answer {
        self.lock(check.key.fingerprint).remove(check.key.fingerprint);
        let input = input(check, now).with_cost(0);
        Answer { decision: check.limit.peek(&mut State::Unused, input), basis: Basis::Exact }
    }

    /// Gives back what a check charged, and builds no decision.
    pub(super) fn give_back_to_key(&self, check: &Check<'_>, now: Timestamp) {
        let (key, input) = (check.key.fingerprint, input(check, now));
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

    /// Gives slots back by their holder, whatever the limit is by now.
    pub(super) fn release_slots(&self, key: Key, holder: Holder, count: u64) {
        let mut shard = self.lock(key.fingerprint);
        if let Some(state) = shard.overflow_state(key.fingerprint) {
            state.release(holder, count);
        }
    }
}
