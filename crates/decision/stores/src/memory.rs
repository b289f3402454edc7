//! Counters in this process: a sharded table under a hard byte budget.
//!
//! The calling thread decides, under the lock of one shard (or of the few that
//! a request's keys lie in, taken in one order); there is no other thread to
//! ask. A key takes 24 bytes whatever its length. Keys whose state no longer
//! matters are dropped a few at a time; a key that is being limited is never
//! dropped to make room. What happens to new keys when the budget is used up is
//! configured, see [`WhenFull`], and counted.

mod alone;
mod in_flight;
mod in_place;
mod lock;
mod shard;
mod shelf;
mod slot;
mod spread;
mod together;
mod units;

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_algorithms::{Ask, Decision, Holder, Nanos, Outcome, Retry, State, Tenure, Timestamp};

#[cfg(feature = "shared")]
use crate::batch::Charge;
use crate::batch::{Answer, Answered, Answers, Basis, Batch, Check, Key, Verb};
use crate::counter_store::{CounterStore, StoreError};
use crate::fingerprint::{Fingerprint, Fingerprinter};
use lock::{Held, ShardLock};
use shard::{Loaded, Shard, Wanted};
pub use units::Units;

/// Below this a shard could not hold the keys that [`WhenFull::Approximate`] needs.
const BUDGET_MIN: usize = 64 * 1024;
/// What one shard may take, as long as there are not too many of them: growing
/// a shard of a megabyte takes a fraction of a millisecond.
const SHARD_BYTES: usize = 1024 * 1024;
const SHARDS_MIN: usize = 16;
const SHARDS_MAX: usize = 65_536;
/// Counters that new keys of one limit share in each shard of a full store.
const SHARED_CELLS: u64 = 16;
/// How long to wait when a full store refuses: time for the sweep to free places.
const FULL_RETRY: Nanos = Nanos::from_secs(1);

/// How a [`MemoryStore`] is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// The most bytes that the counters may take. Default: 256 MiB, room for
    /// about seven million keys.
    pub budget_bytes: usize,
    /// What happens to new keys when the budget is used up. Default: they share counters.
    pub when_full: WhenFull,
    /// The fingerprints' seed; drawn at random when not given.
    pub seed: Option<u64>,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        MemoryConfig {
            budget_bytes: 256 * 1024 * 1024,
            when_full: WhenFull::Approximate,
            seed: None,
        }
    }
}

/// What happens to a new key when the byte budget is used up and no key is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// New keys of a limit share a few counters: refused early perhaps, never late.
    #[default]
    Approximate,
    /// New keys are admitted without being counted.
    Allow,
    /// New keys are refused.
    Deny,
}

/// A configuration that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Too little to hold anything.
    #[error("the counters need a budget of at least {BUDGET_MIN} bytes, not {budget_bytes}")]
    BudgetTooSmall {
        /// The budget asked for.
        budget_bytes: usize,
    },
}

/// What a store holds and what it had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys in the table, idle ones that were not swept yet included.
    pub keys: usize,
    /// Bytes allocated for them.
    pub bytes: usize,
    /// Answers from a shared counter because the store was full.
    pub shared: u64,
    /// Answers without a counter because the store was full.
    pub unmetered: u64,
}

/// Counters in this process.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[ShardLock]>,
    /// The number of shards less one; the number is a power of two.
    mask: u32,
    /// What a shard may take for ordinary keys.
    shard_budget: usize,
    /// What it may take in all: the rest is for shared counters.
    shard_budget_shared: usize,
    when_full: WhenFull,
    fingerprinter: Fingerprinter,
    shared: AtomicU64,
    unmetered: AtomicU64,
}

/// A check's key, wherever it is counted, and its state.
#[derive(Debug)]
struct Located {
    key: Fingerprint,
    loaded: Loaded,
    basis: Basis,
}

impl Located {
    /// What is asked of the key there. Nobody gives back what a counter of several keys has
    /// taken, so slots are never held in one.
    fn ask(&self, check: &Check<'_>, now: Timestamp) -> Ask {
        let ask = ask(check, now);
        match self.basis {
            Basis::Shared => Ask { tenure: Tenure::TimeToLive, ..ask },
            _ => ask,
        }
    }
}

impl MemoryStore {
    /// A store with this configuration.
    ///
    /// # Errors
    /// When the budget is too small to enforce anything.
    pub fn new(config: MemoryConfig) -> Result<Self, ConfigError> {
        let MemoryConfig { budget_bytes, when_full, seed } = config;
        if budget_bytes < BUDGET_MIN {
            return Err(ConfigError::BudgetTooSmall { budget_bytes });
        }
        let shards = (budget_bytes / SHARD_BYTES).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX);
        // A sixteenth is left for tables that are being rebuilt.
        let usable =
            (budget_bytes - budget_bytes / 16).saturating_sub(shards * size_of::<ShardLock>());
        let shard_budget_shared = usable / shards;
        Ok(MemoryStore {
            shards: (0..shards).map(|number| ShardLock::new(Shard::new(number))).collect(),
            mask: u32::try_from(shards - 1).unwrap_or(0),
            shard_budget: shard_budget_shared - shard_budget_shared / 8,
            shard_budget_shared,
            when_full,
            fingerprinter: seed.map_or_else(Fingerprinter::random, Fingerprinter::seeded),
            shared: AtomicU64::new(0),
            unmetered: AtomicU64::new(0),
        })
    }

    /// What makes this store's fingerprints.
    #[inline]
    pub const fn fingerprinter(&self) -> &Fingerprinter {
        &self.fingerprinter
    }

    /// Decides all checks of the batch at once and pushes one answer for each.
    ///
    /// Nothing else sees the keys between the first and the last decision.
    pub fn apply_now(&self, batch: &Batch<'_>, answers: &mut Answers) {
        let first = answers.len();
        batch.checks.iter().for_each(|_| answers.push(Answer::BLANK));
        self.answer_now(batch, &mut answers[first..]);
    }

    /// The same as [`MemoryStore::apply_now`] for those who have a place for
    /// each answer: it is made there, which spares moving it.
    #[inline]
    pub fn answer_now(&self, batch: &Batch<'_>, places: &mut [impl Answered]) {
        if batch.verb == Verb::Check {
            if let ([check], [place]) = (batch.checks, &mut *places) {
                return place.put(self.check_one(check, batch.now));
            }
            if self.check_known(batch, places) {
                return;
            }
        }
        self.answer_otherwise(batch, places);
    }

    /// Whatever is not the common case.
    #[inline(never)]
    fn answer_otherwise(&self, batch: &Batch<'_>, places: &mut [impl Answered]) {
        let answers: Answers = match (batch.verb, batch.checks) {
            (Verb::Check | Verb::Peek, _) => self.judge_together(batch),
            (verb, checks) => checks.iter().map(|check| self.act(verb, check, batch.now)).collect(),
        };
        for (place, answer) in places.iter_mut().zip(answers) {
            place.put(answer);
        }
    }

    /// Drops idle keys of one shard and gives its unused memory back; call it
    /// now and then with every number below [`MemoryStore::shards`].
    pub fn sweep(&self, shard: usize, now: Timestamp) {
        if let Some(shard) = self.shards.get(shard) {
            shard.lock().sweep_all(now);
        }
    }

    /// How many shards there are to sweep.
    pub const fn shards(&self) -> usize {
        self.shards.len()
    }

    /// What the store holds now; looks at every shard in turn.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            keys: 0,
            bytes: self.shards.len() * size_of::<ShardLock>(),
            shared: self.shared.load(Ordering::Relaxed),
            unmetered: self.unmetered.load(Ordering::Relaxed),
        };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.keys += shard.keys();
            stats.bytes += shard.bytes();
        }
        stats
    }

    /// Puts a state in place of what is known of a key, if there is room.
    #[cfg(feature = "shared")]
    pub(crate) fn put(&self, key: Fingerprint, state: State, now: Timestamp) {
        let mut shard = self.lock(key);
        let mut loaded = shard.load(key);
        loaded.state = state;
        let _ = shard.keep(key, loaded, now, self.shard_budget);
    }

    /// What is known of a key.
    #[cfg(feature = "shared")]
    pub(crate) fn get(&self, key: Fingerprint) -> State {
        let mut shard = self.lock(key);
        let loaded = shard.load(key);
        let state = loaded.state.clone();
        if !loaded.is_new() {
            // Back to where it was, idle or not.
            let _ = shard.keep(key, loaded, Timestamp::EPOCH, self.shard_budget_shared);
        }
        state
    }

    /// Forgets a key.
    #[cfg(feature = "shared")]
    pub(crate) fn remove(&self, key: Fingerprint) {
        self.lock(key).remove(key);
    }

    /// Applies a verb to one key by itself.
    #[cfg(feature = "shared")]
    pub(crate) fn act_one(&self, verb: Verb, check: &Check<'_>, now: Timestamp) -> Decision {
        let mut answers = Answers::new();
        self.apply_now(&Batch::new(verb, Charge::AllOrNothing, now, &[*check]), &mut answers);
        answers.first().map_or_else(|| self.check_one(check, now).decision, |told| told.decision)
    }

    #[inline]
    fn lock(&self, key: Fingerprint) -> Held<'_> {
        self.shards[self.shard_of(key)].lock()
    }

    #[inline]
    const fn shard_of(&self, key: Fingerprint) -> usize {
        (key.shard_bits() & self.mask) as usize
    }

    /// Finds where a key is counted: at its own place, or, when the store is
    /// full and the key is new, where the configuration says. `promised` are the
    /// places that new keys of the same request will take.
    #[inline]
    fn locate(
        &self,
        shard: &mut Shard,
        check: &Check<'_>,
        promised: Wanted,
        now: Timestamp,
    ) -> Located {
        let key = check.key;
        let loaded = shard.load(key.fingerprint);
        if loaded.is_new() {
            let wanted = promised.and(check);
            return self.locate_new(shard, key, loaded, wanted, now);
        }
        let growth = loaded.state.growth_bytes();
        let fits = growth == 0
            || shard.bytes() + loaded.state.heap_bytes() + growth <= self.shard_budget_shared;
        let basis = if fits { Basis::Exact } else { self.unmetered() };
        Located { key: key.fingerprint, loaded, basis }
    }

    #[cold]
    fn locate_new(
        &self,
        shard: &mut Shard,
        key: Key,
        new: Loaded,
        wanted: Wanted,
        now: Timestamp,
    ) -> Located {
        if shard.make_room(wanted, now, self.shard_budget).is_ok() {
            return Located { key: key.fingerprint, loaded: new, basis: Basis::Exact };
        }
        if self.when_full == WhenFull::Approximate {
            let shared = self.shared_key(key);
            let loaded = shard.load(shared);
            if !loaded.is_new() || shard.make_room(wanted, now, self.shard_budget_shared).is_ok() {
                self.shared.fetch_add(1, Ordering::Relaxed);
                return Located { key: shared, loaded, basis: Basis::Shared };
            }
        }
        Located { key: key.fingerprint, loaded: new, basis: self.unmetered() }
    }

    /// Notes an answer without a counter.
    #[cold]
    fn unmetered(&self) -> Basis {
        self.unmetered.fetch_add(1, Ordering::Relaxed);
        Basis::Full
    }

    /// The counter that a new key shares with others of its limit and shard.
    fn shared_key(&self, key: Key) -> Fingerprint {
        let cell = key.fingerprint.stored().0 % SHARED_CELLS;
        self.fingerprinter.of(key.group, &cell.to_le_bytes())
    }

    /// Gives a judged key back to its shard.
    #[inline]
    fn conclude(
        &self,
        shard: &mut Shard,
        located: Located,
        decision: Decision,
        now: Timestamp,
    ) -> Answer {
        let Located { key, loaded, basis } = located;
        let budget = match basis {
            Basis::Shared | Basis::Full => self.shard_budget_shared,
            _ => self.shard_budget,
        };
        let known = !loaded.is_new();
        let kept = if basis == Basis::Full && !known {
            Ok(())
        } else {
            shard.keep(key, loaded, now, budget)
        };
        let basis = if kept.is_ok() { basis } else { self.unmetered() };
        let decision =
            if basis == Basis::Full { self.when_full(decision, known) } else { decision };
        Answer { decision, basis }
    }

    /// What a cost that cannot be counted is told. A known key whose state has
    /// no room to grow is refused by approximation: early perhaps, never late.
    #[cold]
    fn when_full(&self, decision: Decision, known: bool) -> Decision {
        match self.when_full {
            WhenFull::Allow => return decision,
            WhenFull::Approximate if !known => return decision,
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

    /// The verbs that concern each key by itself.
    fn act(&self, verb: Verb, check: &Check<'_>, now: Timestamp) -> Answer {
        let ask = ask(check, now);
        let mut shard = self.lock(check.key.fingerprint);
        if matches!(verb, Verb::Take | Verb::Charge) {
            let mut located = self.locate(&mut shard, check, Wanted::default(), now);
            let ask = located.ask(check, now);
            let state = &mut located.loaded.state;
            let decision = match located.basis {
                Basis::Full => check.limit.peek(state, ask),
                _ if verb == Verb::Take => check.limit.take(state, ask),
                _ => check.limit.overcharge(state, ask),
            };
            return self.conclude(&mut shard, located, decision, now);
        }
        // A key without a counter of its own has nothing to give back: what it
        // used of a shared one stays used.
        let mut loaded = shard.load(check.key.fingerprint);
        let known = !loaded.is_new();
        let decision = match verb {
            Verb::Refund => check.limit.refund(&mut loaded.state, ask),
            Verb::Reset => check.limit.peek(&mut State::Unused, ask.with_cost(0)),
            Verb::Check | Verb::Peek | Verb::Take | Verb::Charge => {
                check.limit.peek(&mut loaded.state, ask)
            }
        };
        if verb == Verb::Reset {
            shard.remove(check.key.fingerprint);
        } else if known {
            let key = check.key.fingerprint;
            let _ = shard.keep(key, loaded, now, self.shard_budget_shared);
        }
        Answer { decision, basis: Basis::Exact }
    }
}

impl MemoryStore {
    /// Frees slots that were taken as [`Tenure::Held`](tidegate_algorithms::Tenure::Held).
    pub fn release(&self, key: Key, holder: Holder, count: u64) {
        self.release_slots(key, holder, count);
    }
}

impl CounterStore for MemoryStore {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        self.apply_now(batch, answers);
        Ok(())
    }

    #[inline]
    fn local(&self) -> Option<&MemoryStore> {
        Some(self)
    }

    fn give_back(&self, batch: &Batch<'_>) {
        for check in batch.checks {
            if self.give_back_slots(check, batch.now) {
                continue;
            }
            let key = check.key.fingerprint;
            let mut shard = self.lock(key);
            let mut loaded = shard.load(key);
            // As in a refund: who has no counter has nothing to give back.
            if !loaded.is_new() {
                check.limit.give_back(&mut loaded.state, ask(check, batch.now));
                let _ = shard.keep(key, loaded, batch.now, self.shard_budget_shared);
            }
        }
    }
}

impl Wanted {
    /// One more key.
    fn and(self, check: &Check<'_>) -> Self {
        let shelved = usize::from(check.limit.small().is_none());
        Wanted { keys: self.keys + 1, shelved: self.shelved + shelved }
    }
}

#[inline]
const fn ask(check: &Check<'_>, now: Timestamp) -> Ask {
    Ask { cost: check.cost, now, holder: check.holder, tenure: check.tenure }
}
