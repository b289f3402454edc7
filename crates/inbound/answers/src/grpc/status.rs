//! The status of a refused call: a code, when to retry, and the same as `google.rpc.RetryInfo`.
//!
//! A refusal is trailers-only: the status is in the header fields, and there is no body. The pushback field makes
//! clients with a retry policy wait (gRFC A6); the details are for clients that read the rich error model. Both
//! messages of the details are a handful of bytes, so they are written by hand.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tidegate_engine::Retry;

use super::{MESSAGE, STATUS};
use crate::headers::{number_value, pushback_value};

const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// Any negative number tells a client not to retry.
const DO_NOT_RETRY: HeaderValue = HeaderValue::from_static("-1");

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";

/// The wire type of texts and messages.
const LENGTH_DELIMITED: u8 = 2;

/// Writes a status, and when to retry if that is known.
pub(crate) fn write(
    headers: &mut HeaderMap,
    code: u8,
    message: &HeaderValue,
    retry: Option<Retry>,
) {
    headers.insert(STATUS, number_value(u64::from(code)));
    headers.insert(MESSAGE, message.clone());
    match retry {
        None | Some(Retry::Now) => {}
        Some(Retry::Never) => {
            headers.insert(PUSHBACK, DO_NOT_RETRY);
        }
        Some(Retry::After(wait)) => {
            headers.insert(PUSHBACK, pushback_value(wait));
            headers.insert(DETAILS, details(code, message, wait.as_secs_ceil().max(1)));
        }
    }
}

/// The code for an HTTP status: gRPC's mapping, but for refusals by a limit.
pub(crate) fn code(status: StatusCode) -> u8 {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => 8,
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::FORBIDDEN => 7,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => 12,
        StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT
        | StatusCode::REQUEST_TIMEOUT => 14,
        _ => 13,
    }
}

/// The value of `grpc-status-details-bin`.
fn details(code: u8, message: &HeaderValue, retry_seconds: u64) -> HeaderValue {
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
    // gRPC asks for base64 without padding in fields whose names end in `-bin`.
    let details = HeaderValue::try_from(STANDARD_NO_PAD.encode(&status));
    details.unwrap_or(HeaderValue::from_static(""))
}

fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | LENGTH_DELIMITED);
    varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    // Seven bits at a time: up to ten steps.
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_of_each_length_are_encoded_without_padding() {
        for (message, end) in [("", ""), ("f", "f"), ("fo", "fo"), ("foo", "foo")] {
            let details = details(8, &HeaderValue::from_static(message), 1);
            assert!(!details.as_bytes().contains(&b'='), "{details:?}");
            let status = STANDARD_NO_PAD.decode(details.as_bytes()).unwrap();
            assert_eq!(status.get(4..4 + end.len()), Some(end.as_bytes()));
            assert!(status.windows(RETRY_INFO.len()).any(|part| part == RETRY_INFO));
        }
    }

    #[test]
    fn long_numbers_take_several_bytes() {
        let mut out = Vec::new();
        varint(&mut out, 300);
        assert_eq!(out, [0xac, 2]);
    }
}
