//! Rows of the database and what they mean.

use std::path::Path;

use bytes::Bytes;
use rusqlite::Row;
use tidegate_algorithms::Timestamp;
use tidegate_data_dir::DataDirError;

use super::state::{Engine, count, instant};
use crate::error::QueueError;
use crate::queue::{Claim, DeadLetter, DeadLetterReason, Delivery, Receipt, Withheld};
use crate::record::{Payload, PriorityClass, Record};

/// The columns that [`StoredRecord::read`] reads, of `records` and of `dead_letters`.
pub(super) const RECORD_COLUMNS: &str = "sequence, class, tenant, serial_key, cost, bytes, enqueued_at, deadline, \
                                         epoch, attempts, lapses, job";
/// The number of these columns.
pub(super) const RECORD_COLUMN_COUNT: usize = 12;

/// The columns that records and dead letters have in common.
#[derive(Debug)]
pub(super) struct StoredRecord {
    pub(super) sequence: i64,
    pub(super) class: i64,
    pub(super) tenant: String,
    pub(super) serial_key: Option<String>,
    pub(super) cost: u64,
    pub(super) bytes: u64,
    pub(super) enqueued_at: Timestamp,
    pub(super) deadline: Timestamp,
    pub(super) epoch: i64,
    pub(super) attempts: u32,
    pub(super) lapses: u32,
    pub(super) job: Option<String>,
}

impl StoredRecord {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(StoredRecord {
            sequence: row.get(0)?,
            class: row.get(1)?,
            tenant: row.get(2)?,
            serial_key: row.get(3)?,
            cost: count(row.get(4)?),
            bytes: count(row.get(5)?),
            enqueued_at: instant(row.get(6)?),
            deadline: instant(row.get(7)?),
            epoch: row.get(8)?,
            attempts: row.get(9)?,
            lapses: row.get(10)?,
            job: row.get(11)?,
        })
    }

    pub(super) fn class(&self, engine: &Engine) -> Result<PriorityClass, QueueError> {
        let index = usize::try_from(self.class).ok();
        index
            .and_then(PriorityClass::from_index)
            .ok_or_else(|| engine.damaged("the class of a record"))
    }

    pub(super) fn into_record(
        self,
        engine: &Engine,
        payload: Payload,
    ) -> Result<Record, QueueError> {
        Ok(Record {
            id: engine.record_id(self.sequence, self.enqueued_at),
            class: self.class(engine)?,
            tenant: self.tenant,
            cost: self.cost,
            // The empty key orders a strict queue.
            order_key: self.serial_key.filter(|key| !key.is_empty()),
            job: self.job,
            enqueued_at: self.enqueued_at,
            deadline: (self.deadline != Timestamp::MAX).then_some(self.deadline),
            attempts: self.attempts,
            lapses: self.lapses,
            payload,
        })
    }
}

/// A claim whose payloads are still encoded, so that the caller's thread decodes them.
#[derive(Debug, Default)]
pub(super) struct EncodedClaim {
    pub(super) deliveries: Vec<(Delivery, Bytes)>,
    pub(super) withheld: Option<Withheld>,
    pub(super) next_due: Option<Timestamp>,
}

impl EncodedClaim {
    pub(super) fn decode(self, location: &Path) -> Result<Claim, QueueError> {
        let deliveries = self.deliveries.into_iter().map(|(mut delivery, payload)| {
            delivery.record.payload = decode_payload(payload, location)?;
            Ok(delivery)
        });
        Ok(Claim {
            deliveries: deliveries.collect::<Result<_, QueueError>>()?,
            withheld: self.withheld,
            next_due: self.next_due,
        })
    }
}

pub(super) fn decode_payload(payload: Bytes, location: &Path) -> Result<Payload, QueueError> {
    Payload::decode(payload).ok_or_else(|| {
        let detail = "the payload of a record is not readable".to_owned();
        DataDirError::Damaged { path: location.to_owned(), detail }.into()
    })
}

impl EncodedClaim {
    pub(super) fn push(
        &mut self,
        engine: &Engine,
        stored: StoredRecord,
        lease_ends: Timestamp,
        payload: Vec<u8>,
    ) -> Result<(), QueueError> {
        let epoch = stored.epoch;
        let record = stored.into_record(engine, Payload::default())?;
        let receipt = Receipt::of_epoch(record.id, epoch);
        self.deliveries.push((Delivery { receipt, lease_ends, record }, payload.into()));
        Ok(())
    }
}

/// A dead letter from a row of [`RECORD_COLUMNS`] and `died_at, reason, detail`.
pub(super) fn read_dead_letter(engine: &Engine, row: &Row<'_>) -> Result<DeadLetter, QueueError> {
    let fail = |error| engine.fail(error);
    let stored = StoredRecord::read(row).map_err(fail)?;
    let died_at = instant(row.get(RECORD_COLUMN_COUNT).map_err(fail)?);
    let reason: String = row.get(RECORD_COLUMN_COUNT + 1).map_err(fail)?;
    let detail = row.get(RECORD_COLUMN_COUNT + 2).map_err(fail)?;
    let reason = DeadLetterReason::from_name(&reason)
        .ok_or_else(|| engine.damaged("the reason of a dead letter"))?;
    let bytes = stored.bytes;
    let record = stored.into_record(engine, Payload::default())?;
    Ok(DeadLetter { record, bytes, died_at, reason, detail })
}
