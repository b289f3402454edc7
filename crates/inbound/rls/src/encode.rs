//! From an answer to the bytes of a `RateLimitResponse`, in a gRPC frame.
//!
//! Most are short and written in one go. Of others the length is worked out
//! first. Either way one allocation holds the frame.

mod short;

use bytes::Bytes;
use serde_json::Value;

use super::answer::{Answer, CurrentLimit, DescriptorStatus};
use super::frame::PREFIX_LEN;
use super::metadata::Metadata;
use super::wire::{
    Kind, block_len, number_len, put_block, put_block_start, put_key, put_number_field,
};

/// A frame with the answer as its message.
pub(super) fn encode(answer: &Answer<'_>) -> Bytes {
    short::encode(answer).unwrap_or_else(|| encode_any(answer))
}

/// The same, whatever the length.
#[cold]
fn encode_any(answer: &Answer<'_>) -> Bytes {
    // Most answers have neither fields nor metadata, and for none of them an allocation.
    let headers = answer.headers.map(|headers| headers.map(header));
    let metadata = answer.metadata.as_ref().map(structure);
    let length = number_field_len(answer.overall as u64)
        + answer.statuses.iter().map(|status| block_len(status_len(status))).sum::<usize>()
        + headers.iter().flatten().map(|header| block_len(header.len())).sum::<usize>()
        + metadata.iter().map(|metadata| block_len(metadata.len())).sum::<usize>();
    let mut out = Vec::with_capacity(PREFIX_LEN + length);
    out.push(0);
    // No answer is nearly this long.
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    put_number_field(&mut out, 1, answer.overall as u64);
    for status in &answer.statuses {
        put_block_start(&mut out, 2, status_len(status));
        put_status(&mut out, status);
    }
    for header in headers.iter().flatten() {
        put_block(&mut out, 3, header);
    }
    if let Some(metadata) = metadata {
        put_block(&mut out, 6, &metadata);
    }
    Bytes::from(out)
}

/// How long a field is that is left out when it is zero.
#[inline]
const fn number_field_len(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + number_len(number) }
}

#[inline]
fn status_len(status: &DescriptorStatus<'_>) -> usize {
    let limit = status.current_limit.as_ref().map_or(0, |limit| {
        block_len(limit_len(limit)) + block_len(number_field_len(status.reset_seconds))
    });
    number_field_len(status.code as u64) + limit + number_field_len(u64::from(status.remaining))
}

#[inline]
fn limit_len(limit: &CurrentLimit<'_>) -> usize {
    let name = if limit.name.is_empty() { 0 } else { block_len(limit.name.len()) };
    number_field_len(u64::from(limit.requests_per_unit))
        + number_field_len(u64::from(limit.unit.get()))
        + name
}

#[inline]
fn put_status(out: &mut Vec<u8>, status: &DescriptorStatus<'_>) {
    put_unless_zero(out, 1, status.code as u64);
    if let Some(limit) = &status.current_limit {
        put_block_start(out, 2, limit_len(limit));
        put_unless_zero(out, 1, u64::from(limit.requests_per_unit));
        put_unless_zero(out, 2, u64::from(limit.unit.get()));
        if !limit.name.is_empty() {
            put_block(out, 3, limit.name.as_bytes());
        }
    }
    put_unless_zero(out, 3, u64::from(status.remaining));
    if status.current_limit.is_some() {
        put_block_start(out, 4, number_field_len(status.reset_seconds));
        put_unless_zero(out, 1, status.reset_seconds);
    }
}

#[inline]
fn put_unless_zero(out: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        put_number_field(out, field, number);
    }
}

/// The message of one header field.
fn header((name, value): (&str, u64)) -> Vec<u8> {
    let mut out = Vec::new();
    put_block(&mut out, 1, name.as_bytes());
    put_block(&mut out, 2, value.to_string().as_bytes());
    out
}

/// The message of a `Struct`. The depth is that of rule files, which is bounded.
fn structure(members: &Metadata) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members {
        let mut member = Vec::new();
        if !key.is_empty() {
            put_block(&mut member, 1, key.as_bytes());
        }
        put_block(&mut member, 2, &free(value));
        put_block(&mut out, 1, &member);
    }
    out
}

/// The message of a `Value`.
fn free(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Null => put_number_field(&mut out, 1, 0),
        Value::Number(number) => {
            put_key(&mut out, 2, Kind::Eight);
            out.extend_from_slice(&number.as_f64().unwrap_or_default().to_le_bytes());
        }
        Value::String(text) => put_block(&mut out, 3, text.as_bytes()),
        Value::Bool(flag) => put_number_field(&mut out, 4, u64::from(*flag)),
        Value::Object(members) => put_block(&mut out, 5, &structure(members)),
        Value::Array(items) => {
            let mut list = Vec::new();
            for item in items {
                put_block(&mut list, 1, &free(item));
            }
            put_block(&mut out, 6, &list);
        }
    }
    out
}

#[cfg(all(test, feature = "proto"))]
mod tests;
