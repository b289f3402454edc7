//! Answers: a status, a type and a body in memory.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde::Serialize;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// An answer of the door.
pub(super) type Answer = Response<Full<Bytes>>;

pub(super) const fn available(so: bool) -> StatusCode {
    if so { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Strings and numbers always serialize.
    serde_json::to_vec(value).unwrap_or_default()
}

pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    with_type(JSON, status, body)
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    with_type(TEXT, status, body)
}

/// JSON with header fields of its own; the type is added to them.
pub(super) fn json_with(
    mut headers: HeaderMap,
    status: StatusCode,
    body: impl Into<Bytes>,
) -> Answer {
    headers.insert(CONTENT_TYPE, JSON);
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

fn with_type(kind: HeaderValue, status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

pub(super) fn uncached(mut answer: Answer) -> Answer {
    answer.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    answer
}

/// The same answer without its body, whose length it still tells.
pub(super) fn without_body(mut answer: Answer) -> Answer {
    let length = std::mem::take(answer.body_mut()).size_hint().exact().unwrap_or_default();
    answer.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    answer
}
