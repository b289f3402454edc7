//! A processor: makes one attempt at each record of a batch.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tidegate_queue::{Record, Timestamp};

/// The future of [`Processor::process`].
pub type ProcessorFuture<'a> = Pin<Box<dyn Future<Output = Vec<AttemptResult>> + Send + 'a>>;

/// Makes attempts at records of one type: validate, enrich, deliver.
///
/// A processor never retries by itself: the caller decides from the outcome, because each attempt takes a share of the
/// target's capacity.
pub trait Processor: Send + Sync + 'static {
    /// Makes one attempt at each record of a batch. Returns one result for each, in the same order.
    ///
    /// Dropping the future abandons the attempts; their outcome is then ambiguous.
    fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a>;

    /// The most records that one call takes: 1, or more in bulk mode.
    fn batch_max(&self) -> usize {
        1
    }
}

/// One attempt at a record.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The record.
    pub record: Record,
    /// The number of the attempt: 1 for the first.
    pub number: u32,
    /// The slot under which it is sent, for receivers that reject older epochs.
    pub slot: Option<SlotEpoch>,
    /// When its turn came, by the clock of leases. What the process waits for a processor afterwards is not in it.
    pub departed: Timestamp,
}

/// A leased slot and the epoch of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEpoch {
    /// The number of the slot.
    pub slot: u16,
    /// The epoch, which grows with each change of the owner.
    pub epoch: u64,
}

impl fmt::Display for SlotEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.slot, self.epoch)
    }
}

/// What an attempt led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptResult {
    /// The outcome.
    pub outcome: AttemptOutcome,
    /// The units that the target charged, if it said so.
    pub real_cost: Option<u64>,
    /// The answer, if answers are kept.
    pub response: Option<KeptResponse>,
}

impl AttemptResult {
    /// A result without a cost and without a response.
    pub const fn new(outcome: AttemptOutcome) -> Self {
        AttemptResult { outcome, real_cost: None, response: None }
    }
}

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The target accepted the record.
    Delivered,
    /// The target asked to slow down; spends no attempt.
    Throttled {
        /// How long the target closed itself, if it said so.
        hold: Option<Duration>,
    },
    /// Not done; may be tried again.
    Failed {
        /// The reason, for people.
        detail: String,
    },
    /// Sent, and the answer was lost: `on_ambiguous` decides.
    Ambiguous {
        /// The reason, for people.
        detail: String,
    },
    /// Will never succeed: becomes a dead letter.
    Rejected {
        /// The reason, for people.
        detail: String,
    },
}

/// The part of an answer that is kept with its record.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptResponse {
    /// The status code; the exit code of a command.
    pub status: u16,
    /// The header fields that the settings allow to keep.
    pub headers: Vec<(String, Bytes)>,
    /// The beginning of the body.
    pub body: Bytes,
    /// Whether the body was longer.
    pub truncated: bool,
}

// Bodies may hold secrets, so that logs show sizes only.
impl fmt::Debug for KeptResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fields, bytes) = (self.headers.len(), self.body.len());
        write!(f, "KeptResponse({}, {fields} header fields, {bytes} body bytes)", self.status)
    }
}
