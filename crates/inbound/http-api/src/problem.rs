//! Why a request is rejected, as a problem body (RFC 9457): the error, and where possible its location and a hint.

use std::fmt;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tidegate_answers::{NO_STORE, PROBLEM_JSON, Problem};
use tidegate_requests::CHALLENGE;

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestProblem {
    status: StatusCode,
    detail: String,
    hint: Option<String>,
    location: Option<Location>,
    allow: Option<&'static str>,
}

/// The location of an error in a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Location {
    /// The field, such as `descriptors[0].cost`; none for the whole body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    /// The line, from one.
    pub(super) line: usize,
    /// The column, from one.
    pub(super) column: usize,
}

/// The members beside the standard ones.
#[derive(Serialize)]
struct ProblemMembers<'c> {
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'c str>,
    #[serde(flatten)]
    location: Option<&'c Location>,
}

impl RequestProblem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        RequestProblem { status, detail: detail.into(), hint: None, location: None, allow: None }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        RequestProblem::new(StatusCode::BAD_REQUEST, detail)
    }

    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    #[must_use]
    pub(super) fn at(mut self, location: Location) -> Self {
        self.location = Some(location);
        self
    }

    /// Adds the `Allow` header.
    #[must_use]
    pub(super) fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let members =
            ProblemMembers { hint: self.hint.as_deref(), location: self.location.as_ref() };
        let body = Problem::new(self.status, &self.detail, members).to_vec();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        headers.insert(CACHE_CONTROL, NO_STORE);
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, CHALLENGE);
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        response
    }
}

impl fmt::Display for RequestProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if let Some(Location { path, line, column }) = &self.location {
            write!(f, " at {line}:{column}")?;
            if let Some(path) = path {
                write!(f, " in {path}")?;
            }
        }
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}
