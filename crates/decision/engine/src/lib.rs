//! One request in, one verdict out.
//!
//! [`Engine`] applies the rules of a snapshot to requests; [`KeyedLimiter`] is
//! one limit over many keys, without rules. Both decide on the calling thread
//! and keep their counters in bounded memory. This crate knows nothing of HTTP,
//! gRPC or files.

mod clock;
mod keyed;

mod request;
mod verdict;

mod engine;
mod gather;
mod loaded;
mod names;
mod switch;
mod tally;

mod deposit;
mod failure_mode;
mod observer;
mod permit;

pub use clock::SystemClock;
pub use deposit::Deposit;
pub use engine::{Engine, Target, UnknownTarget};
pub use failure_mode::{FailureMode, Undecided};
pub use gather::DESCRIPTORS_MAX;
pub use keyed::KeyedLimiter;
pub use observer::Observer;
pub use permit::Permit;
pub use request::{Descriptor, Request};
pub use switch::{LimiterKind, Switch};
pub use tally::{NearLimit, Tally};
pub use verdict::{Refusal, Ruling, Verdict};

pub use tidegate_algorithms::{
    Algorithm, CalendarUnit, Clock, Concurrency, Decision, FixedWindow, Holder, LeakyBucket, Limit,
    ManualClock, Nanos, Outcome, ParameterError, Period, PeriodError, Retry, SlidingLog,
    SlidingWindow, Soft, Timestamp, TokenBucket, Window,
};
pub use tidegate_rules::{
    Domain, Ending, Entry, Explanation, LimitId, Mode, Options, RefusalStatus, Report, Rule,
    RuleId, RuleLimit, Snapshot, Source, Unit, WhenOver, compile,
};
pub use tidegate_stores::{
    Basis, ConfigError, CounterStore, FailureKind, MemoryConfig, MemoryStore, Role, Stats,
    StoreError, Verb, WhenFull,
};
