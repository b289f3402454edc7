//! From the bytes of a `RateLimitRequest` to what is asked.
//!
//! Fields may come in any order and more than once: of numbers and texts the
//! last counts, embedded messages are merged, lists grow. Nothing is judged
//! here: an empty domain or an unknown unit is still a message.

use super::asked::{Asked, OwnLimit};
use super::wire::{Reader, WireError};

/// Reads a message into what nothing was asked in yet: that is too large to be moved.
pub(super) fn decode<'b>(message: &'b [u8], asked: &mut Asked<'b>) -> Result<(), WireError> {
    let mut reader = Reader::new(message);
    while let Some((field, kind)) = reader.field()? {
        match field {
            1 => asked.domain = reader.text(kind)?,
            2 => descriptor(reader.message(kind)?, asked)?,
            3 => asked.hits = reader.number32(kind)?,
            _ => reader.skip(field, kind)?,
        }
    }
    Ok(())
}

fn descriptor<'b>(mut reader: Reader<'b>, asked: &mut Asked<'b>) -> Result<(), WireError> {
    let mut part = asked.begin();
    while let Some((field, kind)) = reader.field()? {
        match field {
            1 => {
                let (key, value) = entry(reader.message(kind)?)?;
                asked.entry(key, value);
            }
            2 => own_limit(reader.message(kind)?, part.limit.get_or_insert_default())?,
            3 => wrapped(reader.message(kind)?, part.hits.get_or_insert_default())?,
            4 => part.negative = reader.number(kind)? != 0,
            _ => reader.skip(field, kind)?,
        }
    }
    asked.end(part);
    Ok(())
}

#[inline]
fn entry(mut reader: Reader<'_>) -> Result<(&str, &str), WireError> {
    let (mut key, mut value) = ("", "");
    while let Some((field, kind)) = reader.field()? {
        match field {
            1 => key = reader.text(kind)?,
            2 => value = reader.text(kind)?,
            _ => reader.skip(field, kind)?,
        }
    }
    Ok((key, value))
}

fn own_limit(mut reader: Reader<'_>, limit: &mut OwnLimit) -> Result<(), WireError> {
    while let Some((field, kind)) = reader.field()? {
        match field {
            1 => limit.requests_per_unit = reader.number32(kind)?,
            2 => limit.unit = reader.number32(kind)?.cast_signed(),
            _ => reader.skip(field, kind)?,
        }
    }
    Ok(())
}

fn wrapped(mut reader: Reader<'_>, number: &mut u64) -> Result<(), WireError> {
    while let Some((field, kind)) = reader.field()? {
        match field {
            1 => *number = reader.number(kind)?,
            _ => reader.skip(field, kind)?,
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "proto"))]
mod tests;
