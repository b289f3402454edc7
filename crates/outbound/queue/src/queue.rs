//! The trait of all queues, and the values that pass through it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_algorithms::Timestamp;

use crate::capability::Capability;
use crate::error::QueueError;
use crate::record::{NewRecord, PriorityClass, Record, RecordId};
use crate::settings::QueueSettings;

/// The answer of a queue. Boxed, so that a queue can be chosen at run time: one allocation per batch.
pub type QueueFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, QueueError>> + Send + 'a>>;

/// A store that holds the queues of several record types.
pub trait QueueStore: Send + Sync {
    /// What its queues can do.
    fn capabilities(&self) -> &'static [Capability];

    /// Opens the queue of a record type, and creates it if it is missing.
    ///
    /// Open each type once in a process: the settings of the last opening apply. Records keep the deadline that they
    /// got when they were enqueued.
    fn open_queue(
        &self,
        record_type: &str,
        settings: QueueSettings,
    ) -> QueueFuture<'_, Arc<dyn Queue>>;
}

/// The queue of one record type.
///
/// Delivery is at least once: a record is delivered again when its lease ends before it is settled. A record whose
/// enqueue returned `Ok` stays until it is acknowledged or purged. Dropping a future does not undo its operation.
pub trait Queue: Send + Sync {
    /// What it can do.
    fn capabilities(&self) -> &'static [Capability];

    /// Stores a batch: all of it or nothing. When it returns, the records are durable.
    fn enqueue(&self, batch: Vec<NewRecord>) -> QueueFuture<'_, Vec<EnqueueOutcome>>;

    /// Takes records within a budget. Until the lease ends, no other claim gets them.
    fn claim(&self, budget: ClaimBudget) -> QueueFuture<'_, Claim>;

    /// Ends, returns or extends claims.
    fn settle(
        &self,
        settlements: Vec<(Receipt, Settlement)>,
    ) -> QueueFuture<'_, Vec<SettleOutcome>>;

    /// Counts what the queue holds.
    fn stats(&self) -> QueueFuture<'_, QueueStats>;

    /// Lists dead letters by id, without their payloads, from the first after `after`.
    fn list_dead_letters(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> QueueFuture<'_, Vec<DeadLetter>>;

    /// One dead letter, with its payload.
    fn show_dead_letter(&self, id: RecordId) -> QueueFuture<'_, Option<DeadLetter>>;

    /// Enqueues up to `limit` dead letters again, the oldest first, with their ids and without their attempts. Returns
    /// how many. Callers redrive at a rate by small limits.
    fn redrive(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64>;

    /// Deletes up to `limit` dead letters, the oldest first. Returns how many.
    fn purge(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64>;

    /// Counts the records of jobs, the newest job first. A finished job is forgotten a week after its last enqueue.
    fn jobs(&self, selection: JobSelection) -> QueueFuture<'_, Vec<JobStats>> {
        drop(selection);
        Box::pin(async { Err(QueueError::Unsupported(Capability::Jobs)) })
    }

    /// Removes records that were sent.
    fn ack(&self, receipts: Vec<Receipt>) -> QueueFuture<'_, Vec<SettleOutcome>> {
        self.settle(receipts.into_iter().map(|receipt| (receipt, Settlement::Ack)).collect())
    }

    /// Returns a record, to be claimed again from `not_before` on.
    fn nack(
        &self,
        receipt: Receipt,
        not_before: Timestamp,
        charge: AttemptCharge,
    ) -> QueueFuture<'_, Vec<SettleOutcome>> {
        self.settle(vec![(receipt, Settlement::Nack { not_before, charge })])
    }

    /// Prolongs a lease: it ends `lease` from now.
    fn extend(&self, receipt: Receipt, lease: Duration) -> QueueFuture<'_, Vec<SettleOutcome>> {
        self.settle(vec![(receipt, Settlement::Extend { lease })])
    }

    /// Moves a record to the dead letters.
    fn dead_letter(&self, receipt: Receipt, detail: String) -> QueueFuture<'_, Vec<SettleOutcome>> {
        self.settle(vec![(receipt, Settlement::DeadLetter { detail })])
    }
}

/// What became of a record of an accepted batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueOutcome {
    /// It was stored under this id.
    Accepted(RecordId),
    /// A record with its deduplication key was stored before, under this id.
    Duplicate(RecordId),
}

impl EnqueueOutcome {
    /// The id of the stored record.
    pub const fn id(self) -> RecordId {
        match self {
            EnqueueOutcome::Accepted(id) | EnqueueOutcome::Duplicate(id) => id,
        }
    }
}

/// How much a claim may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimBudget {
    /// Records; at most [`BATCH_MAX`](crate::BATCH_MAX).
    pub records: usize,
    /// The sum of their costs.
    pub cost: u64,
    /// The sum of their payload bytes.
    pub bytes: u64,
    /// How long the claim holds. Stores without a lease per claim, such as brokers with one timeout per consumer,
    /// round it up.
    pub lease: Duration,
}

impl ClaimBudget {
    /// A budget that is limited by count only.
    pub const fn records(records: usize, lease: Duration) -> Self {
        ClaimBudget { records, cost: u64::MAX, bytes: u64::MAX, lease }
    }
}

/// The records that a claim took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The records, in the order in which to send them.
    pub deliveries: Vec<Delivery>,
    /// The next record, if the budget had room for another record but not for its cost or bytes. Later records do not
    /// overtake it, so that a costly record is not passed over forever.
    pub withheld: Option<Withheld>,
    /// When the next delayed record or ended lease becomes claimable, if the claim found too few records.
    pub next_due: Option<Timestamp>,
}

/// A record that did not fit into a claim's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Its cost.
    pub cost: u64,
    /// Its payload bytes.
    pub bytes: u64,
}

/// A claimed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Proves the claim.
    pub receipt: Receipt,
    /// When the claim ends.
    pub lease_ends: Timestamp,
    /// The record.
    pub record: Record,
}

/// The proof of a claim. It is valid until the record is settled or claimed again.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    record: RecordId,
    token: Bytes,
}

impl Receipt {
    /// A receipt with a token that only its store understands.
    pub fn new(record: RecordId, token: impl Into<Bytes>) -> Self {
        Receipt { record, token: token.into() }
    }

    /// The record.
    pub const fn record(&self) -> RecordId {
        self.record
    }

    /// The store's token.
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    pub(crate) fn of_epoch(record: RecordId, epoch: i64) -> Self {
        Receipt::new(record, epoch.to_be_bytes().to_vec())
    }

    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    pub(crate) fn epoch(&self) -> Option<i64> {
        self.token.as_ref().try_into().ok().map(i64::from_be_bytes)
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receipt({})", self.record)
    }
}

/// How a claim ends or goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The record was sent: remove it.
    Ack,
    /// The record is claimed again from `not_before` on.
    Nack {
        /// The first instant of the next claim.
        not_before: Timestamp,
        /// Whether an attempt was made.
        charge: AttemptCharge,
    },
    /// The lease ends `lease` from now.
    Extend {
        /// The new span.
        lease: Duration,
    },
    /// The record becomes a dead letter.
    DeadLetter {
        /// Why: a status, an error message. Cut after [`DeadLetterReason::DETAIL_BYTES_MAX`] bytes.
        detail: String,
    },
}

/// Whether a returned record spent an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptCharge {
    /// The attempt failed.
    Failed,
    /// The target throttled the attempt, or it was not made.
    Free,
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    /// It was done.
    Applied,
    /// The record was settled, removed or claimed again before. Nothing was changed.
    StaleReceipt,
}

/// Counts of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Live records of each class: waiting or in flight.
    pub classes: [ClassStats; PriorityClass::ALL.len()],
    /// Live records that are claimed. A lease that ended counts until the next claim finds it.
    pub in_flight: u64,
    /// Dead letters.
    pub dead_records: u64,
    /// Payload bytes of the dead letters.
    pub dead_bytes: u64,
    /// When the oldest live record was enqueued.
    pub oldest: Option<Timestamp>,
}

impl QueueStats {
    /// Live records of all classes.
    pub fn live(&self) -> ClassStats {
        self.classes.iter().fold(ClassStats::default(), |sum, class| ClassStats {
            records: sum.records.saturating_add(class.records),
            bytes: sum.bytes.saturating_add(class.bytes),
            cost: sum.cost.saturating_add(class.cost),
        })
    }
}

/// Live records of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Records.
    pub records: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// The sum of their costs.
    pub cost: u64,
}

/// Which jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSelection {
    /// Only the job with this name.
    pub job: Option<String>,
    /// Only records of this tenant.
    pub tenant: Option<String>,
    /// At most this many; at most [`BATCH_MAX`](crate::BATCH_MAX).
    pub limit: usize,
}

/// How long a finished job is remembered after its last enqueue.
pub const JOB_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Counts of a job. Every record that was accepted is live, dead, purged or delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStats {
    /// The name of the job.
    pub job: String,
    /// When its first record was enqueued.
    pub first_enqueued: Timestamp,
    /// Records that were enqueued; duplicates do not count.
    pub accepted: u64,
    /// The cost of them.
    pub accepted_cost: u64,
    /// Records that are waiting or in flight.
    pub live: ClassStats,
    /// Dead letters.
    pub dead: u64,
    /// Dead letters that were deleted.
    pub purged: u64,
}

impl JobStats {
    /// Records that were acknowledged.
    pub const fn delivered(&self) -> u64 {
        self.accepted
            .saturating_sub(self.live.records)
            .saturating_sub(self.dead)
            .saturating_sub(self.purged)
    }
}

/// Why a record is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeadLetterReason {
    /// A processor rejected it.
    Rejected,
    /// Its deadline or the queue's maximum age passed.
    Expired,
    /// Too many of its leases ended without a settlement.
    Lapsed,
}

impl DeadLetterReason {
    /// Bytes kept of the text that says why.
    pub const DETAIL_BYTES_MAX: usize = 1_024;

    /// The word for it in messages and stores.
    pub const fn name(self) -> &'static str {
        match self {
            DeadLetterReason::Rejected => "rejected",
            DeadLetterReason::Expired => "expired",
            DeadLetterReason::Lapsed => "lapsed",
        }
    }

    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [DeadLetterReason::Rejected, DeadLetterReason::Expired, DeadLetterReason::Lapsed]
            .into_iter()
            .find(|reason| reason.name() == name)
    }

    /// The first bytes of a text, cut between characters, without NUL.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    pub(crate) fn cut(detail: &str) -> String {
        let end = detail.floor_char_boundary(DeadLetterReason::DETAIL_BYTES_MAX);
        detail[..end].replace('\0', " ")
    }
}

/// A record that is not delivered any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The record. In a list its payload is empty.
    pub record: Record,
    /// Payload bytes that it takes.
    pub bytes: u64,
    /// When it became a dead letter.
    pub died_at: Timestamp,
    /// Why.
    pub reason: DeadLetterReason,
    /// The processor's words.
    pub detail: String,
}

/// Which dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadLetterSelection {
    /// All of them.
    All,
    /// Those with these ids.
    Ids(Vec<RecordId>),
    /// Those that became dead letters before this instant.
    Before(Timestamp),
}
