//! Problem bodies (RFC 9457): the one writer of `application/problem+json`.

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderValue;
use serde::Serialize;

use crate::cause::CauseText;
use crate::headers::write_number;
use crate::refusal::{Refusal, ViolatedLimit};

/// The content type of a problem.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// `Cache-Control` of a problem: a cached refusal would outlive its reason.
pub const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A problem that no limit caused, with further members.
///
/// ```
/// use http::StatusCode;
/// use tidegate_answers::Problem;
///
/// let body = Problem::new(StatusCode::NOT_FOUND, "There is no such page.", ()).to_vec();
/// assert!(body.starts_with(b"{\"type\":\"about:blank\",\"title\":\"Not Found\",\"status\":404,"));
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Problem<'p, M> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    detail: &'p str,
    #[serde(flatten)]
    members: M,
}

impl<'p, M: Serialize> Problem<'p, M> {
    /// A problem that is described by its status; `members` follow the standard ones.
    pub fn new(status: StatusCode, detail: &'p str, members: M) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let (r#type, status) = ("about:blank", status.as_u16());
        Problem { r#type, title, status, code: None, detail, members }
    }

    /// The body.
    pub fn to_vec(&self) -> Vec<u8> {
        // Strings and numbers always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The body of an answer with this wording.
pub(crate) fn problem_of(wording: &CauseText<'_>) -> Bytes {
    let problem = Problem {
        r#type: wording.problem_type,
        title: wording.title,
        status: wording.status.as_u16(),
        code: Some(wording.code),
        detail: &wording.detail,
        members: (),
    };
    problem.to_vec().into()
}

/// The body of a refusal by limits: `problem` with the members that differ each time.
///
/// Written by hand into one buffer: a refusal allocates nothing else for its body.
pub(crate) fn with_figures(problem: &[u8], refusal: &Refusal) -> Bytes {
    const FIGURES_BYTES: usize = 160;
    let open = problem.strip_suffix(b"}").unwrap_or(problem);
    let mut out = Vec::with_capacity(open.len().saturating_add(FIGURES_BYTES));
    out.extend_from_slice(open);
    if !refusal.limits.is_empty() {
        list(&mut out, b",\"violated-policies\":[", &refusal.limits, |out, limit| {
            write_text(out, &limit.name);
        });
    }
    member(&mut out, b",\"retry-after\":", refusal.retry_after_seconds());
    if !refusal.limits.is_empty() {
        list(&mut out, b",\"violated\":[", &refusal.limits, write_limit);
    }
    out.push(b'}');
    out.into()
}

fn write_limit(out: &mut Vec<u8>, limit: &ViolatedLimit) {
    out.extend_from_slice(b"{\"name\":");
    write_text(out, &limit.name);
    member(out, b",\"limit\":", Some(limit.limit));
    member(out, b",\"used\":", Some(limit.used));
    member(out, b",\"window\":", limit.window_seconds());
    member(out, b",\"retry_after\":", limit.retry_after_seconds());
    out.push(b'}');
}

fn list<T>(out: &mut Vec<u8>, begin: &[u8], items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.extend_from_slice(begin);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

fn member(out: &mut Vec<u8>, name: &[u8], number: Option<u64>) {
    if let Some(number) = number {
        out.extend_from_slice(name);
        write_number(out, number);
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing a text into memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}
