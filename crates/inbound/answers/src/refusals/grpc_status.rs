//! A refusal as gRPC has it: a code, and details that say when to try again.
//!
//! The details are a `google.rpc.Status` with a `google.rpc.RetryInfo`. Both are a handful of
//! bytes, written here by hand.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
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
    // Seven bits at a time: ten steps at most.
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
