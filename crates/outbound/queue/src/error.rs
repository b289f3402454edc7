//! Why a queue did not do what it was asked.

use tidegate_algorithms::Timestamp;

use crate::capability::Capability;
use crate::queue::QueueStats;
use crate::record::{COST_MAX, HEADERS_MAX, KEY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::settings::QueueSettings;

/// A failed operation. Nothing of it was done, except where a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The queue has no room for the batch now.
    #[error(
        "the queue is full: {} of {} records, {} of {} bytes, and the batch has {} records of {} bytes",
        .0.records, .0.records_max, .0.bytes, .0.bytes_max, .0.batch_records, .0.batch_bytes
    )]
    Full(Fullness),
    /// The batch is larger than the bounds of an empty queue.
    #[error(
        "the batch can never fit: {records} records of {bytes} bytes; raise the bounds or split the batch"
    )]
    NeverFits {
        /// Records of the batch.
        records: u64,
        /// Bytes of the batch.
        bytes: u64,
    },
    /// A record of the batch is not acceptable.
    #[error("record {index} of the batch: {problem}")]
    InvalidRecord {
        /// Its index in the batch.
        index: usize,
        /// The reason.
        problem: RecordProblem,
    },
    /// The settings cannot be used.
    #[error("{0}")]
    InvalidSettings(String),
    /// The settings or the record need a capability that the store lacks.
    #[error("this store has no {0}")]
    Unsupported(Capability),
    /// The stored data is not readable.
    #[error("{0}")]
    Damaged(String),
    /// The disk or the database has no room. Claims and acknowledgements may still succeed.
    #[error("{0}")]
    StorageFull(String),
    /// The store does not answer. The operation may or may not have been done.
    #[error("the queue is unavailable: {0}")]
    Unavailable(String),
}

/// The figures of a full queue, from which a forecast computes when to retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fullness {
    /// Records kept: waiting, in flight and dead.
    pub records: u64,
    /// The bound on them.
    pub records_max: u64,
    /// Payload bytes kept.
    pub bytes: u64,
    /// The bound on them.
    pub bytes_max: u64,
    /// The cost of all records that are waiting or in flight.
    pub cost: u64,
    /// Dead letters among the records; only a redrive or a purge removes them.
    pub dead_records: u64,
    /// When the oldest live record was enqueued.
    pub oldest: Option<Timestamp>,
    /// Records of the rejected batch.
    pub batch_records: u64,
    /// Bytes of the rejected batch.
    pub batch_bytes: u64,
}

impl Fullness {
    /// Checks whether a batch of this many records and bytes fits; an empty one always does.
    pub fn check(
        stats: &QueueStats,
        settings: &QueueSettings,
        batch_records: u64,
        batch_bytes: u64,
    ) -> Result<(), QueueError> {
        let live = stats.live();
        let fullness = Fullness {
            records: live.records.saturating_add(stats.dead_records),
            records_max: settings.records_max,
            bytes: live.bytes.saturating_add(stats.dead_bytes),
            bytes_max: settings.bytes_max,
            cost: live.cost,
            dead_records: stats.dead_records,
            oldest: stats.oldest,
            batch_records,
            batch_bytes,
        };
        let is_full = fullness.records_to_drain() > 0 || fullness.bytes_to_drain() > 0;
        if batch_records > 0 && is_full { Err(QueueError::Full(fullness)) } else { Ok(()) }
    }

    /// How many records must leave before the batch fits.
    pub const fn records_to_drain(&self) -> u64 {
        self.records.saturating_add(self.batch_records).saturating_sub(self.records_max)
    }

    /// How many bytes must leave before the batch fits.
    pub const fn bytes_to_drain(&self) -> u64 {
        self.bytes.saturating_add(self.batch_bytes).saturating_sub(self.bytes_max)
    }
}

/// Why a record is not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordProblem {
    /// Body and headers exceed the maximum.
    #[error("the payload has {bytes} bytes, at most {PAYLOAD_BYTES_MAX} are accepted")]
    PayloadTooLarge {
        /// Encoded bytes.
        bytes: usize,
    },
    /// Too many header fields.
    #[error("it has {count} header fields, at most {HEADERS_MAX} are accepted")]
    TooManyHeaders {
        /// Header fields.
        count: usize,
    },
    /// A tenant, an order key, a deduplication key, a job or a header name is too long.
    #[error("the {field} has {bytes} bytes, at most {KEY_BYTES_MAX} are accepted")]
    KeyTooLong {
        /// Which of them.
        field: &'static str,
        /// Its bytes.
        bytes: usize,
    },
    /// An order key, a deduplication key or a job is empty, or has a NUL character.
    #[error("the {field} is empty or contains a NUL character")]
    InvalidKey {
        /// Which of them.
        field: &'static str,
    },
    /// The cost exceeds the maximum.
    #[error("the cost is {cost}, at most {COST_MAX} is accepted")]
    CostTooLarge {
        /// The cost.
        cost: u64,
    },
    /// The deadline has passed, or lies before `not_before`.
    #[error("its deadline is over before it may be sent")]
    DeadlinePassed,
    /// The queue orders by key, and the record has none.
    #[error("the queue orders by key, and the record has no order key")]
    NoOrderKey,
}
