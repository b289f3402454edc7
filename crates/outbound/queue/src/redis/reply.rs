//! The replies of the scripts.

use bytes::Bytes;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_redis_link::Value;

use super::{NEVER, instant};
use crate::error::{Fullness, QueueError};
use crate::queue::{
    Claim, ClassStats, DeadLetter, DeadLetterReason, Delivery, EnqueueOutcome, QueueStats, Receipt,
    Withheld,
};
use crate::record::{Payload, PriorityClass, Record, RecordId};
use crate::settings::QueueSettings;

/// A reply that this program's scripts do not make.
pub(super) fn damaged(what: &str) -> QueueError {
    QueueError::Damaged(format!("Redis: {what}"))
}

/// Reads the parts of a reply, one after the other.
pub(super) struct ReplyReader {
    parts: std::vec::IntoIter<Value>,
}

impl ReplyReader {
    pub(super) fn array(reply: Value) -> Result<Self, QueueError> {
        match reply {
            Value::Array(parts) => Ok(ReplyReader { parts: parts.into_iter() }),
            _ => Err(damaged("a reply is no array")),
        }
    }

    pub(super) fn one(reply: Value) -> Self {
        ReplyReader { parts: vec![reply].into_iter() }
    }

    fn next(&mut self) -> Result<Value, QueueError> {
        self.parts.next().ok_or_else(|| damaged("a reply is too short"))
    }

    fn inner(&mut self) -> Result<ReplyReader, QueueError> {
        ReplyReader::array(self.next()?)
    }

    fn bytes(&mut self) -> Result<Bytes, QueueError> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(bytes.into()),
            // A field that was not asked for.
            Value::Nil | Value::Boolean(false) => Ok(Bytes::new()),
            _ => Err(damaged("a field is no string")),
        }
    }

    fn text(&mut self) -> Result<String, QueueError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.into()).map_err(|_| damaged("a field is no text"))
    }

    fn signed(&mut self) -> Result<i64, QueueError> {
        let value = self.next()?;
        let number = match &value {
            Value::Int(number) => Some(*number),
            Value::BulkString(bytes) => std::str::from_utf8(bytes).ok().and_then(parse_number),
            _ => None,
        };
        number.ok_or_else(|| damaged("a field is no number"))
    }

    pub(super) fn number(&mut self) -> Result<u64, QueueError> {
        u64::try_from(self.signed()?).map_err(|_| damaged("a number is negative"))
    }

    fn small(&mut self) -> Result<u32, QueueError> {
        u32::try_from(self.signed()?).map_err(|_| damaged("a number is out of range"))
    }

    fn instant(&mut self) -> Result<Timestamp, QueueError> {
        Ok(instant(self.number()?))
    }
}

/// Reads `123`, and `1.8e+15`, as which Lua may write a large number.
fn parse_number(text: &str) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be a whole number in range")]
    let from_float = |number: f64| {
        (number.fract() == 0.0 && number.abs() <= NEVER as f64).then_some(number as i64)
    };
    text.parse().ok().or_else(|| text.parse().ok().and_then(from_float))
}

/// The id in `sequence:instant`.
fn read_name(name: &str, instance: u32) -> Option<RecordId> {
    let (sequence, enqueued) = name.split_once(':')?;
    let enqueued = instant(enqueued.parse().ok()?);
    Some(RecordId::new(enqueued, instance, sequence.parse().ok()?))
}

pub(super) fn read_enqueue(
    reply: Value,
    instance: u32,
    settings: &QueueSettings,
) -> Result<Vec<EnqueueOutcome>, QueueError> {
    let mut parts = ReplyReader::array(reply)?;
    if parts.text()? == "full" {
        let [records, bytes, cost, dead_records] =
            [parts.number()?, parts.number()?, parts.number()?, parts.number()?];
        let oldest = u64::try_from(parts.signed()?).ok().map(instant);
        return Err(QueueError::Full(Fullness {
            records,
            records_max: settings.records_max,
            bytes,
            bytes_max: settings.bytes_max,
            cost,
            dead_records,
            oldest,
            batch_records: parts.number()?,
            batch_bytes: parts.number()?,
        }));
    }
    let outcomes = parts.inner()?;
    let outcome = |reply| {
        let mut parts = ReplyReader::array(reply)?;
        let is_new = parts.number()? == 1;
        let id =
            read_name(&parts.text()?, instance).ok_or_else(|| damaged("the id of a record"))?;
        Ok(if is_new { EnqueueOutcome::Accepted(id) } else { EnqueueOutcome::Duplicate(id) })
    };
    outcomes.parts.map(outcome).collect()
}

/// A record with its epoch.
fn read_record(mut parts: ReplyReader, instance: u32) -> Result<(Record, i64), QueueError> {
    let sequence = parts.number()?;
    let mut fields = parts.inner()?;
    let epoch = fields.signed()?;
    let tenant = fields.text()?;
    let cost = fields.number()?;
    let class = usize::try_from(fields.number()?).ok().and_then(PriorityClass::from_index);
    let class = class.ok_or_else(|| damaged("the class of a record"))?;
    let enqueued_at = fields.instant()?;
    let deadline = fields.instant()?;
    let (attempts, lapses) = (fields.small()?, fields.small()?);
    let payload = fields.bytes()?;
    let payload = match payload.is_empty() {
        true => Payload::default(),
        false => Payload::decode(payload).ok_or_else(|| damaged("the payload of a record"))?,
    };
    let record = Record {
        id: RecordId::new(enqueued_at, instance, sequence),
        tenant,
        cost,
        class,
        order_key: None,
        enqueued_at,
        deadline: Some(deadline).filter(|deadline| *deadline < Timestamp::MAX),
        attempts,
        lapses,
        payload,
        job: None,
    };
    Ok((record, epoch))
}

pub(super) fn read_claim(reply: Value, instance: u32, lease: Nanos) -> Result<Claim, QueueError> {
    let mut parts = ReplyReader::array(reply)?;
    let lease_ends = parts.instant()?.after(lease);
    let withheld = match (parts.signed()?, parts.signed()?) {
        (cost @ 0.., bytes @ 0..) => {
            Some(Withheld { cost: cost.unsigned_abs(), bytes: bytes.unsigned_abs() })
        }
        _ => None,
    };
    let next_due = Some(parts.instant()?).filter(|due| *due < Timestamp::MAX);
    let delivery = |reply| {
        let (record, epoch) = read_record(ReplyReader::array(reply)?, instance)?;
        Ok(Delivery { receipt: Receipt::of_epoch(record.id, epoch), lease_ends, record })
    };
    let deliveries = parts.inner()?.parts.map(delivery).collect::<Result<_, QueueError>>()?;
    Ok(Claim { deliveries, withheld, next_due })
}

pub(super) fn read_stats(reply: Value) -> Result<QueueStats, QueueError> {
    let mut parts = ReplyReader::array(reply)?;
    let in_flight = parts.number()?;
    let oldest = u64::try_from(parts.signed()?).ok().map(instant);
    let mut sums = parts.inner()?;
    let mut stats = QueueStats { in_flight, oldest, ..QueueStats::default() };
    for class in &mut stats.classes {
        *class =
            ClassStats { records: sums.number()?, bytes: sums.number()?, cost: sums.number()? };
    }
    (stats.dead_records, stats.dead_bytes) = (sums.number()?, sums.number()?);
    Ok(stats)
}

pub(super) fn read_dead_letters(
    reply: Value,
    instance: u32,
) -> Result<(u64, Vec<DeadLetter>), QueueError> {
    let mut parts = ReplyReader::array(reply)?;
    let chosen = parts.number()?;
    let letter = |reply| {
        let mut parts = ReplyReader::array(reply)?;
        let (record, _) = read_record(parts.inner()?, instance)?;
        let mut why = parts.inner()?;
        let died_at = why.instant()?;
        let reason = DeadLetterReason::from_name(&why.text()?);
        Ok(DeadLetter {
            record,
            died_at,
            reason: reason.ok_or_else(|| damaged("the reason of a dead letter"))?,
            detail: why.text()?,
            bytes: why.number()?,
        })
    };
    let letters = parts.inner()?.parts.map(letter).collect::<Result<_, QueueError>>()?;
    Ok((chosen, letters))
}
