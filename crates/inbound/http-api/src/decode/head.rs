//! The head of a request: its route, content type and query.

use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Method, StatusCode};
use tidegate_engine::Verb;
use tidegate_rules::closest;

use crate::problem::RequestProblem;
use crate::route::{ROUTES, RouteError};

/// The status of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalStatus {
    /// 429 or 503.
    AsDecided,
    /// 200, for clients that read the body only.
    AlwaysOk,
}

pub(crate) fn refusal_status(
    verb: Verb,
    query: Option<&str>,
) -> Result<RefusalStatus, RequestProblem> {
    let mut status = RefusalStatus::AsDecided;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        if pair != "status=200" || !matches!(verb, Verb::Check | Verb::Peek) {
            let shown: String = pair.chars().take(64).collect();
            let problem = RequestProblem::bad_request(format!("there is no parameter `{shown}`"));
            let hint = "`/v1/check` and `/v1/peek` have `status=200`, and there is no other";
            return Err(problem.hint(hint.to_owned()));
        }
        status = RefusalStatus::AlwaysOk;
    }
    Ok(status)
}

/// The problem of a request that has no route.
pub(crate) fn route_problem(error: RouteError, method: &Method, path: &str) -> RequestProblem {
    match error {
        RouteError::NotFound => {
            let shown: String = path.chars().take(64).collect();
            let problem = RequestProblem::new(
                StatusCode::NOT_FOUND,
                format!("there is nothing at `{shown}`"),
            );
            let meant = closest(path, ROUTES.iter().map(|(path, ..)| *path));
            problem.hint(match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "`/v1/openapi.json` says what there is".to_owned(),
            })
        }
        RouteError::MethodNotAllowed(methods) => {
            let allow = methods.allow();
            let shown: String = method.as_str().chars().take(16).collect();
            let detail = format!("`{path}` does not take {shown}");
            RequestProblem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
                .hint(format!("use {allow}"))
                .allow(allow)
        }
    }
}

/// Rejects a body with a content type other than JSON. A missing content type is fine.
pub(crate) fn expect_json(headers: &HeaderMap) -> Result<(), RequestProblem> {
    let Some(kind) = headers.get(CONTENT_TYPE).filter(|kind| !is_json(kind.as_bytes())) else {
        return Ok(());
    };
    let kind = String::from_utf8_lossy(kind.as_bytes());
    let kind: String = kind.chars().take(64).collect();
    let detail = format!("the content type is `{kind}`, not JSON");
    Err(RequestProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
        .hint("send `content-type: application/json`; curl does with `--json`".to_owned()))
}

/// Accepts `application/json`, `text/json` and any type that ends in `+json`; parameters are ignored.
fn is_json(kind: &[u8]) -> bool {
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let suffix = essence.len().checked_sub(5).and_then(|at| essence.get(at..));
    essence.eq_ignore_ascii_case(b"application/json")
        || essence.eq_ignore_ascii_case(b"text/json")
        || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_content_type() {
        for kind in ["application/json", "Application/JSON; charset=utf-8", "text/json", "a/b+json"]
        {
            assert!(is_json(kind.as_bytes()), "{kind}");
        }
        for kind in ["", "json", "application/jsonx", "application/x-www-form-urlencoded"] {
            assert!(!is_json(kind.as_bytes()), "{kind}");
        }
    }
}
