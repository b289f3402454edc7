//! The hours and days of limits as bytes: a header, a record for each limit, and a checksum.
//!
//! All numbers are little-endian. A file is written whole and read whole; one that is damaged is not read at all.

use xxhash_rust::xxh3::xxh3_64;

use crate::counts::SpanCounts;
use crate::limits::{DAYS, LimitHistories, LimitHistory};

const MAGIC: &[u8; 16] = b"tidegate-history";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = MAGIC.len() + 4 + 8 + 4;
const SPANS: usize = 2 + DAYS;
const RECORD_BYTES: usize = 6 * 8 + SPANS * SpanCounts::BYTES;
const CHECKSUM_BYTES: usize = 8;

/// Why bytes are not read as a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryFileError {
    /// It does not begin as one.
    #[error("it is not a history of Tidegate")]
    Foreign,
    /// Of another version.
    #[error("it has version {version}; this program reads version {VERSION}")]
    Version {
        /// The version.
        version: u32,
    },
    /// Cut off, or changed.
    #[error("it is damaged: its length or checksum is wrong")]
    Damaged,
}

pub(crate) fn encode(histories: &LimitHistories, now: u64) -> Vec<u8> {
    let count = histories.limits.len();
    let mut out = Vec::with_capacity(HEADER_BYTES + count * RECORD_BYTES + CHECKSUM_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&now.to_le_bytes());
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    for limit in &histories.limits {
        let LimitHistory { identity, first_seen, last_seen, shadow_since, hour, day, .. } = *limit;
        for number in [identity, first_seen, last_seen, shadow_since, hour, day] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for span in limit.hours.iter().chain(&limit.days) {
            for count in span.to_array() {
                out.extend_from_slice(&count.to_le_bytes());
            }
        }
    }
    let checksum = xxh3_64(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

pub(crate) fn decode(histories: &mut LimitHistories, bytes: &[u8]) -> Result<(), HistoryFileError> {
    if !bytes.starts_with(MAGIC) {
        return Err(HistoryFileError::Foreign);
    }
    let mut header = Bytes(bytes.get(MAGIC.len()..).unwrap_or_default());
    let version = header.u32().ok_or(HistoryFileError::Damaged)?;
    if version != VERSION {
        return Err(HistoryFileError::Version { version });
    }
    let split = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(HistoryFileError::Damaged)?;
    let (content, checksum) = bytes.split_at(split);
    if Bytes(checksum).u64() != Some(xxh3_64(content)) {
        return Err(HistoryFileError::Damaged);
    }
    let mut content = Bytes(content.get(MAGIC.len() + 4 + 8..).unwrap_or_default());
    let count = content.u32().ok_or(HistoryFileError::Damaged)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if content.0.len() != count.saturating_mul(RECORD_BYTES) {
        return Err(HistoryFileError::Damaged);
    }
    for _ in 0..count {
        let limit = record(&mut content).ok_or(HistoryFileError::Damaged)?;
        // Beyond the budget: the busiest are not known, so the first stay.
        if histories.push(limit).is_none() {
            break;
        }
    }
    Ok(())
}

fn record(bytes: &mut Bytes<'_>) -> Option<LimitHistory> {
    let mut limit = LimitHistory::new(bytes.u64()?, bytes.u64()?);
    limit.last_seen = bytes.u64()?;
    limit.shadow_since = bytes.u64()?;
    limit.hour = bytes.u64()?;
    limit.day = bytes.u64()?;
    for span in limit.hours.iter_mut().chain(&mut limit.days) {
        let counts = [bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?];
        *span = SpanCounts::from_array(counts);
    }
    Some(limit)
}

/// The bytes that are left to read.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}
