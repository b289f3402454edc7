//! Several keys of one request, decided atomically whatever their states are: new keys, a full
//! store, keys that occur twice, lists that grow.
//!
//! All shards of the keys are locked, in shard order, from the first decision until the last state
//! is stored. States are taken out of the table, every check is judged, then the request as a
//! whole; then the checks are charged or not, and the states are stored again. `known_keys` decides
//! the common case with less work.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tidegate_algorithms::{CheckInput, Decision, Outcome, Retry, State, Tenure, Timestamp};

use super::lock::LockedShard;
use super::shard::{LoadedState, Shard, TableFull};
use super::{FULL_RETRY, MemoryStore, SHARED_CELLS, WhenFull};
use crate::batch::{Answer, Answers, Basis, Batch, Charge, Check, Key, Verb};
use crate::check_all::{ChargeMode, KeyCheck, check_all};
use crate::fingerprint::Fingerprint;

/// The counter that a check uses, its own or a shared one, taken out of the table.
#[derive(Debug)]
pub(super) struct CounterHandle<'a> {
    /// The first check of the key.
    check: &'a Check<'a>,
    key: Fingerprint,
    pub(super) loaded: LoadedState,
    pub(super) basis: Basis,
}

/// Room for new keys.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoomNeeded {
    pub(super) keys: usize,
    /// How many of the keys have states in the overflow area.
    pub(super) overflows: usize,
}

impl CounterHandle<'_> {
    /// The input for this counter. A shared counter takes slots for their time to live: no holder
    /// could give them back.
    pub(super) fn input(&self, check: &Check<'_>, now: Timestamp) -> CheckInput {
        let tenure = if self.basis == Basis::Shared { Tenure::TimeToLive } else { check.tenure };
        CheckInput { tenure, ..check.input(now) }
    }
}

impl RoomNeeded {
    /// Room for the key of one more check.
    fn and(self, check: &Check<'_>) -> Self {
        let overflows = usize::from(check.limit.small().is_none());
        RoomNeeded { keys: self.keys + 1, overflows: self.overflows + overflows }
    }
}

impl MemoryStore {
    /// Checks or peeks at several keys.
    #[cold]
    pub(super) fn decide_request<'a>(&self, batch: &Batch<'a>) -> Answers {
        let Batch { now, checks, .. } = *batch;
        let mut indexes: SmallVec<[usize; 4]> =
            checks.iter().map(|check| self.shard_of(check.key.fingerprint)).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let mut shards: SmallVec<[LockedShard<'_>; 4]> =
            indexes.iter().map(|index| self.shards[*index].lock()).collect();
        let shard_at = |check: &Check<'_>| {
            let index = self.shard_of(check.key.fingerprint);
            indexes.iter().position(|locked| *locked == index).unwrap_or(0)
        };

        // Each key has one counter; `owners` has the index of each check's counter.
        let mut counters: SmallVec<[CounterHandle<'_>; 4]> = SmallVec::new();
        let mut owners: SmallVec<[usize; 4]> = SmallVec::new();
        for check in checks {
            let known = counters.iter().position(|counter| counter.check.key == check.key);
            owners.push(known.unwrap_or(counters.len()));
            if known.is_none() {
                let promised = self.promised_room(check, &counters);
                let shard = &mut shards[shard_at(check)];
                counters.push(self.find_counter(shard, check, promised, now));
            }
        }
        let mut states: SmallVec<[State; 4]> =
            counters.iter_mut().map(|counter| std::mem::take(&mut counter.loaded.state)).collect();
        let key_check = |(check, state): (&'a Check<'a>, &usize)| {
            let counter = &counters[*state];
            let input = counter.input(check, now);
            let uncounted = (counter.basis == Basis::Full).then(|| {
                check.limit.settle(&mut states[*state], now);
                let decision = check.limit.decide(&states[*state], input);
                self.decision_when_full(decision, !counter.loaded.is_new())
            });
            KeyCheck { limit: check.limit, input, role: check.role, state: *state, uncounted }
        };
        let key_checks: SmallVec<[KeyCheck<'_>; 4]> =
            checks.iter().zip(&owners).map(key_check).collect();
        let mode = match (batch.verb, batch.charge) {
            (Verb::Check, Charge::AllOrNothing) => ChargeMode::IfPassed,
            (Verb::Check, Charge::Always) => ChargeMode::Always,
            _ => ChargeMode::Nothing,
        };
        let (decisions, _) = check_all(&key_checks, &mut states, mode);

        let mut bases: SmallVec<[Basis; 4]> = SmallVec::new();
        for (mut counter, state) in counters.into_iter().zip(states) {
            counter.loaded.state = state;
            // If there is no room after all, the decision stays, and its basis says that it was not counted.
            bases.push(self.store_counter(&mut shards[shard_at(counter.check)], counter, now));
        }
        let answer = |(owner, decision): (&usize, _)| Answer { decision, basis: bases[*owner] };
        owners.iter().zip(decisions).map(answer).collect()
    }

    /// The room that the new keys among these counters will take in the shard of this check.
    fn promised_room(&self, check: &Check<'_>, counters: &[CounterHandle<'_>]) -> RoomNeeded {
        let shard = self.shard_of(check.key.fingerprint);
        let same_shard =
            |counter: &&CounterHandle<'_>| self.shard_of(counter.check.key.fingerprint) == shard;
        let new = counters.iter().filter(|counter| counter.loaded.is_new()).filter(same_shard);
        new.fold(RoomNeeded::default(), |promised, counter| promised.and(counter.check))
    }

    /// Finds a check's counter: its own, or the one that [`WhenFull`] names if the key is new and
    /// the store is full. `promised` is the room that other new keys of the request will take.
    #[inline]
    pub(super) fn find_counter<'a>(
        &self,
        shard: &mut Shard,
        check: &'a Check<'a>,
        promised: RoomNeeded,
        now: Timestamp,
    ) -> CounterHandle<'a> {
        let key = check.key.fingerprint;
        let loaded = shard.load(key);
        if loaded.is_new() {
            return self.find_new_counter(shard, check, loaded, promised.and(check), now);
        }
        let growth = loaded.state.growth_bytes();
        let fits = growth == 0
            || shard.bytes() + loaded.state.heap_bytes() + growth <= self.shard_budget_shared;
        let basis = if fits { Basis::Exact } else { self.count_unmetered() };
        CounterHandle { check, key, loaded, basis }
    }

    #[cold]
    fn find_new_counter<'a>(
        &self,
        shard: &mut Shard,
        check: &'a Check<'a>,
        new: LoadedState,
        needed: RoomNeeded,
        now: Timestamp,
    ) -> CounterHandle<'a> {
        let key = check.key.fingerprint;
        if shard.make_room(needed, now, self.shard_budget).is_ok() {
            return CounterHandle { check, key, loaded: new, basis: Basis::Exact };
        }
        if self.when_full == WhenFull::Approximate {
            let shared = self.shared_key(check.key);
            let loaded = shard.load(shared);
            if !loaded.is_new() || shard.make_room(needed, now, self.shard_budget_shared).is_ok() {
                self.shared.fetch_add(1, Ordering::Relaxed);
                return CounterHandle { check, key: shared, loaded, basis: Basis::Shared };
            }
        }
        CounterHandle { check, key, loaded: new, basis: self.count_unmetered() }
    }

    /// Counts an answer without a counter.
    #[cold]
    fn count_unmetered(&self) -> Basis {
        self.unmetered.fetch_add(1, Ordering::Relaxed);
        Basis::Full
    }

    /// The counter that a new key shares with others of its limit and shard.
    fn shared_key(&self, key: Key) -> Fingerprint {
        let cell = key.fingerprint.stored().0 % SHARED_CELLS;
        self.fingerprinter.of(key.group, &cell.to_le_bytes())
    }

    /// Stores a counter after its check was decided; returns the basis of the answer.
    #[inline]
    pub(super) fn store_counter(
        &self,
        shard: &mut Shard,
        counter: CounterHandle<'_>,
        now: Timestamp,
    ) -> Basis {
        let CounterHandle { key, loaded, basis, .. } = counter;
        if basis == Basis::Full && loaded.is_new() {
            return basis;
        }
        let budget = match basis {
            Basis::Shared | Basis::Full => self.shard_budget_shared,
            _ => self.shard_budget,
        };
        match shard.store(key, loaded, now, budget) {
            Ok(()) => basis,
            Err(TableFull) => self.count_unmetered(),
        }
    }

    /// The decision on a cost that cannot be counted. [`WhenFull::Approximate`] refuses a known key
    /// whose state has no room to grow: early perhaps, never late.
    #[cold]
    pub(super) fn decision_when_full(&self, decision: Decision, is_known: bool) -> Decision {
        match self.when_full {
            WhenFull::Allow => return decision,
            WhenFull::Approximate if !is_known => return decision,
            WhenFull::Approximate | WhenFull::Deny => {}
        }
        Decision {
            outcome: Outcome::Refused,
            remaining: 0,
            taken: 0,
            retry: Retry::After(FULL_RETRY),
            ..decision
        }
    }
}
