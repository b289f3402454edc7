//! HTTP responses with a body in memory.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde::Serialize;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A response of the API.
pub(crate) type HttpResponse = Response<Full<Bytes>>;

pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Cannot fail: strings and numbers only.
    serde_json::to_vec(value).unwrap_or_default()
}

pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    json_with(HeaderMap::new(), status, body)
}

/// JSON with these header fields; the content type is added.
pub(crate) fn json_with(
    headers: HeaderMap,
    status: StatusCode,
    body: impl Into<Bytes>,
) -> HttpResponse {
    typed(JSON, headers, status, body)
}

pub(crate) fn text(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    typed(TEXT, HeaderMap::new(), status, body)
}

fn typed(
    content_type: HeaderValue,
    mut headers: HeaderMap,
    status: StatusCode,
    body: impl Into<Bytes>,
) -> HttpResponse {
    headers.insert(CONTENT_TYPE, content_type);
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

pub(crate) fn uncached(mut response: HttpResponse) -> HttpResponse {
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Removes the body but keeps its length, for `HEAD`.
pub(crate) fn without_body(mut response: HttpResponse) -> HttpResponse {
    let length = std::mem::take(response.body_mut()).size_hint().exact().unwrap_or_default();
    response.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    response
}
