//! What is wrong with a request, as a problem body (RFC 9457).
//!
//! Every complaint says what is wrong; most say where, and what would be right.

use std::fmt;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tidegate_answers::{NO_STORE, PROBLEM_JSON, Problem};

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    status: StatusCode,
    detail: String,
    hint: Option<String>,
    place: Option<Place>,
    allow: Option<&'static str>,
}

/// Where in a body something is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Place {
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
struct ComplaintMembers<'c> {
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'c str>,
    #[serde(flatten)]
    place: Option<&'c Place>,
}

impl Complaint {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Complaint { status, detail: detail.into(), hint: None, place: None, allow: None }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Complaint::new(StatusCode::BAD_REQUEST, detail)
    }

    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    #[must_use]
    pub(super) fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// With the methods that the route has.
    #[must_use]
    pub(super) fn allowing(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let members = ComplaintMembers { hint: self.hint.as_deref(), place: self.place.as_ref() };
        let body = Problem::new(self.status, &self.detail, members).to_vec();
        let mut answer = Response::new(Full::new(Bytes::from(body)));
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        headers.insert(CACHE_CONTROL, NO_STORE);
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        answer
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if let Some(Place { path, line, column }) = &self.place {
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
