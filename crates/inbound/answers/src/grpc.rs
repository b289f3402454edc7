//! A refusal as an answer to a gRPC call.
//!
//! Trailers only: the status stands in the header fields, and there is no body.
//! The pushback field keeps clients with a retry policy from asking too early
//! (gRFC A6).

pub mod timeout;

use std::fmt::Write;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response};
use tidegate_engine::Retry;

use crate::notice::Notice;

const GRPC: &[u8] = b"application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");
/// Any negative number says so.
const DO_NOT_RETRY: HeaderValue = HeaderValue::from_static("-1");

/// Whether a request with these fields is a gRPC call, or one of gRPC-Web.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(is_grpc_type)
}

/// Whether a content type is one of gRPC.
pub fn is_grpc_type(content_type: &HeaderValue) -> bool {
    let content_type = content_type.as_bytes();
    content_type.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
        && matches!(content_type.get(GRPC.len()), None | Some(b'+' | b'-' | b';' | b' '))
}

/// The answer for a refused call, without rate limit fields. `content_type` is the call's own.
pub fn grpc_answer(notice: &Notice<'_>, content_type: Option<&HeaderValue>) -> Response<Bytes> {
    let status = if notice.is_undecided_refusal() { UNAVAILABLE } else { RESOURCE_EXHAUSTED };
    let content_type = content_type.cloned();
    let mut answer = Response::new(Bytes::new());
    let headers = answer.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        content_type.unwrap_or_else(|| HeaderValue::from_static("application/grpc")),
    );
    headers.insert(STATUS, status);
    if let Ok(message) = HeaderValue::from_maybe_shared(percent_encoded(&notice.detail())) {
        headers.insert(MESSAGE, message);
    }
    match notice.retry() {
        Retry::Now => {}
        Retry::After(wait) => {
            headers.insert(PUSHBACK, HeaderValue::from(wait.get().div_ceil(1_000_000)));
        }
        Retry::Never => {
            headers.insert(PUSHBACK, DO_NOT_RETRY);
        }
    }
    answer
}

/// The text as gRPC's messages are written: all but printable ASCII, and the
/// percent sign, as the hexadecimal value of each byte.
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
