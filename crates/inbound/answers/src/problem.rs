//! A refusal as an HTTP answer with a problem body (RFC 9457).
//!
//! The types are those that the IETF's draft on rate limit fields registers. A
//! request that could not be decided is the server's problem, never the
//! client's quota: it is answered with 503.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::notice::Notice;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// A cached refusal would outlive its reason.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Problem {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// The answer for a refused request, without rate limit fields.
pub fn problem_answer(notice: &Notice<'_>) -> Response<Bytes> {
    let (status, kind, title) = if notice.is_undecided_refusal() {
        (StatusCode::SERVICE_UNAVAILABLE, "about:blank", "Service Unavailable")
    } else {
        let kind = "https://iana.org/assignments/http-problem-types#quota-exceeded";
        (StatusCode::TOO_MANY_REQUESTS, kind, "Quota Exceeded")
    };
    let problem = Problem {
        r#type: kind,
        title,
        status: status.as_u16(),
        detail: notice.detail(),
        violated_policies: notice.violated().map(|policy| policy.name().to_string()).collect(),
        retry_after: notice.retry_after_seconds(),
    };
    // Strings and numbers always serialize.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut answer = Response::new(Bytes::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    answer.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    answer
}
