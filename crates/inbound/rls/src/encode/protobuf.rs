//! Answer → `RateLimitResponse`, in a gRPC frame.
//!
//! A length stands before the block that it measures. One byte is reserved for it and filled in at the end of the block;
//! a block above 127 bytes, of which there are few, is moved to make room for a longer length. Nearly all answers fit
//! into a buffer on the stack, so that one allocation of the right size holds the frame.

use bytes::Bytes;
use serde_json::Value;

use super::answer::{Answer, DescriptorStatus};
use super::metadata::Metadata;
use crate::decode::frame::PREFIX_LEN;

/// Room for ten statuses with names.
const STACK_BYTES: usize = 512;

/// The frame for a request that is admitted because limiter code panicked: `overall_code: OK`.
pub(crate) const ADMITTED: Bytes = Bytes::from_static(&[0, 0, 0, 0, 2, key::OVERALL, 1]);

/// Field keys: the number of the field and its wire type.
mod key {
    pub(super) const OVERALL: u8 = 1 << 3;
    pub(super) const STATUS: u8 = 2 << 3 | 2;
    pub(super) const HEADER: u8 = 3 << 3 | 2;
    pub(super) const METADATA: u8 = 6 << 3 | 2;

    pub(super) const CODE: u8 = 1 << 3;
    pub(super) const LIMIT: u8 = 2 << 3 | 2;
    pub(super) const REMAINING: u8 = 3 << 3;
    pub(super) const RESET: u8 = 4 << 3 | 2;

    pub(super) const REQUESTS: u8 = 1 << 3;
    pub(super) const UNIT: u8 = 2 << 3;
    pub(super) const NAME: u8 = 3 << 3 | 2;
    pub(super) const SECONDS: u8 = 1 << 3;

    /// Of header fields, and of the members of a `Struct`.
    pub(super) const PAIR_KEY: u8 = 1 << 3 | 2;
    pub(super) const PAIR_VALUE: u8 = 2 << 3 | 2;

    /// The members of a `Struct`, the items of a `ListValue`.
    pub(super) const ITEM: u8 = 1 << 3 | 2;

    pub(super) const NULL: u8 = 1 << 3;
    pub(super) const NUMBER: u8 = 2 << 3 | 1;
    pub(super) const TEXT: u8 = 3 << 3 | 2;
    pub(super) const BOOL: u8 = 4 << 3;
    pub(super) const STRUCT: u8 = 5 << 3 | 2;
    pub(super) const LIST: u8 = 6 << 3 | 2;
}

/// Encodes an answer as a frame.
#[inline]
pub(crate) fn encode(answer: &Answer<'_>) -> Bytes {
    let mut bytes = [0; STACK_BYTES];
    let length = write_frame(answer, &mut bytes);
    match bytes.get(..length) {
        Some(frame) => Bytes::copy_from_slice(frame),
        None => encode_long(answer, length),
    }
}

/// Not inlined: few answers are this long.
#[cold]
fn encode_long(answer: &Answer<'_>, length: usize) -> Bytes {
    let mut bytes = vec![0; length];
    write_frame(answer, &mut bytes);
    Bytes::from(bytes)
}

/// Writes a frame. Returns its length, also if the buffer is too short for it.
#[inline]
fn write_frame(answer: &Answer<'_>, bytes: &mut [u8]) -> usize {
    let mut writer = Writer { bytes, len: PREFIX_LEN };
    writer.put_nonzero(key::OVERALL, answer.overall as u64);
    for status in &answer.statuses {
        writer.put_status(status);
    }
    if answer.headers.is_some() || answer.metadata.is_some() {
        writer.put_extras(answer);
    }
    let length = writer.len - PREFIX_LEN;
    // No answer is longer than four bytes can count.
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    if let Some(prefix) = writer.bytes.get_mut(1..PREFIX_LEN) {
        prefix.copy_from_slice(&length);
    }
    writer.len
}

/// Appends to a buffer. Bytes beyond its end are counted only, so that one check at the end is enough.
struct Writer<'b> {
    bytes: &'b mut [u8],
    len: usize,
}

impl Writer<'_> {
    #[inline(always)]
    fn put(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
        }
        self.len += 1;
    }

    #[inline(always)]
    fn put_slice(&mut self, slice: &[u8]) {
        if let Some(slots) = self.bytes.get_mut(self.len..self.len + slice.len()) {
            slots.copy_from_slice(slice);
        }
        self.len += slice.len();
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
    fn put_number(&mut self, key: u8, mut number: u64) {
        self.put(key);
        while number >= 0x80 {
            self.put(number as u8 | 0x80);
            number >>= 7;
        }
        self.put(number as u8);
    }

    /// A number that is left out if it is zero.
    #[inline(always)]
    fn put_nonzero(&mut self, key: u8, number: u64) {
        if number != 0 {
            self.put_number(key, number);
        }
    }

    /// Writes a block: its key, its length, and its content.
    #[inline(always)]
    fn put_block(&mut self, key: u8, content: impl FnOnce(&mut Self)) {
        self.put(key);
        self.put(0);
        let begin = self.len;
        content(self);
        let length = self.len - begin;
        match u8::try_from(length) {
            Ok(length) if length < 0x80 => {
                if let Some(slot) = self.bytes.get_mut(begin - 1) {
                    *slot = length;
                }
            }
            _ => self.put_long_length(begin, length),
        }
    }

    /// Writes a length that takes more than the byte reserved for it, and moves the block behind it.
    #[cold]
    #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
    fn put_long_length(&mut self, begin: usize, length: usize) {
        let more = length.ilog2() as usize / 7;
        let end = self.len;
        self.len += more;
        if self.len > self.bytes.len() {
            return;
        }
        self.bytes.copy_within(begin..end, begin + more);
        let mut rest = length;
        if let Some(slots) = self.bytes.get_mut(begin - 1..begin + more) {
            for slot in slots {
                *slot = rest as u8 | 0x80;
                rest >>= 7;
            }
        }
        if let Some(last) = self.bytes.get_mut(begin - 1 + more) {
            *last &= 0x7F;
        }
    }

    #[inline(always)]
    fn put_text(&mut self, key: u8, text: &str) {
        self.put_block(key, |writer| writer.put_slice(text.as_bytes()));
    }

    #[inline]
    fn put_status(&mut self, status: &DescriptorStatus<'_>) {
        self.put_block(key::STATUS, |writer| {
            writer.put_nonzero(key::CODE, status.code as u64);
            if let Some(limit) = &status.current_limit {
                writer.put_block(key::LIMIT, |writer| {
                    writer.put_nonzero(key::REQUESTS, u64::from(limit.requests_per_unit));
                    writer.put_nonzero(key::UNIT, u64::from(limit.unit.get()));
                    if !limit.name.is_empty() {
                        writer.put_text(key::NAME, limit.name);
                    }
                });
            }
            writer.put_nonzero(key::REMAINING, u64::from(status.remaining));
            if status.current_limit.is_some() {
                writer.put_block(key::RESET, |writer| {
                    writer.put_nonzero(key::SECONDS, status.reset_seconds);
                });
            }
        });
    }

    /// Header fields and metadata, which few answers have.
    #[cold]
    fn put_extras(&mut self, answer: &Answer<'_>) {
        for (name, value) in answer.headers.iter().flatten() {
            self.put_block(key::HEADER, |writer| {
                writer.put_text(key::PAIR_KEY, name);
                writer.put_text(key::PAIR_VALUE, &value.to_string());
            });
        }
        if let Some(metadata) = &answer.metadata {
            self.put_block(key::METADATA, |writer| writer.put_struct(metadata));
        }
    }

    /// The content of a `Struct`. The depth is that of rule files, which is bounded.
    fn put_struct(&mut self, members: &Metadata) {
        for (name, value) in members {
            self.put_block(key::ITEM, |writer| {
                if !name.is_empty() {
                    writer.put_text(key::PAIR_KEY, name);
                }
                writer.put_block(key::PAIR_VALUE, |writer| writer.put_value(value));
            });
        }
    }

    /// The content of a `Value`.
    fn put_value(&mut self, value: &Value) {
        match value {
            Value::Null => self.put_number(key::NULL, 0),
            Value::Number(number) => {
                self.put(key::NUMBER);
                self.put_slice(&number.as_f64().unwrap_or_default().to_le_bytes());
            }
            Value::String(text) => self.put_text(key::TEXT, text),
            Value::Bool(flag) => self.put_number(key::BOOL, u64::from(*flag)),
            Value::Object(members) => {
                self.put_block(key::STRUCT, |writer| writer.put_struct(members));
            }
            Value::Array(items) => self.put_block(key::LIST, |writer| {
                for item in items {
                    writer.put_block(key::ITEM, |writer| writer.put_value(item));
                }
            }),
        }
    }
}

#[cfg(all(test, feature = "proto"))]
mod tests;
