//! A refusal as gRPC has it: a code, and details that say when to try again.
//!
//! The details are a `google.rpc.Status` with a `google.rpc.RetryInfo`. Both are a handful of
//! bytes, written here by hand.

use http::StatusCode;
use http::header::HeaderValue;

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";

/// Fields of a message that are messages or texts, by number.
const LENGTH_DELIMITED: u8 = 2;

/// The code for an HTTP status, as gRPC maps them, but for refusals by a limit.
pub fn code(status: StatusCode) -> u8 {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => 8,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => 12,
        StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT
        | StatusCode::REQUEST_TIMEOUT => 14,
        _ => 13,
    }
}

/// The details, as `grpc-status-details-bin` has them.
pub fn details(code: u8, message: &HeaderValue, retry_seconds: u64) -> HeaderValue {
    let mut duration = vec![8];
    varint(&mut duration, retry_seconds);
    let mut retry_info = Vec::new();
    field(&mut retry_info, 1, &duration);
    let mut any = Vec::new();
    field(&mut any, 1, RETRY_INFO);
    field(&mut any, 2, &retry_info);
    let mut status = vec![8, code];
    field(&mut status, 2, message.as_bytes());
    field(&mut status, 3, &any);
    HeaderValue::from_bytes(&base64(&status)).unwrap_or(HeaderValue::from_static(""))
}

fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | LENGTH_DELIMITED);
    varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    // Seven bits at a time: ten steps at most.
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Base64 without padding, as gRPC wants fields whose names end in `-bin`.
fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for chunk in bytes.chunks(3) {
        let byte = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..=chunk.len() {
            let six = (bits >> (18_usize.saturating_sub(6 * place))) & 63;
            let digit = usize::try_from(six).ok().and_then(|six| ALPHABET.get(six));
            out.extend(digit);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_each_length_is_written() {
        for (bytes, expected) in
            [(&b""[..], ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (&[251, 255], "+/8")]
        {
            assert_eq!(base64(bytes), expected.as_bytes());
        }
    }

    #[test]
    fn long_numbers_take_several_bytes() {
        let mut out = Vec::new();
        varint(&mut out, 300);
        assert_eq!(out, [0xac, 2]);
    }
}
