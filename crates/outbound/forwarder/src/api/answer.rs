//! Answers: JSON, text, problems, event streams.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use tidegate_access::CHALLENGE;
use tidegate_answers::{NO_STORE, PROBLEM_JSON};
use tidegate_queue::QueueError;

/// The body of an answer.
pub type ApiBody = UnsyncBoxBody<Bytes, Infallible>;
pub(super) type Answer = Response<ApiBody>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    retry_after: Option<Duration>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Problem { status, detail: detail.into(), retry_after: None }
    }

    pub(super) fn unknown_type(record_type: &str) -> Self {
        let detail = format!("there is no record type `{record_type}`");
        Problem::new(StatusCode::NOT_FOUND, detail)
    }

    #[cfg(test)]
    pub(super) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) const fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }
}

impl From<QueueError> for Problem {
    fn from(error: QueueError) -> Self {
        let status = match error {
            QueueError::InvalidRecord { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            QueueError::NeverFits { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            QueueError::StorageFull(_) => StatusCode::INSUFFICIENT_STORAGE,
            QueueError::Full(_) | QueueError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            QueueError::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem::new(status, error.to_string())
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        let body = tidegate_answers::Problem::new(problem.status, &problem.detail, ()).to_vec();
        let mut answer = typed(PROBLEM_JSON, problem.status, body);
        if problem.status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
        }
        if let Some(wait) = problem.retry_after {
            let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    // Strings and numbers always serialize.
    typed(JSON, status, serde_json::to_vec(body).unwrap_or_default())
}

pub(super) fn text(status: StatusCode, body: String) -> Answer {
    typed(TEXT, status, body)
}

fn typed(content_type: HeaderValue, status: StatusCode, body: impl Into<Bytes>) -> Answer {
    with_body(content_type, status, Full::new(body.into()).boxed_unsync())
}

pub(super) fn with_body(content_type: HeaderValue, status: StatusCode, body: ApiBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, NO_STORE);
    answer
}
