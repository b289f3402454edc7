//! The answer to a request that we are too busy for.
//!
//! Bodies are written once for the whole process. A refusal makes only its fields, because under
//! overload most answers are refusals.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde::Serialize;
use tidegate_overload::Refusal;

use crate::answer::without_body;
use crate::receipt::Unserved;
use tidegate_answers::grpc::{is_grpc, percent_encoded};
use tidegate_answers::refusals::{Cause, grpc_status, retry};

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// A cached refusal would outlive its reason.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const FLEET: HeaderValue = HeaderValue::from_static("fleet");

const SHED: HeaderName = HeaderName::from_static("x-tidegate-shed");
const SATURATED: HeaderName = HeaderName::from_static("x-tidegate-saturated");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// One answer, as a problem and as a status.
struct Written {
    status: StatusCode,
    problem: Bytes,
    grpc_code: u8,
    message: HeaderValue,
}

/// The body, in the order in which the gateway has it.
#[derive(Serialize)]
struct Problem<'w> {
    r#type: &'w str,
    title: &'w str,
    status: u16,
    code: &'w str,
    detail: &'w str,
}

static WRITTEN: LazyLock<Vec<Written>> =
    LazyLock::new(|| Cause::ALL.into_iter().map(Written::of).collect());

impl Written {
    fn of(cause: Cause) -> Self {
        let words = cause.words();
        let problem = Problem {
            r#type: words.kind,
            title: words.title,
            status: words.status.as_u16(),
            code: words.code,
            detail: &words.detail,
        };
        let message = HeaderValue::from_maybe_shared(percent_encoded(&words.detail));
        Written {
            status: words.status,
            // Strings and numbers always serialize.
            problem: serde_json::to_vec(&problem).unwrap_or_default().into(),
            grpc_code: grpc_status::code(words.status),
            message: message.unwrap_or(HeaderValue::from_static("")),
        }
    }
}

/// The usual answer, in the words of whoever asks.
pub(super) fn usual(request: &Parts, refusal: &Refusal) -> Response<Bytes> {
    let Some(written) = WRITTEN.get(Cause::from(refusal.cause) as usize) else {
        let mut answer = Response::new(Bytes::new());
        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return answer;
    };
    if is_grpc(&request.headers) {
        return grpc(written, request, seconds(refusal));
    }
    let mut answer = Response::new(written.problem.clone());
    *answer.status_mut() = written.status;
    answer.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    if request.method == Method::HEAD { without_body(answer) } else { answer }
}

/// The fields that every refusal has, whoever wrote it. One that it has already stays. A caller's
/// own limits are told that they charged for nothing.
pub(super) fn complete(answer: &mut Response<Bytes>, request: &Parts, refusal: &Refusal) {
    answer.extensions_mut().insert(Unserved);
    let headers = answer.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
    if !is_grpc(&request.headers) {
        headers.entry(RETRY_AFTER).or_insert_with(|| retry::number(seconds(refusal)));
    }
    headers.insert(SHED, HeaderValue::from_static(refusal.category.name()));
    if refusal.fleet_saturated {
        headers.insert(SATURATED, FLEET);
    }
}

/// Trailers only: the status stands in the header fields.
fn grpc(written: &Written, request: &Parts, seconds: u64) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::new());
    let headers = answer.headers_mut();
    let content_type = request.headers.get(CONTENT_TYPE).cloned();
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(GRPC));
    headers.insert(GRPC_STATUS, retry::number(u64::from(written.grpc_code)));
    headers.insert(GRPC_MESSAGE, written.message.clone());
    headers.insert(GRPC_PUSHBACK, retry::millis(seconds));
    let details = grpc_status::details(written.grpc_code, &written.message, seconds);
    headers.insert(GRPC_DETAILS, details);
    answer
}

fn seconds(refusal: &Refusal) -> u64 {
    refusal.retry_after.as_secs_ceil().max(1)
}
