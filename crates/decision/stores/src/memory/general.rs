//! Several keys of one request, decided atomically whatever their states are: new keys, a full
//! store, keys that occur twice, lists that grow.
//!
//! All shards of the keys are locked, in shard order, from the first decision until the last state
//! is stored. States are taken out of the table, every check is judged, then the request as a
//! whole; then the checks are charged or not, and the states are stored again. `known_keys` decides
//! the common case with less work.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tidegate_algorithms::{CheckInput, Decision, Outcome, Retry, Tenure, Timestamp};

use super::lock::LockedShard;
use super::shard::{LoadedState, Shard};
use super::{FULL_RETRY, MemoryStore, SHARED_CELLS, WhenFull, input};
use crate::batch::{Answer, Answers, Basis, Batch, Charge, Check, Key, Verb, passes};
use crate::fingerprint::Fingerprint;

/// The counter that a check uses, its own or a shared one, taken out of the table.
#[derive(Debug)]
pub(super) struct CounterHandle {
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

/// A check that was judged, before the request is decided.
#[derive(Debug)]
struct JudgedCheck {
    decision: Decision,
    basis: Basis,
    /// Its counter; `None` if an earlier check has the same key and so the counter.
    counter: Option<CounterHandle>,
    /// The earlier check with the same key.
    twin: Option<usize>,
}

impl CounterHandle {
    /// The input for this counter. A shared counter takes slots for their time to live: no holder
    /// could give them back.
    pub(super) fn input(&self, check: &Check<'_>, now: Timestamp) -> CheckInput {
        let input = input(check, now);
        match self.basis {
            Basis::Shared => CheckInput { tenure: Tenure::TimeToLive, ..input },
            _ => input,
        }
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
    pub(super) fn decide_together(&self, batch: &Batch<'_>) -> Answers {
        let Batch { now, checks, .. } = *batch;
        let mut answers = Answers::new();
        let mut indexes: SmallVec<[usize; 4]> =
            checks.iter().map(|check| self.shard_of(check.key.fingerprint)).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let mut shards: SmallVec<[LockedShard<'_>; 4]> =
            indexes.iter().map(|index| self.shards[*index].lock()).collect();
        let shard_at = |key: Fingerprint| {
            let index = self.shard_of(key);
            indexes.iter().position(|locked| *locked == index).unwrap_or(0)
        };

        let mut judged: SmallVec<[JudgedCheck; 4]> = SmallVec::new();
        for check in checks {
            let at = shard_at(check.key.fingerprint);
            judged.push(self.judge(&mut shards[at], check, &judged, checks, now));
        }
        let pass = passes(
            checks
                .iter()
                .zip(&judged)
                .map(|(check, judged)| (check.role, judged.decision.is_admitted())),
        );
        for (index, check) in checks.iter().enumerate() {
            let charged = batch.verb == Verb::Check && (pass || batch.charge == Charge::Always);
            let decision = conclude(check, index, &mut judged, batch, charged);
            answers.push(Answer { decision, basis: judged[index].basis });
        }
        for (index, (check, judged)) in checks.iter().zip(judged).enumerate() {
            let Some(counter) = judged.counter else {
                continue;
            };
            let at = shard_at(check.key.fingerprint);
            let stored = self.store_counter(&mut shards[at], counter, judged.decision, now);
            if stored.basis == Basis::Full && judged.basis != Basis::Full {
                // The request is decided, but this key could not be counted after all.
                let same_key = checks.iter().zip(&mut answers).skip(index);
                for (_, answer) in same_key.filter(|(other, _)| other.key == check.key) {
                    answer.basis = Basis::Full;
                }
            }
        }
        answers
    }

    /// Judges one check. A key that occurred before is judged as if the earlier checks had been
    /// charged.
    fn judge(
        &self,
        shard: &mut Shard,
        check: &Check<'_>,
        earlier: &[JudgedCheck],
        checks: &[Check<'_>],
        now: Timestamp,
    ) -> JudgedCheck {
        let before = &checks[..earlier.len()];
        if let Some(twin) = before.iter().position(|other| other.key == check.key) {
            let decision = judge_twin(check, twin, earlier, before, now);
            let basis = earlier[twin].basis;
            return JudgedCheck { decision, basis, counter: None, twin: Some(twin) };
        }
        let input = input(check, now);
        let promised = self.promised_room(check, earlier, before);
        let mut counter = self.find_counter(shard, check, promised, now);
        check.limit.settle(&mut counter.loaded.state, now);
        let mut decision = check.limit.decide(&counter.loaded.state, input);
        let basis = counter.basis;
        if basis == Basis::Full {
            decision = self.decision_when_full(decision, !counter.loaded.is_new());
        }
        JudgedCheck { decision, basis, counter: Some(counter), twin: None }
    }

    /// The room that earlier new keys of the request will take in the shard of this check.
    fn promised_room(
        &self,
        check: &Check<'_>,
        earlier: &[JudgedCheck],
        before: &[Check<'_>],
    ) -> RoomNeeded {
        let shard = self.shard_of(check.key.fingerprint);
        before.iter().zip(earlier).fold(RoomNeeded::default(), |promised, (other, judged)| {
            let is_new = judged.counter.as_ref().is_some_and(|counter| counter.loaded.is_new());
            let same_shard = self.shard_of(other.key.fingerprint) == shard;
            if is_new && same_shard { promised.and(other) } else { promised }
        })
    }

    /// Finds a check's counter: its own, or the one that [`WhenFull`] names if the key is new and
    /// the store is full. `promised` is the room that other new keys of the request will take.
    #[inline]
    pub(super) fn find_counter(
        &self,
        shard: &mut Shard,
        check: &Check<'_>,
        promised: RoomNeeded,
        now: Timestamp,
    ) -> CounterHandle {
        let key = check.key;
        let loaded = shard.load(key.fingerprint);
        if loaded.is_new() {
            let needed = promised.and(check);
            return self.find_new_counter(shard, key, loaded, needed, now);
        }
        let growth = loaded.state.growth_bytes();
        let fits = growth == 0
            || shard.bytes() + loaded.state.heap_bytes() + growth <= self.shard_budget_shared;
        let basis = if fits { Basis::Exact } else { self.count_unmetered() };
        CounterHandle { key: key.fingerprint, loaded, basis }
    }

    #[cold]
    fn find_new_counter(
        &self,
        shard: &mut Shard,
        key: Key,
        new: LoadedState,
        needed: RoomNeeded,
        now: Timestamp,
    ) -> CounterHandle {
        if shard.make_room(needed, now, self.shard_budget).is_ok() {
            return CounterHandle { key: key.fingerprint, loaded: new, basis: Basis::Exact };
        }
        if self.when_full == WhenFull::Approximate {
            let shared = self.shared_key(key);
            let loaded = shard.load(shared);
            if !loaded.is_new() || shard.make_room(needed, now, self.shard_budget_shared).is_ok() {
                self.shared.fetch_add(1, Ordering::Relaxed);
                return CounterHandle { key: shared, loaded, basis: Basis::Shared };
            }
        }
        CounterHandle { key: key.fingerprint, loaded: new, basis: self.count_unmetered() }
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

    /// Stores a counter after its check was decided.
    #[inline]
    pub(super) fn store_counter(
        &self,
        shard: &mut Shard,
        counter: CounterHandle,
        decision: Decision,
        now: Timestamp,
    ) -> Answer {
        let CounterHandle { key, loaded, basis } = counter;
        let budget = match basis {
            Basis::Shared | Basis::Full => self.shard_budget_shared,
            _ => self.shard_budget,
        };
        let is_known = !loaded.is_new();
        let stored = if basis == Basis::Full && !is_known {
            Ok(())
        } else {
            shard.store(key, loaded, now, budget)
        };
        let basis = if stored.is_ok() { basis } else { self.count_unmetered() };
        let decision = match basis {
            Basis::Full => self.decision_when_full(decision, is_known),
            _ => decision,
        };
        Answer { decision, basis }
    }

    /// The decision on a cost that cannot be counted. [`WhenFull::Approximate`] refuses a known key
    /// whose state has no room to grow: early perhaps, never late.
    #[cold]
    fn decision_when_full(&self, decision: Decision, is_known: bool) -> Decision {
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

/// Judges a key that occurred before, on a copy of its state that is charged with the earlier
/// checks.
#[cold]
fn judge_twin(
    check: &Check<'_>,
    twin: usize,
    earlier: &[JudgedCheck],
    before: &[Check<'_>],
    now: Timestamp,
) -> Decision {
    let first = &earlier[twin];
    let Some(counter) = first.counter.as_ref().filter(|counter| counter.basis != Basis::Full)
    else {
        return first.decision;
    };
    let mut state = counter.loaded.state.clone();
    for (other, judged) in before.iter().zip(earlier) {
        if other.key != check.key {
            continue;
        }
        // Another plan may judge the same counter with other parameters.
        other.limit.settle(&mut state, now);
        if judged.decision.is_admitted() {
            other.limit.charge(&mut state, input(other, now), &judged.decision);
        } else {
            other.limit.refuse(&mut state, input(other, now));
        }
    }
    check.limit.settle(&mut state, now);
    check.limit.decide(&state, input(check, now))
}

/// Charges one check of a decided request, or makes the decision that charges nothing.
fn conclude(
    check: &Check<'_>,
    index: usize,
    judged: &mut [JudgedCheck],
    batch: &Batch<'_>,
    charged: bool,
) -> Decision {
    let owner = judged[index].twin.unwrap_or(index);
    let first_decision = judged[index].decision;
    let is_twin = judged[index].twin.is_some();
    let Some(counter) = judged[owner].counter.as_mut().filter(|found| found.basis != Basis::Full)
    else {
        return first_decision;
    };
    let input = counter.input(check, batch.now);
    let state = &mut counter.loaded.state;
    if is_twin {
        check.limit.settle(state, batch.now);
    }
    if charged {
        // The state of a twin now includes the charge of the first check.
        let decision = if is_twin { check.limit.decide(state, input) } else { first_decision };
        if decision.is_admitted() {
            check.limit.charge(state, input, &decision);
        } else {
            check.limit.refuse(state, input);
        }
        return decision;
    }
    if batch.verb == Verb::Check && !first_decision.is_admitted() {
        check.limit.refuse(state, input);
        return first_decision;
    }
    check.limit.uncharged(state, input, first_decision)
}
