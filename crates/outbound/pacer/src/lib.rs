//! Calls that leave at the pace their receiver allows.
//!
//! The crate holds the [`Pacer`]: workers of one process ask it for their turn
//! before each call. What waits, waits in memory and is gone with the process.

mod pacer;

pub use pacer::{Pacer, Turn};

pub use tidegate_algorithms::{LeakyBucket, Period};
pub use tidegate_stores::{ConfigError, MemoryConfig, WhenFull};
