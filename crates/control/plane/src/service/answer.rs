//! Answers: JSON, text, bytes, problems.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use tidegate_access::{AccessError, BodyError, CHALLENGE};
use tidegate_answers::{NO_STORE, PROBLEM_JSON};

use crate::entry::EntryView;
use crate::error::{InputProblem, PlaneError};

/// The body of an answer.
pub type ApiBody = UnsyncBoxBody<Bytes, Infallible>;
pub(super) type Answer = Response<ApiBody>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rejection {
    status: StatusCode,
    detail: String,
    members: Box<Members>,
}

/// What a problem says beside the standard members.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Members {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<InputProblem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<EntryView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

impl Rejection {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Rejection { status, detail: detail.into(), members: Box::default() }
    }

    pub(super) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<AccessError> for Rejection {
    fn from(error: AccessError) -> Self {
        Rejection::new(error.status(), error.to_string())
    }
}

impl From<BodyError> for Rejection {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Rejection::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is too large; send the changes in several requests",
            ),
            BodyError::TooSlow => {
                Rejection::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
            }
            BodyError::Aborted => Rejection::new(StatusCode::BAD_REQUEST, "the body ended early"),
        }
    }
}

impl From<PlaneError> for Rejection {
    fn from(error: PlaneError) -> Self {
        let status = match &error {
            PlaneError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            PlaneError::NotFound(_) => StatusCode::NOT_FOUND,
            PlaneError::Stale { .. } | PlaneError::OldBase { .. } => {
                StatusCode::PRECONDITION_FAILED
            }
            PlaneError::NoPrecondition => StatusCode::PRECONDITION_REQUIRED,
            PlaneError::Forbidden(_) => StatusCode::FORBIDDEN,
            PlaneError::Conflict(_) | PlaneError::Full(_) => StatusCode::CONFLICT,
            PlaneError::StorageFull(_) => StatusCode::INSUFFICIENT_STORAGE,
            PlaneError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            PlaneError::Damaged(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut rejection = Rejection::new(status, error.to_string());
        match error {
            PlaneError::Invalid(problems) => rejection.members.problems = problems,
            PlaneError::Stale { found: Some(found), .. } => {
                rejection.members.current = Some(EntryView::from(&*found));
            }
            PlaneError::OldBase { found, .. } => rejection.members.version = Some(found),
            _ => {}
        }
        rejection
    }
}

impl From<Rejection> for Answer {
    fn from(rejection: Rejection) -> Self {
        let Rejection { status, detail, members } = rejection;
        let body = tidegate_answers::Problem::new(status, &detail, members).to_vec();
        let mut answer = typed(PROBLEM_JSON, status, body);
        if status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
        }
        answer
    }
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    // Strings and numbers always serialize.
    typed(JSON, status, serde_json::to_vec(body).unwrap_or_default())
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    typed(TEXT, status, body)
}

pub(super) fn bytes(body: Bytes) -> Answer {
    typed(BYTES, StatusCode::OK, body)
}

/// An entry with its ETag.
pub(super) fn entry(status: StatusCode, view: &EntryView) -> Answer {
    let mut answer = json(status, view);
    if let Ok(tag) = HeaderValue::try_from(format!("\"v{}\"", view.version)) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}

fn typed(content_type: HeaderValue, status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()).boxed_unsync());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, NO_STORE);
    answer
}

/// A document that is JSON already.
pub(super) fn document(body: &'static str) -> Answer {
    typed(JSON, StatusCode::OK, Bytes::from_static(body.as_bytes()))
}
