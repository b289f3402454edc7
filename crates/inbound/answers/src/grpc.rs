//! What doors share of gRPC: field names, the content type, messages, timeouts, and the status of a refusal.

pub mod status;
pub mod timeout;

use std::fmt::Write;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};

/// The code of a call's status.
pub const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The message of a call's status, percent-encoded.
pub const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The content type of a call.
pub const CONTENT_TYPE_GRPC: HeaderValue = HeaderValue::from_static(GRPC);

const GRPC: &str = "application/grpc";

/// Whether a request with these fields is a call of gRPC or gRPC-Web.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(is_grpc_type)
}

/// Whether a content type is one of gRPC.
pub fn is_grpc_type(content_type: &HeaderValue) -> bool {
    let content_type = content_type.as_bytes();
    let start = content_type.get(..GRPC.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(GRPC.as_bytes()))
        && matches!(content_type.get(GRPC.len()), None | Some(b'+' | b'-' | b';' | b' '))
}

/// Encodes a message: every byte but printable ASCII, and the percent sign, in hexadecimal.
pub fn percent_encoded(text: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.extend_from_slice(&[byte]),
            // Writing to memory that grows cannot fail.
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(content_type: &'static str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        is_grpc(&headers)
    }

    #[test]
    fn a_grpc_call_is_known_by_its_content_type() {
        assert!(calls("application/grpc"));
        assert!(calls("Application/gRPC+proto"));
        assert!(calls("application/grpc; charset=utf-8"));
        assert!(calls("application/grpc-web+proto"));
        assert!(!calls("application/grpcx"));
        assert!(!calls("application/json"));
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn a_message_is_percent_encoded_where_it_must_be() {
        assert_eq!(percent_encoded("50% of \u{e9}\n"), "50%25 of %C3%A9%0A");
    }
}
