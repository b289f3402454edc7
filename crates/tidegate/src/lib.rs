//! Rate limiting and overload protection to embed in a Rust service.
//!
//! One dependency for everything that runs inside your process. Check a request against rules:
//!
//! ```
//! use tidegate::{
//!     Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Options, Request, Source, SystemClock, compile,
//! };
//!
//! let rules = "
//! domain: api
//! descriptors:
//! - key: user
//!   rate_limit: {unit: hour, requests_per_unit: 2}
//! ";
//! let rules = compile(&[Source::new("rules.yaml", rules)], &Options::default())?;
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let engine = Engine::new(store, SystemClock::new()).with_rules(rules);
//!
//! let entries = [Entry { key: "user", value: "alice" }];
//! let descriptors = [Descriptor::new(&entries)];
//! let request = Request::new("api", &descriptors);
//! assert!(engine.check_now(&request).is_admitted());
//! assert!(engine.check_now(&request).is_admitted());
//! assert!(!engine.check_now(&request).is_admitted());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Or limit keys without rules:
//!
//! ```
//! use tidegate::{KeyedLimiter, Limit, Period, TokenBucket};
//!
//! let limiter = KeyedLimiter::new(Limit::new(TokenBucket::new(100, Period::SECOND, 200)))?;
//! assert!(limiter.check("alice").is_admitted());
//! # Ok::<(), tidegate::ConfigError>(())
//! ```
//!
//! | Feature | Adds | Example |
//! |---|---|---|
//! | (none) | [`Engine`], [`KeyedLimiter`], rules, the memory store | `concurrency` |
//! | `layer` (default) | `layer`: a tower layer that limits any HTTP service | `layer` |
//! | `protection` | `protection`: a gate and shedders for overload; with `layer`, a tower layer for them | `protection` |
//! | `pacer` | `pacer`: calls that leave at the pace their receiver allows | `pacer` |
//! | `client` | `client`: a tower layer for outgoing calls that keep to the limits of their targets | |
//! | `control` | `control`: rules from a control plane, as signed snapshots read on a beat | |
//! | `queue` | `queue`: a durable queue of records that are sent later | `queue` |
//! | `queue-postgres` | the same in PostgreSQL, for several processes | |
//! | `capacity` | `capacity`: shares of a throttled service's capacity, under leases | `capacity` |
//! | `forwarder` | `forwarder`: durable queues drained at the pace that a throttled service allows | `batch_import`, `paced_worker` |
//! | `redis` | limits that several processes share, in [`stores`] | `redis` |
//!
//! The service and the gateway are the binary `tidegate`, package `tidegate-app`.

// Limits and their decisions.
pub use tidegate_engine::{
    Algorithm, CalendarUnit, Concurrency, Decision, FixedWindow, Holder, LeakyBucket, Limit,
    Outcome, ParameterError, Period, PeriodError, Retry, SlidingLog, SlidingWindow, Soft, Tenure,
    TokenBucket, Window,
};
// Deciding.
pub use tidegate_engine::{
    Basis, DESCRIPTORS_MAX, Deposit, Descriptor, Engine, Entry, FailureMode, KeyedLimiter,
    LocalEngine, NearLimit, Observer, Permit, Refusal, Request, Role, Ruling, Tally, Undecided,
    Verb, Verdict,
};
pub use tidegate_engine::{Clock, ManualClock, Nanos, SystemClock, Timestamp};
// Counters.
pub use tidegate_engine::{
    ConfigError, CounterStore, FailureKind, MemoryConfig, MemoryStore, Stats, StoreError, WhenFull,
};
// Rules and modes.
pub use tidegate_engine::{
    Domain, Explanation, LimitId, LimiterKind, MatchOutcome, Mode, Options, Percent, Report, Rows,
    Rule, RuleId, RuleLimit, Snapshot, Source, Target, Unit, UnknownTarget, WhenOver, compile,
    compile_with_rows,
};

/// Where counters live: in memory, or in Redis with the feature `redis`.
pub use tidegate_stores as stores;

/// A tower layer that limits any HTTP service: axum, hyper, tonic.
#[cfg(feature = "layer")]
pub mod layer {
    pub use tidegate_admission::{DelaySettings, RequestDescription};
    pub use tidegate_answers::{
        Cause, HeaderFormat, HeaderSet, HeadersOn, Refusal, Renderer, ResetAs, ViolatedLimit,
    };
    pub use tidegate_tower_layer::*;
}

/// Overload protection: a gate in front of the work, shedders by category, the share of a fleet.
#[cfg(feature = "protection")]
pub use tidegate_overload as protection;

/// Calls that leave at the pace their receiver allows.
#[cfg(feature = "pacer")]
pub use tidegate_pacer as pacer;

/// Outgoing HTTP calls that keep to the limits of the services they call.
#[cfg(feature = "client")]
pub use tidegate_client as client;

/// Rules from a control plane: signed snapshots, read on a beat and kept on disk.
#[cfg(feature = "control")]
pub use tidegate_retriever as control;

/// A durable queue of records that are sent later, at the pace of their receiver.
#[cfg(feature = "queue")]
pub use tidegate_queue as queue;

/// Shares of a throttled service's capacity, for processes that do not know each other.
#[cfg(feature = "capacity")]
pub use tidegate_capacity as capacity;

/// One attempt at sending records: HTTP, a command, your own processor.
#[cfg(feature = "forwarder")]
pub use tidegate_delivery as delivery;

/// Durable queues drained at the pace that a throttled service allows.
#[cfg(feature = "forwarder")]
pub use tidegate_forwarder as forwarder;
