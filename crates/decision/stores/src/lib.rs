//! Stores for counters.
//!
//! A store decides next to the data: it gets a [`Batch`] of checks and returns one [`Answer`] for each,
//! using the pure functions of `tidegate-algorithms`. [`MemoryStore`] keeps counters in this process.
//! With the feature `redis`, `RedisStore` keeps them where many processes share them, and with
//! `shared`, `SharedStore` is a local front for such a store that sends it fewer requests. With
//! `fleet`, `RedisBoard` divides a fleet's capacity between its nodes.

mod fingerprint;

mod batch;
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
pub use memory::{ConfigError, MemoryConfig, MemoryStore, Stats, UnitsOutcome, WhenFull};
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
    SharedStore,
};
