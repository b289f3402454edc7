//! Calls that leave at the pace their receiver allows.
//!
//! Workers of one process await their turn at a [`Pacer`] before each call. Waiting calls are tasks in memory; they end
//! with the process.
//!
//! ```
//! use tidegate_pacer::{LeakyBucket, Pacer, Period, Turn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tidegate_pacer::ConfigError> {
//! // Ten calls a second to each host; up to fifty wait.
//! let pacer = Pacer::new(LeakyBucket::new(10, Period::SECOND, 50))?;
//! assert_eq!(pacer.turn("mail.example").await, Turn::Yours);
//! # Ok(())
//! # }
//! ```

mod pacer;

pub use pacer::{Pacer, Turn};

pub use tidegate_algorithms::{LeakyBucket, Period};
pub use tidegate_stores::{ConfigError, MemoryConfig, WhenFull};
