//! A durable queue of records that are sent later, at the pace of their receiver.
//!
//! [`Queue`] is one small trait: enqueue a batch, claim by count, bytes and cost, settle each claim. Records are
//! delivered at least once, and a record whose enqueue returned is never lost. The queue of each record type is opened
//! from a [`QueueStore`]:
//!
//! | Store | Feature | For |
//! |---|---|---|
//! | `SqliteStore` | `sqlite` (default) | one process that owns a data directory |
//! | `PostgresStore` | `postgres` | several processes that share a PostgreSQL server |
//! | `RedisStore` | `redis` | several processes that share a Redis or Valkey |
//!
//! A store declares its [`Capability`] list; every store passes the same conformance suite.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tidegate_queue::{ClaimBudget, NewRecord, Payload, QueueSettings, QueueStore, SqliteStore};
//!
//! # let parent = tempfile::tempdir()?;
//! # let data_dir = parent.path().join("data");
//! let store = SqliteStore::open(&data_dir)?;
//! let orders = store.open_queue("orders", QueueSettings::default()).await?;
//! orders.enqueue(vec![NewRecord::new(Payload::from_body("order 1"))]).await?;
//!
//! let claim = orders.claim(ClaimBudget::records(10, Duration::from_secs(60))).await?;
//! for delivery in claim.deliveries {
//!     // … send it, then:
//!     orders.ack(vec![delivery.receipt]).await?;
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! Sending, pacing and retry policies belong to the caller. The queue knows when a record may be claimed and by whom.

mod capability;
mod clock;
mod error;
mod open;
mod queue;
mod record;
pub mod schedule;
mod settings;

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use capability::Capability;
pub use clock::WallClock;
pub use error::{Fullness, QueueError, RecordProblem};
pub use open::open_store;
pub use queue::{
    AttemptCharge, Claim, ClaimBudget, ClassStats, DeadLetter, DeadLetterReason,
    DeadLetterSelection, Delivery, EnqueueOutcome, JOB_KEPT, JobSelection, JobStats, Queue,
    QueueFuture, QueueStats, QueueStore, Receipt, SettleOutcome, Settlement, Withheld,
};
pub use record::{
    COST_MAX, HEADERS_MAX, KEY_BYTES_MAX, NewRecord, PAYLOAD_BYTES_MAX, Payload, PriorityClass,
    Record, RecordId, RecordIdError,
};
pub use settings::{BATCH_MAX, OrderMode, QueueSettings, RECORD_TYPE_BYTES_MAX};

#[cfg(feature = "postgres")]
pub use postgres::{PostgresSettings, PostgresStore};
#[cfg(feature = "redis")]
pub use redis::{RedisQueueSettings, RedisStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteSettings, SqliteStore};
pub use tidegate_algorithms::{Clock, ManualClock, Nanos, Timestamp};
#[cfg(feature = "redis")]
pub use tidegate_redis_link::RedisSettings;
