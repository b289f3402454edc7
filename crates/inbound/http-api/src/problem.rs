//! Why a request is rejected, as a problem body (RFC 9457): the error, and where possible its location and a hint.

use std::fmt;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

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

#[derive(Serialize)]
struct ProblemBody<'c> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'c str,
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
        let problem = ProblemBody {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            hint: self.hint.as_deref(),
            location: self.location.as_ref(),
        };
        // Cannot fail: strings and numbers only.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
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
