//! Stores for counters.
//!
//! A store decides next to the data: a [`Batch`] of checks goes in, one [`Answer`] for each comes back, computed by the
//! pure functions of `tidegate-algorithms`. [`MemoryStore`] keeps the state in this process. With the feature `redis`,
//! `RedisStore` keeps it in Redis or Valkey, where many processes share it. With `shared`, `SharedStore` wraps such a
//! store and calls it less often.

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
    CurrentRoute, LeaseCounts, Metrics, NodeId, OVERSHOOT_BOUNDS, Remote, Route, SHARED_METRICS,
    SharedSettings, SharedStore, consistency_for,
};
#[cfg(feature = "redis")]
pub use tidegate_redis_link::{
    ClientFigures, Histogram, LinkErrorKind, LinkState, Login, NameCheck, Password, REDIS_METRICS,
    RedisAddress, RedisServers, RedisSettings, RedisSettingsError, RedisTls, Secret,
};
