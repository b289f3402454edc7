//! One limit, many keys: the simplest way to limit something.

use tidegate_algorithms::{Clock, Decision, Holder, Limit};
use tidegate_stores::{
    Answers, Batch, Charge, Check, ConfigError, Key, MemoryConfig, MemoryStore, Verb,
};

use crate::clock::SystemClock;

/// One limit applied to any number of keys, in bounded memory.
///
/// ```
/// use tidegate_engine::{KeyedLimiter, Limit, Period, TokenBucket};
///
/// // A hundred a second for each user, two hundred at once.
/// let limiter = KeyedLimiter::new(Limit::new(TokenBucket::new(100, Period::SECOND, 200)))?;
/// assert!(limiter.check("user-42").is_admitted());
/// # Ok::<(), tidegate_engine::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct KeyedLimiter<C = SystemClock> {
    limit: Limit,
    store: MemoryStore,
    clock: C,
}

impl KeyedLimiter {
    /// A limiter with the default memory budget.
    ///
    /// # Errors
    /// Never with the default configuration; see [`KeyedLimiter::with`].
    pub fn new(limit: Limit) -> Result<Self, ConfigError> {
        Self::with(limit, MemoryConfig::default(), SystemClock::new())
    }
}

impl<C: Clock> KeyedLimiter<C> {
    /// A limiter with a memory budget and a clock of its own.
    ///
    /// # Errors
    /// When the budget is too small to enforce anything.
    pub fn with(limit: Limit, memory: MemoryConfig, clock: C) -> Result<Self, ConfigError> {
        Ok(KeyedLimiter { limit, store: MemoryStore::new(memory)?, clock })
    }

    /// Admits and charges one unit, or refuses.
    #[inline]
    pub fn check(&self, key: impl AsRef<[u8]>) -> Decision {
        self.decide(key.as_ref(), 1)
    }

    /// Admits and charges `cost`, or refuses and charges nothing.
    #[inline]
    pub fn check_cost(&self, key: impl AsRef<[u8]>, cost: u64) -> Decision {
        self.decide(key.as_ref(), cost)
    }

    /// The decision that [`KeyedLimiter::check`] would make; charges nothing.
    pub fn peek(&self, key: impl AsRef<[u8]>) -> Decision {
        self.apply(Verb::Peek, key.as_ref(), 1, Holder::default())
    }

    /// Charges what is left, up to `cost`; [`Decision::taken`] is the amount.
    pub fn take(&self, key: impl AsRef<[u8]>, cost: u64) -> Decision {
        self.apply(Verb::Take, key.as_ref(), cost, Holder::default())
    }

    /// Refunds `cost`.
    pub fn refund(&self, key: impl AsRef<[u8]>, cost: u64) -> Decision {
        self.apply(Verb::Refund, key.as_ref(), cost, Holder::default())
    }

    /// Takes a slot of a concurrency limit for `holder`.
    pub fn acquire(&self, key: impl AsRef<[u8]>, holder: Holder) -> Decision {
        self.apply(Verb::Check, key.as_ref(), 1, holder)
    }

    /// Frees the slot of `holder`.
    pub fn release(&self, key: impl AsRef<[u8]>, holder: Holder) -> Decision {
        self.apply(Verb::Refund, key.as_ref(), 1, holder)
    }

    /// Forgets the key.
    pub fn reset(&self, key: impl AsRef<[u8]>) -> Decision {
        self.apply(Verb::Reset, key.as_ref(), 0, Holder::default())
    }

    /// The store behind the limiter.
    pub const fn store(&self) -> &MemoryStore {
        &self.store
    }

    // Not inlined: in the caller's code it has too few registers.
    #[inline(never)]
    fn decide(&self, key: &[u8], cost: u64) -> Decision {
        self.store.decide_one(self.key(key), &self.limit, cost, self.clock.now())
    }

    fn apply(&self, verb: Verb, key: &[u8], cost: u64, holder: Holder) -> Decision {
        let checks = [Check { holder, ..Check::new(self.key(key), &self.limit, cost) }];
        let mut answers = Answers::new();
        let now = self.clock.now();
        let batch = Batch::new(verb, Charge::AllOrNothing, now, &checks);
        self.store.apply_now(&batch, &mut answers);
        answers[0].decision
    }

    #[inline]
    fn key(&self, key: &[u8]) -> Key {
        Key { fingerprint: self.store.fingerprinter().of(0, key), group: 0 }
    }
}
