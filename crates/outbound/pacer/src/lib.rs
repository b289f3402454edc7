//! Calls that leave at the pace their receiver allows.
//!
//! Workers of one process await their turn at a [`Pacer`] before each call. Waiting calls are tasks in memory; they end
//! with the process.

mod pacer;

pub use pacer::{Pacer, Turn};

pub use tidegate_algorithms::{LeakyBucket, Period};
pub use tidegate_stores::{ConfigError, MemoryConfig, WhenFull};
