//! The wire format of protobuf, as far as the service needs it.
//!
//! Reading borrows from the message: no text is copied. It accepts and rejects
//! exactly what prost does, groups and their depth included; tests compare the
//! two. Writing goes to a buffer whose length was worked out before.

use thiserror::Error;

/// How deep unknown groups may nest, as prost has it.
pub(super) const DEPTH_MAX: u32 = 100;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum WireError {
    #[error("a number is cut off or too long")]
    Number,
    #[error("a field has an impossible key")]
    Key,
    #[error("a field is not of the type that it should be")]
    Type,
    #[error("a field is longer than the message")]
    Length,
    #[error("a text is not UTF-8")]
    Text,
    #[error("a group is not closed properly")]
    Group,
    #[error("groups are nested too deeply")]
    Depth,
}

/// How a field's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    Eight,
    Block,
    GroupStart,
    GroupEnd,
    Four,
}

/// Reads the fields of one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'b> {
    rest: &'b [u8],
    /// The whole message, if it is text altogether, as most are: keys and
    /// lengths are small numbers, which are characters too. Its texts are then
    /// parts of this one, and need not be looked through again.
    text: &'b str,
    /// How many more levels may be entered.
    depth: u32,
}

impl<'b> Reader<'b> {
    pub(super) fn new(message: &'b [u8]) -> Self {
        let text = std::str::from_utf8(message).unwrap_or_default();
        Reader { rest: message, text, depth: DEPTH_MAX }
    }

    /// The next field's number and kind; none at the end of the message.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Option<(u32, Kind)>, WireError> {
        if self.rest.is_empty() { Ok(None) } else { self.key().map(Some) }
    }

    /// The value of a field that is a number.
    #[inline]
    pub(super) fn number(&mut self, kind: Kind) -> Result<u64, WireError> {
        if kind != Kind::Number {
            return Err(WireError::Type);
        }
        self.varint()
    }

    /// The value of a field of 32 bits: of larger numbers the lower bits count.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "protobuf keeps the lower bits")]
    pub(super) fn number32(&mut self, kind: Kind) -> Result<u32, WireError> {
        self.number(kind).map(|number| number as u32)
    }

    /// The value of a field that is text.
    #[inline]
    pub(super) fn text(&mut self, kind: Kind) -> Result<&'b str, WireError> {
        let block = self.block(kind)?;
        match self.as_text(block.len()) {
            Some(text) => Ok(text),
            None => std::str::from_utf8(block).map_err(|_| WireError::Text),
        }
    }

    /// The value of a field that is a message itself.
    #[inline]
    pub(super) fn message(&mut self, kind: Kind) -> Result<Reader<'b>, WireError> {
        let rest = self.block(kind)?;
        let text = self.as_text(rest.len()).unwrap_or_default();
        Ok(Reader { rest, text, depth: self.depth.saturating_sub(1) })
    }

    /// What was read last, of this length, if it is known to be text.
    #[inline]
    fn as_text(&self, length: usize) -> Option<&'b str> {
        let end = self.text.len().checked_sub(self.rest.len())?;
        let start = end.checked_sub(length)?;
        self.text.get(start..end)
    }

    /// Steps over a field that nobody knows.
    #[cold]
    pub(super) fn skip(&mut self, number: u32, kind: Kind) -> Result<(), WireError> {
        self.skip_at(number, kind, self.depth)
    }

    fn skip_at(&mut self, number: u32, kind: Kind, depth: u32) -> Result<(), WireError> {
        // Bounds the recursion: each group takes one.
        let Some(below) = depth.checked_sub(1) else { return Err(WireError::Depth) };
        match kind {
            Kind::Number => self.varint().map(|_| ()),
            Kind::Four => self.take(4).map(|_| ()),
            Kind::Eight => self.take(8).map(|_| ()),
            Kind::Block => self.block(kind).map(|_| ()),
            Kind::GroupEnd => Err(WireError::Group),
            Kind::GroupStart => loop {
                match self.key()? {
                    (inner, Kind::GroupEnd) if inner == number => return Ok(()),
                    (_, Kind::GroupEnd) => return Err(WireError::Group),
                    (inner, kind) => self.skip_at(inner, kind, below)?,
                }
            },
        }
    }

    #[inline]
    fn key(&mut self) -> Result<(u32, Kind), WireError> {
        let key = u32::try_from(self.varint()?).map_err(|_| WireError::Key)?;
        let kind = match key & 7 {
            0 => Kind::Number,
            1 => Kind::Eight,
            2 => Kind::Block,
            3 => Kind::GroupStart,
            4 => Kind::GroupEnd,
            5 => Kind::Four,
            _ => return Err(WireError::Key),
        };
        let number = key >> 3;
        if number == 0 { Err(WireError::Key) } else { Ok((number, kind)) }
    }

    #[inline]
    fn block(&mut self, kind: Kind) -> Result<&'b [u8], WireError> {
        if kind != Kind::Block {
            return Err(WireError::Type);
        }
        let length = usize::try_from(self.varint()?).map_err(|_| WireError::Length)?;
        self.take(length)
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'b [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::Length)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for place in 0..10_u32 {
            let Some((byte, rest)) = self.rest.split_first() else { break };
            self.rest = rest;
            value |= u64::from(byte & 0x7F) << (place * 7);
            if *byte < 0x80 {
                // The tenth byte has room for one bit.
                let fits = place < 9 || *byte < 2;
                return if fits { Ok(value) } else { Err(WireError::Number) };
            }
        }
        Err(WireError::Number)
    }
}

/// How many bytes a number takes.
#[inline]
pub(super) const fn number_len(number: u64) -> usize {
    // Seven bits a byte; zero takes one.
    (number | 1).ilog2() as usize / 7 + 1
}

/// How many bytes a block of this length takes, its length before it and its key included.
#[inline]
pub(super) fn block_len(length: usize) -> usize {
    1 + number_len(length as u64) + length
}

/// Writes a number.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes the key of a field; its number is below sixteen.
#[inline]
pub(super) fn put_key(out: &mut Vec<u8>, number: u8, kind: Kind) {
    let kind = match kind {
        Kind::Number => 0,
        Kind::Eight => 1,
        Kind::Block => 2,
        Kind::GroupStart => 3,
        Kind::GroupEnd => 4,
        Kind::Four => 5,
    };
    out.push(number << 3 | kind);
}

/// Writes a field that is a number.
#[inline]
pub(super) fn put_number_field(out: &mut Vec<u8>, field: u8, number: u64) {
    put_key(out, field, Kind::Number);
    put_number(out, number);
}

/// Writes a field's key and the length of the block that follows.
#[inline]
pub(super) fn put_block_start(out: &mut Vec<u8>, field: u8, length: usize) {
    put_key(out, field, Kind::Block);
    put_number(out, length as u64);
}

/// Writes a field that is a block.
#[inline]
pub(super) fn put_block(out: &mut Vec<u8>, field: u8, block: &[u8]) {
    put_block_start(out, field, block.len());
    out.extend_from_slice(block);
}
