//! Turns at a constant pace, separately for each key.
//!
//! A leaky bucket assigns every caller the instant of its turn immediately, so there is no queue, no background task and
//! no wake-up order: each caller sleeps until its own turn. At most the bucket's queue waits; further callers get the
//! time after which to ask again.
//!
//! A caller that is dropped while it waits leaves its turn unused, because the turns after it are assigned already. The
//! outflow then has a gap, and is never too fast. A call takes nothing before its first poll.
//!
//! Turns are exact to the nanosecond, but tokio's timer wakes callers at the next whole millisecond. Above a thousand
//! turns a second, several callers therefore leave at once, at the right average pace.

use std::time::Duration;

use tidegate_algorithms::{Decision, LeakyBucket, Limit, Retry, Timestamp};
use tidegate_stores::{Check, ConfigError, Key, MemoryConfig, MemoryStore};
use tokio::time::{Instant, sleep_until};

/// Assigns turns at a constant pace.
///
/// ```
/// use tidegate_pacer::{LeakyBucket, Pacer, Period, Turn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tidegate_pacer::ConfigError> {
/// // Ten calls a second to each host; up to fifty wait.
/// let pacer = Pacer::new(LeakyBucket::new(10, Period::SECOND, 50))?;
/// match pacer.turn("mail.example").await {
///     Turn::Yours => println!("send it"),
///     Turn::Full { retry_after } => println!("ask again after {retry_after:?}"),
///     Turn::Never => println!("it can never be sent"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pacer {
    limit: Limit,
    store: MemoryStore,
    /// The start of the store's time.
    origin: Instant,
}

/// The answer to a caller that asked for a turn.
#[must_use = "only `Turn::Yours` permits the call"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The turn has come.
    Yours,
    /// The queue is full.
    Full {
        /// When there is room, if no other caller asks before.
        retry_after: Duration,
    },
    /// The turn never comes: the cost exceeds the queue, or the bucket has no outflow.
    Never,
}

impl Pacer {
    /// A pacer with the default memory budget.
    ///
    /// # Errors
    /// Never with the default configuration; see [`Pacer::with`].
    pub fn new(bucket: LeakyBucket) -> Result<Self, ConfigError> {
        Self::with(bucket, MemoryConfig::default())
    }

    /// A pacer with its own memory budget. When it is used up, `memory.when_full` decides about new keys; by default
    /// they share turns.
    ///
    /// # Errors
    /// When the budget is too small to pace anything.
    pub fn with(bucket: LeakyBucket, memory: MemoryConfig) -> Result<Self, ConfigError> {
        let store = MemoryStore::new(memory)?;
        Ok(Pacer { limit: Limit::new(bucket), store, origin: Instant::now() })
    }

    /// Waits for the key's next turn, or returns immediately if the queue is full.
    pub async fn turn(&self, key: impl AsRef<[u8]>) -> Turn {
        self.turn_costing(key, 1).await
    }

    /// Like [`Pacer::turn`], for a call that counts as `cost` calls: the turn after it comes that much later.
    pub async fn turn_costing(&self, key: impl AsRef<[u8]>, cost: u64) -> Turn {
        let now = Instant::now();
        let decision = self.decide(key.as_ref(), cost, now);
        if !decision.is_admitted() {
            return match decision.retry {
                Retry::After(wait) => Turn::Full { retry_after: wait.into() },
                Retry::Now | Retry::Never => Turn::Never,
            };
        }
        let delay = Duration::from(decision.delay);
        if !delay.is_zero() {
            sleep_until(now + delay).await;
        }
        Turn::Yours
    }

    fn decide(&self, key: &[u8], cost: u64, now: Instant) -> Decision {
        let fingerprint = self.store.fingerprinter().of(0, key);
        let check = Check::new(Key { fingerprint, group: 0 }, &self.limit, cost);
        let passed = now.saturating_duration_since(self.origin);
        self.store.check_one(&check, Timestamp::EPOCH.after(passed.into())).decision
    }
}
