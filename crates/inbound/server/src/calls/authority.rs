//! Makes the authority of clients on Unix sockets acceptable to `h2`.
//!
//! gRPC's core library (Python, Ruby, C++) sends the path of the socket as `:authority`, percent-encoded:
//! `run%2Fratelimit.sock`. `h2` answers a `%` in an authority with RST_STREAM, and no service reads the authority of a
//! Unix socket. So bytes that no authority may have become `-`, in place: lengths and the sizes of HPACK's dynamic table
//! stay the same. A value in Huffman's code is left as it is; that library does not use it.

const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
const NAME: &[u8] = b":authority";
/// The index of `:authority` in HPACK's static table.
const NAME_INDEX: usize = 1;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Rewrites the bytes that a client sends, as they are read.
#[derive(Debug)]
pub(super) struct AuthorityFilter {
    part: FramePart,
    /// How many bytes the part has left.
    rest: usize,
    head: [u8; FRAME_HEAD_BYTES],
    field: FieldPart,
}

#[derive(Clone, Copy, Debug)]
enum FramePart {
    Preface,
    Head,
    /// The pad length and the priority of a HEADERS frame; then follow so many bytes of fields.
    BlockPrefix {
        block: usize,
    },
    Block,
    Other,
}

/// A part of a field in a header block.
#[derive(Clone, Copy, Debug)]
enum FieldPart {
    Start,
    /// The rest of an index; a literal follows if there is a value.
    Index {
        index: HpackInteger,
        literal: bool,
    },
    Length {
        of: FieldText,
    },
    LongLength {
        of: FieldText,
        length: HpackInteger,
        huffman: bool,
    },
    Text {
        of: FieldText,
        rest: usize,
        huffman: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum FieldText {
    /// A name, of which so many bytes are those of [`NAME`]; `None` once one differs.
    Name {
        equal: Option<usize>,
    },
    Value {
        of_authority: bool,
    },
}

/// A number of several bytes, seven bits each.
#[derive(Clone, Copy, Debug)]
struct HpackInteger {
    value: usize,
    shift: u32,
}

impl HpackInteger {
    /// Adds a byte; the number if it was the last one.
    fn add(&mut self, byte: u8) -> Option<usize> {
        let bits = usize::from(byte & 0x7F).checked_shl(self.shift).unwrap_or(usize::MAX);
        self.value = self.value.saturating_add(bits);
        self.shift = self.shift.saturating_add(7);
        (byte & 0x80 == 0).then_some(self.value)
    }
}

impl AuthorityFilter {
    pub(super) const fn new() -> Self {
        AuthorityFilter {
            part: FramePart::Preface,
            rest: PREFACE_BYTES,
            head: [0; FRAME_HEAD_BYTES],
            field: FieldPart::Start,
        }
    }

    /// Rewrites the next bytes of the connection.
    pub(super) fn rewrite(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let (part, later) = bytes.split_at_mut(self.rest.min(bytes.len()));
            self.rewrite_part(part);
            self.rest -= part.len();
            while self.rest == 0 {
                self.start_next_part();
            }
            bytes = later;
        }
    }

    fn rewrite_part(&mut self, part: &mut [u8]) {
        match self.part {
            FramePart::Head => {
                let start = FRAME_HEAD_BYTES - self.rest;
                for (to, from) in self.head.iter_mut().skip(start).zip(part) {
                    *to = *from;
                }
            }
            FramePart::Block => part.iter_mut().for_each(|byte| self.read_field(byte)),
            FramePart::Preface | FramePart::BlockPrefix { .. } | FramePart::Other => {}
        }
    }

    fn start_next_part(&mut self) {
        (self.part, self.rest) = match self.part {
            FramePart::Head => {
                let [high, middle, low, kind, flags, ..] = self.head;
                let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                match kind {
                    HEADERS => {
                        self.field = FieldPart::Start;
                        let padding = usize::from(flags & PADDED != 0);
                        let prefix = padding + if flags & PRIORITY != 0 { 5 } else { 0 };
                        let prefix = prefix.min(length);
                        (FramePart::BlockPrefix { block: length - prefix }, prefix)
                    }
                    CONTINUATION => (FramePart::Block, length),
                    _ => (FramePart::Other, length),
                }
            }
            FramePart::BlockPrefix { block } => (FramePart::Block, block),
            FramePart::Preface | FramePart::Block | FramePart::Other => {
                (FramePart::Head, FRAME_HEAD_BYTES)
            }
        };
    }

    /// Reads one byte of a header block, and replaces it if it may not be in an authority.
    fn read_field(&mut self, byte: &mut u8) {
        self.field = match &mut self.field {
            FieldPart::Start => start_field(*byte),
            FieldPart::Index { index, literal } => match index.add(*byte) {
                Some(index) => after_index(index, *literal),
                None => return,
            },
            FieldPart::Length { of } => {
                let (huffman, length) = (*byte & 0x80 != 0, usize::from(*byte & 0x7F));
                if length == 0x7F {
                    let length = HpackInteger { value: length, shift: 0 };
                    FieldPart::LongLength { of: *of, length, huffman }
                } else {
                    start_text(*of, length, huffman)
                }
            }
            FieldPart::LongLength { of, length, huffman } => match length.add(*byte) {
                Some(length) => start_text(*of, length, *huffman),
                None => return,
            },
            FieldPart::Text { of, rest, huffman } => {
                match of {
                    FieldText::Name { equal } => {
                        let next = equal.filter(|equal| NAME.get(*equal) == Some(byte));
                        *equal = next.filter(|_| !*huffman).map(|equal| equal + 1);
                    }
                    FieldText::Value { of_authority: true } if !*huffman && !is_allowed(*byte) => {
                        *byte = b'-';
                    }
                    FieldText::Value { .. } => {}
                }
                *rest -= 1;
                if *rest > 0 {
                    return;
                }
                after_text(*of)
            }
        };
    }
}

fn start_field(byte: u8) -> FieldPart {
    let (bits, literal) = match byte {
        0x80.. => (7, false),
        0x40.. => (6, true),
        // The size of the dynamic table.
        0x20.. => (5, false),
        _ => (4, true),
    };
    let most = (1_usize << bits) - 1;
    let index = usize::from(byte) & most;
    if index == most {
        return FieldPart::Index { index: HpackInteger { value: index, shift: 0 }, literal };
    }
    after_index(index, literal)
}

const fn after_index(index: usize, literal: bool) -> FieldPart {
    match (literal, index) {
        (false, _) => FieldPart::Start,
        (true, 0) => FieldPart::Length { of: FieldText::Name { equal: Some(0) } },
        (true, _) => {
            FieldPart::Length { of: FieldText::Value { of_authority: index == NAME_INDEX } }
        }
    }
}

const fn start_text(of: FieldText, length: usize, huffman: bool) -> FieldPart {
    if length == 0 { after_text(of) } else { FieldPart::Text { of, rest: length, huffman } }
}

const fn after_text(of: FieldText) -> FieldPart {
    match of {
        FieldText::Name { equal } => {
            let of_authority = matches!(equal, Some(equal) if equal == NAME.len());
            FieldPart::Length { of: FieldText::Value { of_authority } }
        }
        FieldText::Value { .. } => FieldPart::Start,
    }
}

const fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'[' | b']' | b'@')
        || matches!(
            byte,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn literal(name: &str, value: &str) -> Vec<u8> {
        let length = |text: &str| u8::try_from(text.len()).unwrap();
        [&[0x40, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
    }

    /// The same bytes, rewritten in pieces of any size.
    fn rewritten(frames: &[Vec<u8>], pieces: usize) -> Vec<u8> {
        let mut bytes = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frames.concat()].concat();
        let mut filter = AuthorityFilter::new();
        bytes.chunks_mut(pieces).for_each(|piece| filter.rewrite(piece));
        bytes.split_off(PREFACE_BYTES)
    }

    #[test]
    fn only_the_authority_is_rewritten_whatever_the_pieces() {
        let frames = |authority: &str| {
            let block = [
                literal(":path", "/a%2Fb"),
                literal(":authority", authority),
                vec![0x83, 0x86],
                literal("x-other", "50%"),
            ]
            .concat();
            let named = [&[0x41, 3], authority.get(..3).unwrap().as_bytes(), b"\x82"].concat();
            let (first, rest) = named.split_at(4);
            vec![
                frame(4, 0, &[]),
                frame(HEADERS, 4, &block),
                frame(0, 1, b"%%%"),
                frame(HEADERS, PRIORITY | PADDED, &[&[0; 6], first].concat()),
                frame(CONTINUATION, 4, rest),
                frame(0, 1, b":authority%"),
            ]
        };
        let expected = frames("a-%2Fb/c".replace(['%', '/'], "-").as_str()).concat();
        for pieces in [1, 2, 3, 7, 1_000] {
            assert_eq!(rewritten(&frames("a-%2Fb/c"), pieces), expected, "{pieces}");
        }
    }

    #[test]
    fn no_bytes_make_it_fail() {
        let mut filter = AuthorityFilter::new();
        let mut state = 1_u32;
        for _ in 0..100_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            filter.rewrite(&mut state.to_be_bytes());
        }
    }
}
