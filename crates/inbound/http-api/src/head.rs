//! What the head of a request says: where it leads, what it brings, what it asks for.

use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Method, StatusCode};
use tidegate_engine::Verb;
use tidegate_rules::closest;

use super::complaint::Complaint;
use super::route::{Astray, ROUTES};

/// With which status a refusal is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalStatus {
    AsDecided,
    AlwaysOk,
}

pub(super) fn refusal_status(verb: Verb, query: Option<&str>) -> Result<RefusalStatus, Complaint> {
    let mut status = RefusalStatus::AsDecided;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        if pair != "status=200" || !matches!(verb, Verb::Check | Verb::Peek) {
            let shown: String = pair.chars().take(64).collect();
            let complaint = Complaint::bad_request(format!("there is no parameter `{shown}`"));
            let hint = "`/v1/check` and `/v1/peek` have `status=200`, and there is no other";
            return Err(complaint.hint(hint.to_owned()));
        }
        status = RefusalStatus::AlwaysOk;
    }
    Ok(status)
}

/// What to say of a request that leads nowhere.
pub(super) fn lost(astray: Astray, method: &Method, path: &str) -> Complaint {
    match astray {
        Astray::NotFound => {
            let shown: String = path.chars().take(64).collect();
            let complaint =
                Complaint::new(StatusCode::NOT_FOUND, format!("there is nothing at `{shown}`"));
            let meant = closest(path, ROUTES.iter().map(|(path, ..)| *path));
            complaint.hint(match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "`/v1/openapi.json` says what there is".to_owned(),
            })
        }
        Astray::MethodNotAllowed(methods) => {
            let allow = methods.allow();
            let shown: String = method.as_str().chars().take(16).collect();
            let detail = format!("`{path}` does not take {shown}");
            Complaint::new(StatusCode::METHOD_NOT_ALLOWED, detail)
                .hint(format!("use {allow}"))
                .allowing(allow)
        }
    }
}

/// Complains of a body that is said to be something else than JSON.
pub(super) fn expect_json(headers: &HeaderMap) -> Result<(), Complaint> {
    let Some(kind) = headers.get(CONTENT_TYPE).filter(|kind| !is_json(kind.as_bytes())) else {
        return Ok(());
    };
    let kind = String::from_utf8_lossy(kind.as_bytes());
    let kind: String = kind.chars().take(64).collect();
    let detail = format!("the body is said to be `{kind}`, not JSON");
    Err(Complaint::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
        .hint("send `content-type: application/json`; curl does with `--json`".to_owned()))
}

/// `application/json`, `text/json`, or any type that ends in `+json`; what follows is not looked at.
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
