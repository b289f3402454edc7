//! One request in, one verdict out.

mod clock;
mod keyed;

pub use clock::SystemClock;
pub use keyed::KeyedLimiter;

pub use tidegate_algorithms::{
    Algorithm, CalendarUnit, Clock, Concurrency, Decision, FixedWindow, Holder, LeakyBucket, Limit,
    ManualClock, Nanos, Outcome, ParameterError, Period, PeriodError, Retry, SlidingLog,
    SlidingWindow, Soft, Timestamp, TokenBucket, Window,
};
pub use tidegate_stores::{ConfigError, MemoryConfig, MemoryStore, Stats, WhenFull};
