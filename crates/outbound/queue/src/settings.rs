//! How one queue behaves: order, classes, bounds, deduplication.

use std::time::Duration;

use tidegate_algorithms::{Nanos, Timestamp};

use crate::capability::Capability;
use crate::error::{QueueError, RecordProblem};
use crate::record::NewRecord;
use crate::schedule::ClassPolicy;

/// Records of one batch. A larger one would hold up the commits of other producers.
pub const BATCH_MAX: usize = 10_000;
/// Bytes of a record type.
pub const RECORD_TYPE_BYTES_MAX: usize = 64;
/// The longest span of a setting; longer ones leave the range of 64-bit nanoseconds.
const SPAN_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// Which records must be delivered in the order of their enqueue.
///
/// Ordered records are in flight one at a time. The first one blocks the others until it is acknowledged or becomes a
/// dead letter, also while it waits for a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderMode {
    /// No order.
    #[default]
    None,
    /// Records with the same order key.
    Key,
    /// All records.
    Strict,
}

/// The settings of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Which records stay in order.
    pub order: OrderMode,
    /// How classes share the queue.
    pub classes: ClassPolicy,
    /// Records kept: waiting, in flight and dead.
    pub records_max: u64,
    /// Payload bytes kept.
    pub bytes_max: u64,
    /// A record that waits longer becomes a dead letter. `None`: it waits forever.
    pub age_max: Option<Duration>,
    /// For how long a deduplication key is remembered.
    pub dedup_window: Duration,
    /// Leases of a record that may end without a settlement. Then it becomes a dead letter, because it seems to crash
    /// its processors.
    pub lapses_max: u32,
}

impl Default for QueueSettings {
    /// No order, weighted classes, ten million records, 10 GiB, a day of age and of deduplication, 20 lapses.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        QueueSettings {
            order: OrderMode::None,
            classes: ClassPolicy::default(),
            records_max: 10_000_000,
            bytes_max: 10 * 1024 * 1024 * 1024,
            age_max: Some(DAY),
            dedup_window: DAY,
            lapses_max: 20,
        }
    }
}

impl QueueSettings {
    /// Checks the settings and the record type for a store with these capabilities.
    pub fn validate(&self, record_type: &str, has: &[Capability]) -> Result<(), QueueError> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if record_type.is_empty()
            || record_type.len() > RECORD_TYPE_BYTES_MAX
            || !record_type.chars().all(plain)
        {
            return Err(QueueError::InvalidSettings(format!(
                "a record type has 1 to {RECORD_TYPE_BYTES_MAX} letters, digits, `-`, `_` or `.`"
            )));
        }
        let spans = [self.age_max.unwrap_or(Duration::from_secs(1)), self.dedup_window];
        if spans.iter().any(|span| *span > SPAN_MAX || span.is_zero()) {
            let text = "age_max and dedup_window are between 1 ns and 10 years";
            return Err(QueueError::InvalidSettings(text.to_owned()));
        }
        if self.records_max == 0 || self.bytes_max == 0 || self.lapses_max == 0 {
            let text = "records_max, bytes_max and lapses_max are at least 1";
            return Err(QueueError::InvalidSettings(text.to_owned()));
        }
        self.classes.validate()?;
        let needed = match self.order {
            OrderMode::None => return Ok(()),
            OrderMode::Key => Capability::OrderKey,
            OrderMode::Strict => Capability::StrictOrder,
        };
        if has.contains(&needed) { Ok(()) } else { Err(QueueError::Unsupported(needed)) }
    }

    /// Checks a batch, before anything of it is stored.
    pub fn validate_batch(&self, batch: &[NewRecord], now: Timestamp) -> Result<(), QueueError> {
        let mut bytes = 0_u64;
        for (index, record) in batch.iter().enumerate() {
            let invalid = |problem| QueueError::InvalidRecord { index, problem };
            record.validate(now).map_err(invalid)?;
            if self.order == OrderMode::Key && record.order_key.is_none() {
                return Err(invalid(RecordProblem::NoOrderKey));
            }
            bytes = bytes.saturating_add(record.payload.encoded_len() as u64);
        }
        let records = batch.len() as u64;
        if batch.len() > BATCH_MAX || records > self.records_max || bytes > self.bytes_max {
            return Err(QueueError::NeverFits { records, bytes });
        }
        Ok(())
    }

    /// The key whose records are delivered one at a time, in order.
    pub fn serial_key<'a>(&self, record: &'a NewRecord) -> Option<&'a str> {
        match self.order {
            OrderMode::None => None,
            OrderMode::Key => record.order_key.as_deref(),
            // Order keys are not empty, so that a queue whose mode was changed does not mix them.
            OrderMode::Strict => Some(""),
        }
    }

    /// When a record that may be sent from `waiting_since` on becomes a dead letter.
    pub fn deadline(&self, own: Option<Timestamp>, waiting_since: Timestamp) -> Timestamp {
        let by_age = self.age_max.map(|age| waiting_since.after(Nanos::from(age)));
        own.unwrap_or(Timestamp::MAX).min(by_age.unwrap_or(Timestamp::MAX))
    }
}
