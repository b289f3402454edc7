//! Big-endian integers of a fixed width, as the Lua scripts pack and unpack them.

use crate::script::ScriptBody;

/// Appends the lowest `width` bytes of a number; saturates at the largest number of that width.
pub fn put_number(body: &mut ScriptBody, number: u64, width: usize) {
    let most = if width >= 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
    let bytes = number.min(most).to_be_bytes();
    body.extend_from_slice(&bytes[8_usize.saturating_sub(width)..]);
}

/// Reads integers and byte strings from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct NumberReader<'a> {
    rest: &'a [u8],
}

impl<'a> NumberReader<'a> {
    /// A reader at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        NumberReader { rest: bytes }
    }

    /// Whether all bytes were read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next number of `width` bytes, at most eight.
    pub fn number(&mut self, width: usize) -> Option<u64> {
        let bytes = self.bytes(width)?;
        Some(bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// The next `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    /// The bytes that were not read yet.
    pub const fn rest(self) -> &'a [u8] {
        self.rest
    }
}
