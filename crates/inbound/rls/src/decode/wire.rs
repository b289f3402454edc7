//! A reader of the protobuf wire format, as far as the service needs it.
//!
//! Borrows from the message: no text is copied. Accepts and rejects exactly what prost does, including groups and their
//! depth; tests compare the two.

use thiserror::Error;

/// How deep unknown groups may nest, as prost has it.
pub(super) const DEPTH_MAX: u32 = 100;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum WireError {
    #[error("a number is truncated or too long")]
    Number,
    #[error("a field has an invalid key")]
    Key,
    #[error("a field has the wrong type")]
    Type,
    #[error("a field is longer than the message")]
    Length,
    #[error("a text is not UTF-8")]
    Text,
    #[error("a group is not closed")]
    Group,
    #[error("groups are nested too deeply")]
    Depth,
}

/// The wire type of a field.
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
    /// The whole message as text, if all of it is UTF-8; else empty. Most messages are: keys and lengths are small
    /// numbers, which are ASCII characters. Texts are then slices of this one and are not validated again.
    text: &'b str,
    /// How many more levels may be nested.
    depth: u32,
}

impl<'b> Reader<'b> {
    pub(super) fn new(message: &'b [u8]) -> Self {
        let text = std::str::from_utf8(message).unwrap_or_default();
        Reader { rest: message, text, depth: DEPTH_MAX }
    }

    /// The number and kind of the next field; none at the end of the message.
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

    /// The value of a field of 32 bits; larger numbers are truncated to the lower bits.
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

    /// The last `length` bytes that were read, if they are known to be text.
    #[inline]
    fn as_text(&self, length: usize) -> Option<&'b str> {
        let end = self.text.len().checked_sub(self.rest.len())?;
        let start = end.checked_sub(length)?;
        self.text.get(start..end)
    }

    /// Skips an unknown field.
    #[cold]
    pub(super) fn skip(&mut self, number: u32, kind: Kind) -> Result<(), WireError> {
        self.skip_at(number, kind, self.depth)
    }

    fn skip_at(&mut self, number: u32, kind: Kind, depth: u32) -> Result<(), WireError> {
        // Bounds the recursion: each group takes one level.
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
        for index in 0..10_u32 {
            let Some((byte, rest)) = self.rest.split_first() else { break };
            self.rest = rest;
            value |= u64::from(byte & 0x7F) << (index * 7);
            if *byte < 0x80 {
                // The tenth byte has room for one bit.
                let fits = index < 9 || *byte < 2;
                return if fits { Ok(value) } else { Err(WireError::Number) };
            }
        }
        Err(WireError::Number)
    }
}
