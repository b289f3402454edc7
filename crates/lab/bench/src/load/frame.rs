//! Frames of HTTP/2: nine bytes of head and a payload.

/// Types of frames.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
}

/// Flags of frames.
pub(super) mod flag {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
}

/// Identifiers of settings.
pub(super) mod setting {
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
}

/// The preface of every connection.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEAD_BYTES: usize = 9;

/// A frame that has arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame of the input and how long it is, once all of it is there.
    #[inline]
    pub(super) fn first(input: &'a [u8]) -> Option<(Self, usize)> {
        let (head, rest) = input.split_first_chunk::<HEAD_BYTES>()?;
        let [high, middle, low, kind, flags, stream @ ..] = *head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let payload = rest.get(..length)?;
        let stream = u32::from_be_bytes(stream) & STREAM_BITS;
        Some((Frame { kind, flags, stream, payload }, HEAD_BYTES + length))
    }

    /// Whether a flag is set.
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Writes a frame. Payloads are shorter than the 16 MiB that the length field can express.
    #[inline]
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let [_, length @ ..] = u32::try_from(self.payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        out.extend_from_slice(&length);
        out.extend_from_slice(&[self.kind, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(self.payload);
    }
}

/// The first bit of a stream's number is not part of it.
const STREAM_BITS: u32 = 0x7FFF_FFFF;

/// The four bytes at the beginning of a payload as a number.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let frame = Frame { kind: kind::PING, flags: flag::ACK, stream: 7, payload: b"12345678" };
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        bytes.push(0);
        assert_eq!(Frame::first(&bytes), Some((frame, 17)));
    }

    #[test]
    fn a_frame_that_is_not_whole_is_waited_for() {
        let frame = Frame { kind: kind::DATA, flags: flag::NONE, stream: 1, payload: b"abc" };
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(Frame::first(&bytes[..length]), None);
        }
    }

    #[test]
    fn the_reserved_bit_is_not_part_of_the_stream() {
        let bytes = [0, 0, 0, kind::DATA, 0, 0x80, 0, 0, 3];
        assert_eq!(Frame::first(&bytes).unwrap().0.stream, 3);
    }
}
