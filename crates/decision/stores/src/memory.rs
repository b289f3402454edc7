//! Counters in this process: a sharded table under a hard byte budget.
//!
//! The calling thread decides while it holds the lock of a shard, or of the few shards that a
//! request's keys are in. A key takes 24 bytes whatever its length. Keys whose state no longer
//! matters are dropped a few at a time; a key that is being limited is never dropped to make room.
//! [`WhenFull`] says what happens to new keys when the budget is used up.
//!
//! There are three code paths:
//!
//! | Module | Decides |
//! |---|---|
//! | `known_keys` | checks of keys that are in the table, without taking their states out: nearly all |
//! | `general` | several checks of which one needs more: a new key, a key that occurs twice, a list that grows |
//! | `verbs` | one verb on one key: a check of a new key, and everything but checks |

mod general;
mod known_keys;
mod lock;
mod metrics;
mod overflow;
mod shard;
mod slot;
mod verbs;

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "shared")]
use tidegate_algorithms::State;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_macros::defaults;
use tidegate_metrics::{Collector, Exposition};

use crate::batch::{Answer, AnswerSlot, Answers, Batch, Verb};
use crate::counter_store::{CounterStore, StoreError};
use crate::fingerprint::{Fingerprint, Fingerprinter};
pub use known_keys::UnitsOutcome;
use lock::{LockedShard, ShardLock};
pub use metrics::MEMORY_METRICS;
use shard::Shard;
use tidegate_words::words;

/// With less, a shard could not hold the counters that [`WhenFull::Approximate`] needs.
const BUDGET_MIN: usize = 64 * 1024;
/// The bytes of a shard below [`SHARDS_MAX`]: growing a shard of a megabyte takes a fraction of a
/// millisecond.
const SHARD_BYTES: usize = 1024 * 1024;
const SHARDS_MIN: usize = 16;
const SHARDS_MAX: usize = 65_536;
/// Counters that the new keys of one limit share in each shard of a full store.
const SHARED_CELLS: u64 = 16;
/// The retry time of a full store's refusals: enough for the sweep to free slots.
const FULL_RETRY: Nanos = Nanos::from_secs(1);

defaults! {
    /// The settings of a [`MemoryStore`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MemoryConfig {
        /// The bytes that all counters together may take. Default: 256 MiB, about seven million keys.
        pub budget_bytes: usize = 256 * 1024 * 1024,
        /// The treatment of new keys when the budget is used up. Default: they share counters.
        pub when_full: WhenFull = WhenFull::Approximate,
        /// The seed of the fingerprints; random if `None`.
        pub seed: Option<u64>,
    }
}

words! {
    /// The treatment of a new key when the byte budget is used up and no key is idle.
    #[derive(Default)]
    pub enum WhenFull {
        /// New keys of a limit share a few counters, which may refuse too early, never too late.
        #[default]
        Approximate = "approximate",
        /// New keys are admitted without being counted.
        Allow = "allow",
        /// New keys are refused.
        Deny = "deny",
    }
}

/// A configuration that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The budget is too small to count anything.
    #[error("the counters need a budget of at least {BUDGET_MIN} bytes, not {budget_bytes}")]
    BudgetTooSmall {
        /// The configured budget.
        budget_bytes: usize,
    },
}

/// The contents of a store, and its answers while it was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys in the table, including idle ones that were not swept yet.
    pub keys: usize,
    /// Bytes allocated for them.
    pub bytes: usize,
    /// The most bytes that they may take.
    pub budget_bytes: usize,
    /// Answers from a shared counter because the store was full.
    pub shared: u64,
    /// Answers without a counter because the store was full.
    pub unmetered: u64,
}

/// Counters in this process.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[ShardLock]>,
    /// The number of shards, a power of two, minus one.
    mask: u32,
    budget_bytes: usize,
    /// The bytes of a shard for ordinary keys.
    shard_budget: usize,
    /// The bytes of a shard in total: the difference is reserved for shared counters.
    shard_budget_shared: usize,
    when_full: WhenFull,
    fingerprinter: Fingerprinter,
    shared: AtomicU64,
    unmetered: AtomicU64,
}

impl MemoryStore {
    /// A store with this configuration.
    ///
    /// # Errors
    /// If the budget is too small to enforce anything.
    pub fn new(config: MemoryConfig) -> Result<Self, ConfigError> {
        let MemoryConfig { budget_bytes, when_full, seed } = config;
        if budget_bytes < BUDGET_MIN {
            return Err(ConfigError::BudgetTooSmall { budget_bytes });
        }
        let shards = (budget_bytes / SHARD_BYTES).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX);
        // A sixteenth is reserved for tables that are being rebuilt.
        let usable =
            (budget_bytes - budget_bytes / 16).saturating_sub(shards * size_of::<ShardLock>());
        let shard_budget_shared = usable / shards;
        Ok(MemoryStore {
            shards: (0..shards).map(|number| ShardLock::new(Shard::new(number))).collect(),
            mask: u32::try_from(shards - 1).unwrap_or(0),
            budget_bytes,
            shard_budget: shard_budget_shared - shard_budget_shared / 8,
            shard_budget_shared,
            when_full,
            fingerprinter: seed.map_or_else(Fingerprinter::random, Fingerprinter::seeded),
            shared: AtomicU64::new(0),
            unmetered: AtomicU64::new(0),
        })
    }

    /// The hash function for this store's keys.
    #[inline]
    pub const fn fingerprinter(&self) -> &Fingerprinter {
        &self.fingerprinter
    }

    /// Decides all checks of the batch atomically and pushes one answer for each.
    pub fn apply_now(&self, batch: &Batch<'_>, answers: &mut Answers) {
        let first = answers.len();
        batch.checks.iter().for_each(|_| answers.push(Answer::BLANK));
        self.answer_now(batch, &mut answers[first..]);
    }

    /// Like [`MemoryStore::apply_now`], but writes each answer into the caller's slot for it, which
    /// saves copies.
    #[inline]
    pub fn answer_now(&self, batch: &Batch<'_>, slots: &mut [impl AnswerSlot]) {
        if batch.verb == Verb::Check {
            if let ([check], [slot]) = (batch.checks, &mut *slots) {
                return slot.put(self.check_one(check, batch.now));
            }
            if self.check_request(batch, slots) {
                return;
            }
        }
        self.answer_generally(batch, slots);
    }

    #[inline(never)]
    fn answer_generally(&self, batch: &Batch<'_>, slots: &mut [impl AnswerSlot]) {
        let answers: Answers = match (batch.verb, batch.checks) {
            (Verb::Check | Verb::Peek, [_, _, ..]) => self.decide_request(batch),
            (verb, checks) => {
                checks.iter().map(|check| self.apply_to_key(verb, check, batch.now)).collect()
            }
        };
        for (slot, answer) in slots.iter_mut().zip(answers) {
            slot.put(answer);
        }
    }

    /// Drops the idle keys of one shard and frees unused memory. Call it periodically for each of
    /// the [`MemoryStore::shards`].
    pub fn sweep(&self, shard: usize, now: Timestamp) {
        if let Some(shard) = self.shards.get(shard) {
            shard.lock().sweep_all(now);
        }
    }

    /// The number of shards.
    pub const fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The present contents; locks every shard in turn.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            keys: 0,
            bytes: self.shards.len() * size_of::<ShardLock>(),
            budget_bytes: self.budget_bytes,
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

    /// Replaces the state of a key, if there is room.
    #[cfg(feature = "shared")]
    pub(crate) fn put(&self, key: Fingerprint, state: State, now: Timestamp) {
        let mut shard = self.lock(key);
        let mut loaded = shard.load(key);
        loaded.state = state;
        let _ = shard.store(key, loaded, now, self.shard_budget);
    }

    /// The state of a key.
    #[cfg(feature = "shared")]
    pub(crate) fn get(&self, key: Fingerprint) -> State {
        let shard = self.lock(key);
        shard.find(key).map_or(State::Unused, |slot| shard.state_at(slot))
    }

    /// Removes a key.
    #[cfg(feature = "shared")]
    pub(crate) fn remove(&self, key: Fingerprint) {
        self.lock(key).remove(key);
    }

    #[inline]
    fn lock(&self, key: Fingerprint) -> LockedShard<'_> {
        self.shards[self.shard_of(key)].lock()
    }

    #[inline]
    const fn shard_of(&self, key: Fingerprint) -> usize {
        (key.shard_bits() & self.mask) as usize
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
        batch.checks.iter().for_each(|check| self.give_back_to_key(check, batch.now));
    }

    fn collect(&self, _now: Timestamp, out: &mut Exposition) {
        self.stats().collect(out);
    }
}
