//! Whole numbers of so many bytes, highest first.

use smallvec::SmallVec;

/// The body of a parcel.
pub(in crate::redis) type Body = SmallVec<[u8; 96]>;

/// Appends the lowest `width` bytes of a number; one too large becomes the largest.
pub(in crate::redis) fn put(body: &mut Body, number: u64, width: usize) {
    let most = if width >= 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
    let bytes = number.min(most).to_be_bytes();
    body.extend_from_slice(&bytes[8_usize.saturating_sub(width)..]);
}

/// Reads from the front of some bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::redis) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(in crate::redis) const fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(in crate::redis) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next number of `width` bytes, eight at the most.
    pub(in crate::redis) fn number(&mut self, width: usize) -> Option<u64> {
        let bytes = self.bytes(width)?;
        Some(bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// The next `length` bytes.
    pub(in crate::redis) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    /// All that is left.
    pub(in crate::redis) const fn rest(self) -> &'a [u8] {
        self.rest
    }
}
