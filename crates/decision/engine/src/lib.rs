//! One request in, one verdict out.
//!
//! [`Engine`] applies the rules of a snapshot to requests, with counters in memory or in a shared store.
//! [`KeyedLimiter`] is one limit for many keys, without rules. This crate knows nothing of HTTP, gRPC or files.
//!
//! ```
//! use tidegate_engine::{
//!     Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Options, Request, Source, SystemClock, compile,
//! };
//!
//! let rules = "
//! domain: api
//! descriptors:
//! - key: user
//!   rate_limit: {unit: hour, requests_per_unit: 1}
//! ";
//! let rules = compile(&[Source::new("api.yaml", rules)], &Options::default())?;
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let engine = Engine::new(store, SystemClock::new()).with_rules(rules);
//!
//! let entries = [Entry { key: "user", value: "alice" }];
//! let descriptors = [Descriptor::new(&entries)];
//! let request = Request::new("api", &descriptors);
//! assert!(engine.check_now(&request).is_admitted());
//! assert!(!engine.check_now(&request).is_admitted());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clock;
mod keyed_limiter;

mod request;
mod verdict;

mod active_rules;
mod counter_names;
mod engine;
mod hits;
mod metrics;
mod prepare;
mod run_time_modes;
mod tally;
mod unmatched;

mod containment;
mod deposit;
mod failure_mode;
mod observer;
mod permit;

pub use clock::SystemClock;
pub use containment::{ContainedFuture, LimiterStage, contain, contain_future, fault_injection};
pub use deposit::Deposit;
pub use engine::{Engine, LocalEngine, Target, UnknownTarget};
pub use failure_mode::{FailureMode, Undecided};
pub use hits::{LimitHits, LimitLabels, OTHERS, RuleHits, outcomes};
pub use keyed_limiter::KeyedLimiter;
pub use metrics::ENGINE_METRICS;
pub use observer::Observer;
pub use permit::Permit;
pub use prepare::DESCRIPTORS_MAX;
pub use request::{Descriptor, Request};
pub use run_time_modes::LimiterKind;
pub use tally::{NearLimit, Tally, TallyCell};
pub use verdict::{Refusal, Ruling, Verdict};

pub use tidegate_algorithms::{
    Algorithm, CalendarUnit, Clock, Concurrency, Decision, FixedWindow, Holder, LeakyBucket, Limit,
    ManualClock, Mode, Nanos, Outcome, ParameterError, Percent, Period, PeriodError, Retry,
    SlidingLog, SlidingWindow, Soft, Tenure, Timestamp, TokenBucket, Window,
};
pub use tidegate_rules::{
    Domain, Entry, Exemption, Explanation, LimitId, MatchOutcome, Options, RefusalStatus, Report,
    Rows, Rule, RuleId, RuleLimit, ShownValue, Snapshot, Source, Unit, WhenOver, compile,
    compile_with_rows,
};
pub use tidegate_stores::{
    Basis, ConfigError, CounterStore, FailureKind, MemoryConfig, MemoryStore, Role, Stats,
    StoreError, Verb, WhenFull,
};
