//! Who may read, check and change.

use http::Method;
use http::header::{HeaderValue, ORIGIN};
use tidegate_http_api::HttpApiSettings;
use tidegate_requests::{AccessPolicy, AccessTokens};

use crate::bench::{Answer, Bench, asking, request, settings};

const TOKEN: &str = "correct-horse-battery-staple";
/// Its SHA-256.
const HASH: &str = "87cbebfeebc05f7c54ac9336c4b4bbec831227a641951a4bde7edd56020f8590";

/// Every route with the role that it needs.
const ROUTES: [(&str, &str, &str); 12] = [
    ("POST", "/v1/check", "check"),
    ("POST", "/v1/release", "check"),
    ("POST", "/json", "check"),
    ("POST", "/v1/peek", "read"),
    ("POST", "/v1/explain", "read"),
    ("GET", "/v1/rules", "read"),
    ("POST", "/v1/refund", "change"),
    ("POST", "/v1/reset", "change"),
    ("GET", "/v1/openapi.json", ""),
    ("GET", "/healthcheck", ""),
    ("GET", "/livez", ""),
    ("GET", "/readyz", ""),
];

/// A port with this token alone.
fn with_token(roles_and_expiry: &str) -> Bench {
    let token = format!("{HASH} ci {roles_and_expiry}").parse().unwrap();
    let tokens = AccessTokens::new([token]);
    let access = AccessPolicy { tokens, ..AccessPolicy::default() };
    Bench::with(HttpApiSettings { access, ..HttpApiSettings::default() })
}

async fn send(bench: &Bench, method: &str, path: &str, token: Option<&str>) -> Answer {
    let body = match path {
        "/v1/release" => serde_json::json!({"permit": "x"}),
        _ => asking("user", "ada"),
    };
    let mut request = request(method.parse::<Method>().unwrap(), path, &body.to_string());
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        request.headers_mut().insert("authorization", value);
    }
    bench.send(request).await
}

fn is_denied(answer: &Answer) -> bool {
    matches!(answer.status, 401 | 403)
}

#[tokio::test]
async fn every_route_is_open_to_a_token_with_its_role_and_to_no_other() {
    for role in ["read", "check", "change", "read+check+change"] {
        let bench = with_token(role);
        for (method, path, needed) in ROUTES {
            let answer = send(&bench, method, path, Some(TOKEN)).await;
            let allowed = needed.is_empty() || role.split('+').any(|role| role == needed);
            assert_eq!(is_denied(&answer), !allowed, "{path} with {role}: {answer:?}");
            if !allowed {
                assert_eq!(answer.status, 403, "{path} with {role}");
                let text = format!("the token `ci` does not have the role `{needed}`");
                assert!(answer.text.contains(&text), "{}", answer.text);
                assert!(answer.text.contains("`http.tokens`"), "{}", answer.text);
            }
        }
    }
}

#[tokio::test]
async fn with_tokens_a_request_without_one_is_asked_for_it() {
    let bench = with_token("read+check+change");
    for token in [None, Some("not-the-right-token-at-all")] {
        for (method, path, role) in ROUTES {
            let answer = send(&bench, method, path, token).await;
            assert_eq!(answer.status == 401, !role.is_empty(), "{path}: {answer:?}");
            if answer.status == 401 {
                assert_eq!(answer.field("www-authenticate"), Some("Bearer realm=\"tidegate\""));
            }
        }
    }
}

#[tokio::test]
async fn an_expired_token_is_rejected() {
    // The clock of these tests stands at 2023-11-14.
    for (expires, status) in [("2023-11-14", 401), ("2023-11-15", 200)] {
        let bench = with_token(&format!("check {expires}"));
        let answer = send(&bench, "POST", "/v1/check", Some(TOKEN)).await;
        assert_eq!(answer.status, status, "{expires}: {answer:?}");
        assert_eq!(answer.text.contains("has expired"), status == 401, "{}", answer.text);
    }
}

#[tokio::test]
async fn without_tokens_changes_need_a_port_that_other_machines_cannot_reach() {
    let remote = Bench::with(HttpApiSettings::default());
    let local = Bench::with(settings());
    for (method, path, role) in ROUTES {
        assert!(!is_denied(&send(&local, method, path, None).await), "{path}");
        let answer = send(&remote, method, path, None).await;
        assert_eq!(answer.status == 403, role == "change", "{path}: {answer:?}");
        if role == "change" {
            assert!(answer.text.contains("`http.tokens`"), "{}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_page_in_a_browser_changes_nothing_without_a_token() {
    let bench = Bench::with(settings());
    for path in ["/v1/reset", "/v1/refund"] {
        let mut request = request(Method::POST, path, &asking("user", "ada").to_string());
        request.headers_mut().insert(ORIGIN, HeaderValue::from_static("https://evil.example"));
        assert_eq!(bench.send(request).await.status, 403, "{path}");
    }
}
