//! An answer of ordinary length, written in one go.
//!
//! Lengths stand before what they measure. In general they are worked out
//! first, which takes as long as writing; here a byte is left free for each
//! and filled in afterwards. That does for blocks of up to 127 bytes, which is
//! nearly every status. Whatever is longer is left to the general way.

use bytes::Bytes;

use super::super::answer::{Answer, DescriptorStatus};
use super::super::frame::PREFIX_LEN;

/// Room for ten statuses with names.
const ROOM: usize = 512;
/// The longest block whose length takes one byte.
const BLOCK_MAX: usize = 127;

/// The keys of the fields, with how their values are written.
mod key {
    pub(super) const OVERALL: u8 = 1 << 3;
    pub(super) const STATUS: u8 = 2 << 3 | 2;
    pub(super) const CODE: u8 = 1 << 3;
    pub(super) const LIMIT: u8 = 2 << 3 | 2;
    pub(super) const REMAINING: u8 = 3 << 3;
    pub(super) const RESET: u8 = 4 << 3 | 2;
    pub(super) const REQUESTS: u8 = 1 << 3;
    pub(super) const UNIT: u8 = 2 << 3;
    pub(super) const NAME: u8 = 3 << 3 | 2;
    pub(super) const SECONDS: u8 = 1 << 3;
}

/// A frame with the answer, if it is short and has statuses only.
#[inline]
pub(super) fn encode(answer: &Answer<'_>) -> Option<Bytes> {
    if answer.headers.is_some() || answer.metadata.is_some() {
        return None;
    }
    let mut page = Page { bytes: [0; ROOM], len: PREFIX_LEN };
    page.put_number(key::OVERALL, answer.overall as u64);
    for status in &answer.statuses {
        page.put_status(status)?;
    }
    let length = page.len.checked_sub(PREFIX_LEN)?;
    let length = u32::try_from(length).ok()?.to_be_bytes();
    page.bytes.get_mut(1..PREFIX_LEN)?.copy_from_slice(&length);
    page.bytes.get(..page.len).map(Bytes::copy_from_slice)
}

/// Bytes that are written one after another. Those that find no room are
/// counted all the same, so that one look at the end is enough.
struct Page {
    bytes: [u8; ROOM],
    len: usize,
}

impl Page {
    #[inline(always)]
    fn put(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
        }
        self.len += 1;
    }

    /// A field that is left out when it is zero.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
    fn put_number(&mut self, key: u8, mut number: u64) {
        if number == 0 {
            return;
        }
        self.put(key);
        while number >= 0x80 {
            self.put(number as u8 | 0x80);
            number >>= 7;
        }
        self.put(number as u8);
    }

    /// Begins a block; [`Page::end`] ends it.
    #[inline(always)]
    fn begin(&mut self, key: u8) -> usize {
        self.put(key);
        self.put(0);
        self.len
    }

    /// Fills in the length of a block, if it takes one byte.
    #[inline(always)]
    fn end(&mut self, begun: usize) -> Option<()> {
        let length = self.len - begun;
        let place = self.bytes.get_mut(begun.checked_sub(1)?)?;
        *place = u8::try_from(length).ok().filter(|_| length <= BLOCK_MAX)?;
        Some(())
    }

    #[inline]
    fn put_status(&mut self, status: &DescriptorStatus<'_>) -> Option<()> {
        let whole = self.begin(key::STATUS);
        self.put_number(key::CODE, status.code as u64);
        if let Some(limit) = &status.current_limit {
            let begun = self.begin(key::LIMIT);
            self.put_number(key::REQUESTS, u64::from(limit.requests_per_unit));
            self.put_number(key::UNIT, u64::from(limit.unit.get()));
            self.put_name(limit.name)?;
            self.end(begun)?;
        }
        self.put_number(key::REMAINING, u64::from(status.remaining));
        if status.current_limit.is_some() {
            let begun = self.begin(key::RESET);
            self.put_number(key::SECONDS, status.reset_seconds);
            self.end(begun)?;
        }
        self.end(whole)
    }

    #[inline(always)]
    fn put_name(&mut self, name: &str) -> Option<()> {
        if name.is_empty() {
            return Some(());
        }
        let begun = self.begin(key::NAME);
        let end = self.len.checked_add(name.len())?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(name.as_bytes());
        self.len = end;
        self.end(begun)
    }
}
