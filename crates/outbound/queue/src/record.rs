//! A record: who it is from, what it costs, when it may be sent, and its payload.

use std::fmt;
use std::str::FromStr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tidegate_algorithms::Timestamp;

use crate::error::RecordProblem;

/// Bytes of an encoded payload. A record is held in memory whole while it is sent.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Header fields of a payload.
pub const HEADERS_MAX: usize = 128;
/// Bytes of a tenant, an order key, a deduplication key, a job or a header name. They are columns of an index.
pub const KEY_BYTES_MAX: usize = 256;
/// The cost of a record. Nine billion records of this cost fit into the scheduler's virtual time.
pub const COST_MAX: u64 = 1_000_000_000;

/// A stable id: unique, and sortable by the time of the enqueue.
///
/// 48 bits of milliseconds since the Unix epoch, 32 random bits of the store, 48 bits of a sequence. The text form has
/// 26 characters (Crockford's base 32, as a ULID) and sorts like the id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(u128);

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const TEXT_LEN: usize = 26;
const SEQUENCE_BITS: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

impl RecordId {
    /// The id of record `sequence` of the store `instance`, enqueued at `at`.
    pub const fn new(at: Timestamp, instance: u32, sequence: u64) -> Self {
        let millis = (at.as_nanos() / 1_000_000) & SEQUENCE_MASK;
        let high = (millis as u128) << 80;
        RecordId(high | (instance as u128) << SEQUENCE_BITS | (sequence & SEQUENCE_MASK) as u128)
    }

    /// The number within its store.
    #[expect(clippy::cast_possible_truncation, reason = "these are the 48 bits of the sequence")]
    pub const fn sequence(self) -> u64 {
        (self.0 & SEQUENCE_MASK as u128) as u64
    }

    /// The number of the store.
    #[expect(clippy::cast_possible_truncation, reason = "these are the 32 bits of the instance")]
    pub const fn instance(self) -> u32 {
        (self.0 >> SEQUENCE_BITS) as u32
    }

    /// The id as a number, for storage.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// The id with this number.
    pub const fn from_u128(number: u128) -> Self {
        RecordId(number)
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'0'; TEXT_LEN];
        let mut rest = self.0;
        for digit in text.iter_mut().rev() {
            *digit = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is no record id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record id has 26 letters and digits, such as 01JCWZ2M5S0000V7Q4XZ00000A")]
pub struct RecordIdError;

impl FromStr for RecordId {
    type Err = RecordIdError;

    fn from_str(text: &str) -> Result<Self, RecordIdError> {
        if text.len() != TEXT_LEN {
            return Err(RecordIdError);
        }
        let mut number: u128 = 0;
        for letter in text.bytes() {
            let letter = letter.to_ascii_uppercase();
            let digit = ALPHABET.iter().position(|&known| known == letter).ok_or(RecordIdError)?;
            if number >> 123 != 0 {
                return Err(RecordIdError);
            }
            number = number << 5 | digit as u128;
        }
        Ok(RecordId(number))
    }
}

/// How urgent a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityClass {
    /// Someone waits for it.
    Urgent,
    /// The default.
    #[default]
    Normal,
    /// Later is fine.
    Low,
    /// Imports and repairs.
    Bulk,
}

impl PriorityClass {
    /// Every class, the most urgent first.
    pub const ALL: [PriorityClass; 4] =
        [PriorityClass::Urgent, PriorityClass::Normal, PriorityClass::Low, PriorityClass::Bulk];

    /// Its number: 0 is the most urgent.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The class with this number.
    pub fn from_index(index: usize) -> Option<Self> {
        PriorityClass::ALL.get(index).copied()
    }

    /// The word for it in files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            PriorityClass::Urgent => "urgent",
            PriorityClass::Normal => "normal",
            PriorityClass::Low => "low",
            PriorityClass::Bulk => "bulk",
        }
    }
}

/// Header fields and a body. The queue does not interpret them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Payload {
    /// Names with values; a name may occur more than once.
    pub headers: Vec<(String, Bytes)>,
    /// The body.
    pub body: Bytes,
}

impl Payload {
    /// A payload without header fields.
    pub fn from_body(body: impl Into<Bytes>) -> Self {
        Payload { headers: Vec::new(), body: body.into() }
    }

    /// Adds a header field.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The bytes that count towards a queue's bound.
    pub fn encoded_len(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| 2 + name.len() + 4 + value.len());
        2 + headers.sum::<usize>() + self.body.len()
    }

    /// One byte string for storage: the number of header fields, each field with lengths, the body.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        out.put_u16(u16::try_from(self.headers.len()).unwrap_or(u16::MAX));
        for (name, value) in &self.headers {
            out.put_u16(u16::try_from(name.len()).unwrap_or(u16::MAX));
            out.put_slice(name.as_bytes());
            out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
            out.put_slice(value);
        }
        out.put_slice(&self.body);
        out.freeze()
    }

    /// Reads [`Payload::encode`] back; `None` if the bytes were not written by it.
    pub fn decode(mut bytes: Bytes) -> Option<Self> {
        let count = bytes.try_get_u16().ok()?;
        if usize::from(count) > HEADERS_MAX {
            return None;
        }
        let mut headers = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let name_len = usize::from(bytes.try_get_u16().ok()?);
            let name = split(&mut bytes, name_len)?;
            let value_len = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
            let value = split(&mut bytes, value_len)?;
            headers.push((String::from_utf8(name.into()).ok()?, value));
        }
        Some(Payload { headers, body: bytes })
    }
}

fn split(bytes: &mut Bytes, len: usize) -> Option<Bytes> {
    (bytes.len() >= len).then(|| bytes.split_to(len))
}

// Header fields may hold secrets, so that logs show sizes only.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} header fields, {} body bytes)", self.headers.len(), self.body.len())
    }
}

/// A record to enqueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord {
    /// Shares of a class are equal among tenants; empty if there is one tenant.
    pub tenant: String,
    /// Units that sending it takes from its target.
    pub cost: u64,
    /// How urgent it is.
    pub class: PriorityClass,
    /// Records of one key stay in order, if the queue orders by key. Other queues ignore it.
    pub order_key: Option<String>,
    /// A second record with this key within the window is not enqueued.
    pub dedup_key: Option<String>,
    /// The job that it belongs to. A store without that capability ignores it.
    pub job: Option<String>,
    /// The first instant at which it may be claimed.
    pub not_before: Option<Timestamp>,
    /// The instant at which it becomes a dead letter if it is still waiting.
    pub deadline: Option<Timestamp>,
    /// What is sent.
    pub payload: Payload,
}

impl NewRecord {
    /// A record of cost 1 and class `Normal`.
    pub fn new(payload: Payload) -> Self {
        NewRecord { cost: 1, payload, ..NewRecord::default() }
    }

    /// Checks every bound that does not depend on the queue.
    pub fn validate(&self, now: Timestamp) -> Result<(), RecordProblem> {
        let bytes = self.payload.encoded_len();
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(RecordProblem::PayloadTooLarge { bytes });
        }
        let count = self.payload.headers.len();
        if count > HEADERS_MAX {
            return Err(RecordProblem::TooManyHeaders { count });
        }
        let keys = [
            ("order key", &self.order_key),
            ("deduplication key", &self.dedup_key),
            ("job", &self.job),
        ];
        let names = self.payload.headers.iter().map(|(name, _)| ("header name", name));
        let given = keys.into_iter().filter_map(|(field, key)| Some((field, key.as_ref()?)));
        for (field, key) in given.chain(names) {
            check_key(field, key)?;
            if key.is_empty() {
                return Err(RecordProblem::InvalidKey { field });
            }
        }
        check_key("tenant", &self.tenant)?;
        if self.cost > COST_MAX {
            return Err(RecordProblem::CostTooLarge { cost: self.cost });
        }
        let first = self.not_before.unwrap_or(now).max(now);
        if self.deadline.is_some_and(|deadline| deadline <= first) {
            return Err(RecordProblem::DeadlinePassed);
        }
        Ok(())
    }
}

fn check_key(field: &'static str, key: &str) -> Result<(), RecordProblem> {
    if key.len() > KEY_BYTES_MAX {
        return Err(RecordProblem::KeyTooLong { field, bytes: key.len() });
    }
    // PostgreSQL has no NUL in text.
    if key.contains('\0') {
        return Err(RecordProblem::InvalidKey { field });
    }
    Ok(())
}

/// A record as a queue keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its id, the same on every attempt.
    pub id: RecordId,
    /// Its tenant.
    pub tenant: String,
    /// Its cost.
    pub cost: u64,
    /// Its class.
    pub class: PriorityClass,
    /// Its order key, if the queue orders by key.
    pub order_key: Option<String>,
    /// Its job.
    pub job: Option<String>,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// When it becomes a dead letter.
    pub deadline: Option<Timestamp>,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Leases that ended without a settlement, because a processor crashed or was too slow.
    pub lapses: u32,
    /// What is sent.
    pub payload: Payload,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_keep_their_parts_and_their_order_as_text(
            first in (0_u64..u64::MAX, any::<u32>(), 0_u64..1 << 48),
            second in (0_u64..u64::MAX, any::<u32>(), 0_u64..1 << 48),
        ) {
            let [a, b] = [first, second]
                .map(|(at, instance, sequence)| RecordId::new(Timestamp::from_nanos(at), instance, sequence));
            prop_assert_eq!(a.sequence(), first.2);
            prop_assert_eq!(a.instance(), first.1);
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
            prop_assert_eq!(a.to_string().parse(), Ok(a));
            prop_assert_eq!(RecordId::from_u128(a.as_u128()), a);
        }

        #[test]
        fn texts_are_read_as_ids_or_rejected(text in ".{0,30}") {
            if let Ok(id) = text.parse::<RecordId>() {
                prop_assert_eq!(id.to_string(), text.to_ascii_uppercase());
            }
        }

        #[test]
        fn payloads_are_read_back(
            headers in prop::collection::vec(("[a-z-]{1,20}", prop::collection::vec(any::<u8>(), 0..50)), 0..10),
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let headers = headers.into_iter().map(|(name, value)| (name, Bytes::from(value))).collect();
            let payload = Payload { headers, body: body.into() };
            let encoded = payload.encode();
            prop_assert_eq!(encoded.len(), payload.encoded_len());
            prop_assert_eq!(Payload::decode(encoded), Some(payload));
        }

        #[test]
        fn damaged_payloads_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(payload) = Payload::decode(bytes.clone().into()) {
                prop_assert_eq!(payload.encode(), bytes);
            }
        }
    }

    #[test]
    fn the_largest_id_is_read_and_a_larger_number_rejected() {
        let last = RecordId::from_u128(u128::MAX);
        assert_eq!(last.to_string().parse(), Ok(last));
        assert_eq!("80000000000000000000000000".parse::<RecordId>(), Err(RecordIdError));
    }

    #[test]
    fn bounds_of_a_record_are_checked() {
        let now = Timestamp::from_secs(100);
        let good = NewRecord::new(Payload::from_body("x"));
        assert_eq!(good.validate(now), Ok(()));
        let problem = |change: fn(&mut NewRecord)| {
            let mut record = good.clone();
            change(&mut record);
            record.validate(now).unwrap_err()
        };
        let long = "k".repeat(KEY_BYTES_MAX + 1).len();
        assert_eq!(
            problem(|record| record.order_key = Some("k".repeat(KEY_BYTES_MAX + 1))),
            RecordProblem::KeyTooLong { field: "order key", bytes: long }
        );
        assert_eq!(
            problem(|record| record.dedup_key = Some(String::new())),
            RecordProblem::InvalidKey { field: "deduplication key" }
        );
        assert_eq!(
            problem(|record| record.tenant = "a\0b".to_owned()),
            RecordProblem::InvalidKey { field: "tenant" }
        );
        assert_eq!(
            problem(|record| record.cost = COST_MAX + 1),
            RecordProblem::CostTooLarge { cost: COST_MAX + 1 }
        );
        assert_eq!(
            problem(|record| record.deadline = Some(Timestamp::from_secs(100))),
            RecordProblem::DeadlinePassed
        );
        assert_eq!(
            problem(|record| record.payload.body = vec![0; PAYLOAD_BYTES_MAX].into()),
            RecordProblem::PayloadTooLarge { bytes: PAYLOAD_BYTES_MAX + 2 }
        );
        assert_eq!(
            problem(|record| {
                record.payload.headers = vec![("a".to_owned(), Bytes::new()); HEADERS_MAX + 1];
            }),
            RecordProblem::TooManyHeaders { count: HEADERS_MAX + 1 }
        );
    }
}
