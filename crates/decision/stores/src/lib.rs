//! Where counters live.
//!
//! A store is sent the question, not asked for the data: a [`Batch`] of checks
//! goes in, one [`Answer`] for each comes back, decided by the pure functions
//! of `tidegate-algorithms` next to the state. [`MemoryStore`] keeps the state
//! in this process. With the feature `redis`, `RedisStore` keeps it where many
//! processes share it, and with `shared`, `SharedStore` stands before such a
//! store and asks it less often. With `fleet`, `RedisBoard` divides a fleet's
//! capacity between its nodes there.

mod fingerprint;

mod batch;
mod counter_store;

mod memory;
#[cfg(feature = "redis")]
mod redis;

#[cfg(feature = "shared")]
mod shared;

pub use batch::{
    Answer, Answered, Answers, Basis, Batch, Charge, Check, Consistency, Key, OnStoreError, Policy,
    Role, Verb, passes,
};
pub use counter_store::{CounterStore, FailureKind, StoreError};
pub use fingerprint::{Fingerprint, Fingerprinter};
pub use memory::{ConfigError, MemoryConfig, MemoryStore, Stats, Units, WhenFull};
#[cfg(feature = "fleet")]
pub use redis::RedisBoard;
#[cfg(feature = "redis")]
pub use redis::{
    CourierFigures, HeldCounts, Histogram, LinkState, Login, NameCheck, Password, RedisAddress,
    RedisServers, RedisSettings, RedisSettingsError, RedisStore, RedisTls, Secret, UpstreamLayout,
    UpstreamStore,
};
#[cfg(feature = "shared")]
pub use shared::{
    Asking, LeaseCounts, Metrics, NodeId, OVERSHOOT_BOUNDS, Remote, Route, SharedSettings,
    SharedStore, consistency_for,
};
