//! Wire → request: protobuf messages in gRPC frames, and protobuf's JSON.
//!
//! Fields may come in any order and more than once: the last number or text wins, embedded messages are merged, lists
//! grow. Only the encoding is checked here; [`RateLimitRequest::validate`] checks the content.

pub(crate) mod frame;
pub(crate) mod json;
mod request;
pub(crate) mod wire;

pub(crate) use request::{
    LimitOverride, OverrideLimits, RateLimitRequest, RefusedHits, RequestDescriptor, RequestError,
};
use wire::{Reader, WireError};

/// Decodes a message into a caller-provided empty request: returning it by value would copy it.
pub(crate) fn decode<'b>(
    message: &'b [u8],
    request: &mut RateLimitRequest<'b>,
) -> Result<(), WireError> {
    let mut reader = Reader::new(message);
    while let Some((field, kind)) = reader.field()? {
        match field {
            1 => request.domain = reader.text(kind)?,
            2 => decode_descriptor(reader.message(kind)?, request)?,
            3 => request.hits = reader.number32(kind)?,
            _ => reader.skip(field, kind)?,
        }
    }
    Ok(())
}

fn decode_descriptor<'b>(
    mut reader: Reader<'b>,
    request: &mut RateLimitRequest<'b>,
) -> Result<(), WireError> {
    let mut descriptor = request.start_descriptor();
    while let Some((field, kind)) = reader.field()? {
        match field {
            1 => {
                let (key, value) = decode_entry(reader.message(kind)?)?;
                request.push_entry(key, value);
            }
            2 => decode_limit(reader.message(kind)?, descriptor.limit.get_or_insert_default())?,
            3 => decode_wrapped(reader.message(kind)?, descriptor.hits.get_or_insert_default())?,
            4 => descriptor.negative = reader.number(kind)? != 0,
            _ => reader.skip(field, kind)?,
        }
    }
    request.end_descriptor(descriptor);
    Ok(())
}

#[inline]
fn decode_entry(mut reader: Reader<'_>) -> Result<(&str, &str), WireError> {
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

fn decode_limit(mut reader: Reader<'_>, limit: &mut LimitOverride) -> Result<(), WireError> {
    while let Some((field, kind)) = reader.field()? {
        match field {
            1 => limit.requests_per_unit = reader.number32(kind)?,
            2 => limit.unit = reader.number32(kind)?.cast_signed(),
            _ => reader.skip(field, kind)?,
        }
    }
    Ok(())
}

fn decode_wrapped(mut reader: Reader<'_>, number: &mut u64) -> Result<(), WireError> {
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
