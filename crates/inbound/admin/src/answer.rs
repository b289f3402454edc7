//! Answers of the debug port: text, JSON, problems.

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use serde::Serialize;
use tidegate_access::CHALLENGE;
use tidegate_answers::{NO_STORE, PROBLEM_JSON};

use super::body::DebugBody;

/// An answer of the debug port.
pub(super) type Answer = Response<DebugBody>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CSV: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Problem { status, detail: detail.into() }
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        let body = tidegate_answers::Problem::new(problem.status, &problem.detail, ());
        let mut answer = json_as(PROBLEM_JSON, &body);
        *answer.status_mut() = problem.status;
        if problem.status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
        }
        answer
    }
}

pub(super) fn text(body: String) -> Answer {
    typed(TEXT, body)
}

pub(super) fn typed(content_type: HeaderValue, body: impl Into<DebugBody>) -> Answer {
    let mut answer = Response::new(body.into());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    headers.insert(http::header::REFERRER_POLICY, NO_REFERRER);
    answer
}

/// A table to download under this name.
pub(super) fn csv(name: &'static str, body: String) -> Answer {
    let mut answer = typed(CSV, body);
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        answer.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    answer
}

/// A stream of events.
pub(super) fn events(body: DebugBody) -> Answer {
    typed(EVENTS, body)
}

pub(super) fn json(body: &impl Serialize) -> Answer {
    json_as(JSON, body)
}

/// JSON that is serialized already.
pub(super) fn json_text(mut body: String) -> Answer {
    body.push('\n');
    typed(JSON, body)
}

fn json_as(content_type: HeaderValue, body: &impl Serialize) -> Answer {
    // Strings and numbers always serialize.
    let mut bytes = serde_json::to_vec(body).unwrap_or_default();
    bytes.push(b'\n');
    typed(content_type, bytes)
}

/// The path exists, but not with this method.
pub(super) fn method_not_allowed(allowed: &str) -> Answer {
    let detail = format!("this page has {allowed}");
    let mut answer = Answer::from(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail));
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        answer.headers_mut().insert(ALLOW, allowed);
    }
    answer
}
