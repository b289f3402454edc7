//! Bytes that begin at a cache line.

use std::fmt;
use std::io::{self, Read};

use crate::line::LINE_BYTES;

/// Zeroed bytes that begin at a cache line, so that a line of a table is one line of the cache.
pub struct LineBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl LineBuffer {
    /// A buffer of this many lines.
    pub fn of_lines(lines: usize) -> Self {
        let length = lines.saturating_mul(LINE_BYTES);
        let bytes = vec![0; length.saturating_add(LINE_BYTES - 1)];
        // Never more than the 63 bytes of slack. The vector is not resized, so its memory stays where it is.
        let start = bytes.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES - 1);
        LineBuffer { bytes, start, length }
    }

    /// The number of lines.
    pub const fn lines(&self) -> usize {
        self.length / LINE_BYTES
    }

    /// The bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..self.start + self.length).unwrap_or_default()
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }

    /// Fills the whole buffer.
    ///
    /// # Errors
    /// When the source fails or ends before.
    pub fn fill(&mut self, source: &mut impl Read) -> io::Result<()> {
        source.read_exact(self.bytes_mut())
    }
}

impl fmt::Debug for LineBuffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LineBuffer").field("lines", &self.lines()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_cache_line() {
        for lines in [0, 1, 3, 1000] {
            let mut buffer = LineBuffer::of_lines(lines);
            assert_eq!(buffer.bytes().len(), lines * 64);
            assert_eq!(buffer.bytes().as_ptr().align_offset(64), 0);
            buffer.bytes_mut().fill(7);
            assert!(buffer.bytes().iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn a_source_that_ends_early_is_an_error() {
        let mut buffer = LineBuffer::of_lines(1);
        assert!(buffer.fill(&mut [1; 63].as_slice()).is_err());
        assert!(buffer.fill(&mut [1; 65].as_slice()).is_ok());
    }
}
