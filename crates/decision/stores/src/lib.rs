//! Stores for counters.
//!
//! A store decides next to the data: a [`Batch`] of checks goes in, one [`Answer`] for each comes back, computed by the
//! pure functions of `tidegate-algorithms`. [`MemoryStore`] keeps the state in this process. With the feature `redis`,
//! `RedisStore` keeps it in Redis or Valkey, where many processes share it. With `shared`, `SharedStore` wraps such a
//! store and calls it less often.
//!
//! ```
//! use tidegate_algorithms::{Limit, Period, Timestamp, TokenBucket};
//! use tidegate_stores::{Answers, Batch, Charge, Check, Key, MemoryConfig, MemoryStore, Verb};
//!
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let limit = Limit::new(TokenBucket::new(10, Period::SECOND, 1));
//! let key = Key { fingerprint: store.fingerprinter().of(1, b"alice"), group: 1 };
//! let checks = [Check::new(key, &limit, 1)];
//! let now = Timestamp::from_secs(1_800_000_000);
//! let batch = Batch::new(Verb::Check, Charge::AllOrNothing, now, &checks);
//!
//! let mut answers = Answers::new();
//! store.apply_now(&batch, &mut answers);
//! store.apply_now(&batch, &mut answers);
//! assert!(answers[0].decision.is_admitted());
//! assert!(!answers[1].decision.is_admitted());
//! # Ok::<(), tidegate_stores::ConfigError>(())
//! ```

mod fingerprint;

mod batch;
mod check_all;
mod counter_store;

mod memory;
#[cfg(feature = "redis")]
mod redis;

#[cfg(feature = "shared")]
mod shared;

pub use batch::{
    Answer, AnswerSlot, Answers, Basis, Batch, Charge, Check, Consistency, Key, OnStoreError,
    Policy, Role, Verb, passes,
};
pub use counter_store::{CounterStore, FailureKind, StoreError};
pub use fingerprint::{Fingerprint, Fingerprinter};
pub use memory::{
    ConfigError, MEMORY_METRICS, MemoryConfig, MemoryStore, Stats, UnitsOutcome, WhenFull,
};
#[cfg(feature = "redis")]
pub use redis::{HeldCounts, RedisStore, UpstreamLayout, UpstreamStore};
#[cfg(feature = "shared")]
pub use shared::{
    CountReport, CurrentRoute, DueCharge, LeaseCounts, Metrics, NodeId, OVERSHOOT_BOUNDS, Remains,
    Remote, ReportAnswer, ReportRecord, Route, SHARED_METRICS, SharedSettings, SharedStore,
    StoreErrors, consistency_for,
};
#[cfg(feature = "redis")]
pub use tidegate_redis_link::{
    ClientFigures, ClientTls, Histogram, LinkState, Login, NameCheck, Password, REDIS_METRICS,
    RedisAddress, RedisServers, RedisSettings, RedisSettingsError, Secret,
};
