//! Turns at a constant pace, for each key on its own.
//!
//! A leaky bucket gives every caller the instant of its turn when it asks, so
//! there is no queue to keep, no task to run and nobody to wake in the right
//! order: each caller sleeps until its own turn. At most the bucket's queue
//! waits; whoever comes on top is told how long to stay away.
//!
//! A caller that is dropped while it waits leaves its turn unused: the others
//! have been told theirs. The outflow has a gap then, and is never too fast.
//! Before its first poll a call has taken nothing.
//!
//! Turns are exact to the nanosecond; tokio's timer wakes callers at the next
//! whole millisecond. Above a thousand turns a second several callers
//! therefore leave together, at the right average pace.

use std::time::Duration;

use tidegate_algorithms::{Decision, LeakyBucket, Limit, Retry, Timestamp};
use tidegate_stores::{Check, ConfigError, Key, MemoryConfig, MemoryStore};
use tokio::time::{Instant, sleep_until};

/// Gives turns at a constant pace.
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
    /// What the store's instants are counted from.
    origin: Instant,
}

/// What becomes of someone who asks for a turn.
#[must_use = "only `Turn::Yours` is leave to go"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has come.
    Yours,
    /// As many wait as may.
    Full {
        /// After how long there is room, if nobody else asks meanwhile.
        retry_after: Duration,
    },
    /// It never comes: the cost is larger than the queue, or nothing flows out.
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

    /// A pacer with a memory budget of its own. When it is used up, new keys
    /// are handled as the configuration says; by default they share turns.
    ///
    /// # Errors
    /// When the budget is too small to pace anything.
    pub fn with(bucket: LeakyBucket, memory: MemoryConfig) -> Result<Self, ConfigError> {
        let store = MemoryStore::new(memory)?;
        Ok(Pacer { limit: Limit::new(bucket), store, origin: Instant::now() })
    }

    /// Waits for the key's next turn, or says at once that there is no room to wait.
    pub async fn turn(&self, key: impl AsRef<[u8]>) -> Turn {
        self.turn_costing(key, 1).await
    }

    /// The same for a call as heavy as `cost` others: the next turn comes that
    /// much later.
    pub async fn turn_costing(&self, key: impl AsRef<[u8]>, cost: u64) -> Turn {
        let now = Instant::now();
        let decision = self.ask(key.as_ref(), cost, now);
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

    fn ask(&self, key: &[u8], cost: u64, now: Instant) -> Decision {
        let fingerprint = self.store.fingerprinter().of(0, key);
        let check = Check::new(Key { fingerprint, group: 0 }, &self.limit, cost);
        let passed = now.saturating_duration_since(self.origin);
        self.store.check_one(&check, Timestamp::EPOCH.after(passed.into())).decision
    }
}
