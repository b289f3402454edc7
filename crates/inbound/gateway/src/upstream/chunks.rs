//! Chunked bodies of responses (RFC 9112 §7.1).

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The most bytes of extensions and trailer fields of one body.
const OVERHEAD_BYTES_MAX: usize = 16 * 1024;

/// The most trailer fields of one body: hyper's default for fields.
const TRAILERS_MAX: usize = 100;

/// The most digits of a chunk's size.
const SIZE_DIGITS_MAX: u8 = 15;

/// A body that is not chunked as it should be.
#[derive(Debug, thiserror::Error)]
#[error("the body is not chunked as it should be")]
pub(super) struct ChunkError;

/// Where in the framing the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Size { digits: u8 },
    SizeSpace,
    Extension,
    SizeEnd,
    Data,
    DataEnd,
    DataEndLine,
    TrailerStart,
    Trailer,
    TrailerEndLine,
    LastLine,
    Ended,
}

/// Takes the framing off a chunked body.
#[derive(Debug)]
pub(super) struct ChunkDecoder {
    position: Position,
    /// Bytes of the chunk that are still to come.
    remaining: u64,
    /// Bytes of extensions and trailer fields.
    overhead: usize,
    /// The trailer fields as they came.
    trailers: Vec<u8>,
}

impl ChunkDecoder {
    pub(super) const fn new() -> Self {
        let position = Position::Size { digits: 0 };
        ChunkDecoder { position, remaining: 0, overhead: 0, trailers: Vec::new() }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.position == Position::Ended
    }

    /// The data in these bytes, and whether any bytes follow the body.
    pub(super) fn decode(&mut self, raw: Bytes) -> Result<(Bytes, bool), ChunkError> {
        if self.position == Position::Data && !raw.is_empty() && self.remaining >= length(&raw) {
            self.take(length(&raw));
            return Ok((raw, false));
        }
        let mut data = BytesMut::with_capacity(raw.len());
        let mut rest = &*raw;
        while let [byte, after @ ..] = rest
            && self.position != Position::Ended
        {
            if self.position == Position::Data {
                let most = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(rest.len());
                let (part, after) = rest.split_at(most);
                data.extend_from_slice(part);
                self.take(u64::try_from(most).unwrap_or(u64::MAX));
                rest = after;
            } else {
                self.step(*byte)?;
                rest = after;
            }
        }
        Ok((data.freeze(), !rest.is_empty()))
    }

    /// The trailer fields of a body that has ended; [`None`] if it has none.
    pub(super) fn take_trailers(&mut self) -> Result<Option<HeaderMap>, ChunkError> {
        let raw = std::mem::take(&mut self.trailers);
        if raw.is_empty() {
            return Ok(None);
        }
        let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
        let Ok(httparse::Status::Complete((_, fields))) =
            httparse::parse_headers(&raw, &mut fields)
        else {
            return Err(ChunkError);
        };
        let mut trailers = HeaderMap::with_capacity(fields.len());
        for field in fields {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| ChunkError)?;
            let value = HeaderValue::from_bytes(field.value).map_err(|_| ChunkError)?;
            trailers.append(name, value);
        }
        Ok(Some(trailers))
    }

    fn take(&mut self, bytes: u64) {
        self.remaining = self.remaining.saturating_sub(bytes);
        if self.remaining == 0 {
            self.position = Position::DataEnd;
        }
    }

    /// Reads a byte of the framing.
    fn step(&mut self, byte: u8) -> Result<(), ChunkError> {
        self.position = match (self.position, byte) {
            (Position::Size { digits }, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).ok_or(ChunkError)?;
                self.remaining = self.remaining.saturating_mul(16).saturating_add(digit.into());
                match digits < SIZE_DIGITS_MAX {
                    true => Position::Size { digits: digits.saturating_add(1) },
                    false => return Err(ChunkError),
                }
            }
            (Position::Size { digits: 1.. } | Position::SizeSpace, b'\r') => Position::SizeEnd,
            (Position::Size { digits: 1.. } | Position::SizeSpace, b' ' | b'\t') => {
                self.count_overhead()?;
                Position::SizeSpace
            }
            (Position::Size { digits: 1.. } | Position::SizeSpace, b';') => Position::Extension,
            (Position::Extension, b'\r') => Position::SizeEnd,
            (Position::Extension, byte) if byte != b'\n' => {
                self.count_overhead()?;
                Position::Extension
            }
            (Position::SizeEnd, b'\n') if self.remaining == 0 => Position::TrailerStart,
            (Position::SizeEnd, b'\n') => Position::Data,
            (Position::DataEnd, b'\r') => Position::DataEndLine,
            (Position::DataEndLine, b'\n') => Position::Size { digits: 0 },
            (Position::TrailerStart, b'\r') => Position::LastLine,
            (Position::Trailer, b'\r') => Position::TrailerEndLine,
            (Position::TrailerStart | Position::Trailer, byte) if byte != b'\n' => {
                self.count_overhead()?;
                self.trailers.push(byte);
                Position::Trailer
            }
            (Position::TrailerEndLine, b'\n') => {
                self.trailers.extend_from_slice(b"\r\n");
                Position::TrailerStart
            }
            (Position::LastLine, b'\n') => {
                if !self.trailers.is_empty() {
                    self.trailers.extend_from_slice(b"\r\n");
                }
                Position::Ended
            }
            _ => return Err(ChunkError),
        };
        Ok(())
    }

    /// Counts a byte of an extension or a trailer field.
    fn count_overhead(&mut self) -> Result<(), ChunkError> {
        self.overhead = self.overhead.saturating_add(1);
        if self.overhead > OVERHEAD_BYTES_MAX { Err(ChunkError) } else { Ok(()) }
    }
}

/// The end of a response's head, if all of it is there, its body is chunked, and more of the body is to come.
pub(super) fn end_of_chunked_head(read: &[u8]) -> Option<usize> {
    // Interim responses are left to hyper.
    if !read.starts_with(b"HTTP/1.1 ") || read.get(9) == Some(&b'1') {
        return None;
    }
    let mut is_chunked = false;
    let mut start = 0;
    loop {
        let rest = read.get(start..)?;
        let length = rest.iter().position(|byte| *byte == b'\n')?.saturating_add(1);
        let line = rest.get(..length).unwrap_or_default();
        // hyper also takes lines that end without CR; where the head ends is left to it then.
        if !line.ends_with(b"\r\n") {
            return None;
        }
        start = start.saturating_add(length);
        if matches!(line, b"\r\n") {
            break;
        }
        if matches!(line, [b't' | b'T', ..]) {
            is_chunked |= is_chunked_coding(line);
        }
    }
    let is_complete = read.get(start..).unwrap_or_default().ends_with(b"0\r\n\r\n");
    (is_chunked && !is_complete).then_some(start)
}

fn is_chunked_coding(line: &[u8]) -> bool {
    const NAME: &[u8] = b"transfer-encoding:";
    line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
        && line
            .get(NAME.len()..)
            .is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a body in pieces of this size.
    fn decode(raw: &[u8], piece: usize) -> Result<(Vec<u8>, bool, bool), ChunkError> {
        let mut decoder = ChunkDecoder::new();
        let (mut data, mut excess) = (Vec::new(), false);
        for piece in raw.chunks(piece) {
            let (part, more) = decoder.decode(Bytes::copy_from_slice(piece))?;
            data.extend_from_slice(&part);
            excess |= more || (part.is_empty() && excess);
        }
        Ok((data, decoder.is_ended(), excess))
    }

    #[test]
    fn chunks_are_decoded_whatever_the_pieces() {
        let raw =
            b"3\r\nabc\r\n00a ;x=\"y\"\r\n0123456789\r\n1\t\r\n\n\r\n0\r\na: b\r\nc: d\r\n\r\n";
        for piece in 1..=raw.len() {
            let (data, ended, excess) = decode(raw, piece).unwrap();
            assert_eq!(data, b"abc0123456789\n", "{piece}");
            assert!(ended && !excess, "{piece}");
        }
        for (raw, expected) in [
            (b"0\r\n\r\n".as_slice(), None),
            (
                b"0\r\na: b\r\nc:d \r\na: e\r\n\r\n",
                Some("{\"a\": \"b\", \"a\": \"e\", \"c\": \"d\"}"),
            ),
        ] {
            let mut decoder = ChunkDecoder::new();
            decoder.decode(Bytes::from_static(raw)).unwrap();
            let trailers = decoder.take_trailers().unwrap();
            assert_eq!(trailers.map(|trailers| format!("{trailers:?}")).as_deref(), expected);
        }
        for raw in
            [b"0\r\na b: c\r\n\r\n".as_slice(), b"0\r\na: b\r\n c\r\n\r\n", b"0\r\n: b\r\n\r\n"]
        {
            let mut decoder = ChunkDecoder::new();
            decoder.decode(Bytes::from_static(raw)).unwrap();
            assert!(decoder.take_trailers().is_err(), "{raw:?}");
        }
        let (data, ended, _) = decode(b"5\r\nab", 100).unwrap();
        assert_eq!((data.as_slice(), ended), (b"ab".as_slice(), false), "it is incomplete");
        assert!(decode(b"0\r\n\r\nHTTP/1.1 200", 100).unwrap().2, "bytes follow");
    }

    #[test]
    fn broken_framing_is_an_error() {
        let long = [b"0\r\n".as_slice(), &[b'x'; OVERHEAD_BYTES_MAX + 1]].concat();
        for raw in [
            b"\r\nabc".as_slice(),
            b"x\r\n",
            b"-1\r\n",
            b"3\nabc\n",
            b"3\r\nabcd\r\n",
            b"3\r\nabc\n",
            b"3 4\r\nabc",
            b"3;a\nb\r\n",
            b"3\r\nabc\r\n\r\n",
            b"0\r\nx\n\r\n",
            b"0\r\n\r\r",
            b"ffffffffffffffffff\r\n",
            &long,
        ] {
            assert!(decode(raw, 7).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_if_a_chunked_body_follows() {
        let head = b"HTTP/1.1 200 OK\r\ntransfer-Encoding:\tChunked \r\na: b\r\n\r\n";
        assert_eq!(end_of_chunked_head(head), Some(head.len()));
        let begun = [head.as_slice(), b"3\r\nabc\r\n"].concat();
        assert_eq!(end_of_chunked_head(&begun), Some(head.len()));
        let complete = [head.as_slice(), b"3\r\nabc\r\n0\r\n\r\n"].concat();
        for other in [
            complete.as_slice(),
            &head[..head.len() - 1],
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            b"HTTP/1.1 103 Hints\r\ntransfer-encoding: chunked\r\n\r\n",
            b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n3\r\nabc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\n3\r\n\r\n",
            b"",
        ] {
            assert_eq!(end_of_chunked_head(other), None, "{other:?}");
        }
    }
}
