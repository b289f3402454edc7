//! Who may change anything, and who may not.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame};
use hyper::service::Service;
use tidegate_access::{AccessPolicy, AccessToken, AccessTokens, HostNames};
use tidegate_admin::{DebugParts, DebugSettings, LogLevel};

use super::support::Stage;

const TOKEN: &str = "correct-horse-battery-staple";

struct FixedLevel;

impl LogLevel for FixedLevel {
    fn get(&self) -> String {
        "info".to_owned()
    }

    fn set(&self, _level: &str) -> Result<(), String> {
        Ok(())
    }
}

fn stage(settings: DebugSettings) -> Stage {
    let parts = DebugParts {
        settings,
        log_level: Some(Box::new(FixedLevel)),
        reload: Some(Box::new(|| ())),
        ..DebugParts::default()
    };
    Stage::new("- {key: user, rate_limit: {unit: day, requests_per_unit: 2}}", parts)
}

fn with_token() -> DebugSettings {
    with_access(false)
}

fn with_access(changes_without_token: bool) -> DebugSettings {
    let tokens = AccessTokens::new([AccessToken::of_secret("debug.token", TOKEN).unwrap()]);
    let access = AccessPolicy { tokens, changes_without_token };
    DebugSettings { access, ..DebugSettings::default() }
}

/// Every route that the door itself lists, so that a new one cannot be forgotten here.
async fn routes(stage: &Stage) -> Vec<(Method, String)> {
    let index = stage.get("/").await.body;
    let words = |line: &str| {
        let mut words = line.split_whitespace();
        let method: Method = words.next().unwrap().parse().unwrap();
        (method, words.next().unwrap().to_owned())
    };
    index.lines().map(words).collect()
}

/// A body that the page understands.
fn body_for(method: &Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("PUT", "/switches/kill") => r#"{"off": true}"#,
        ("PUT", "/switches/limit") => r#"{"domain": "api", "path": "user", "mode": "off"}"#,
        ("DELETE", "/switches/limit") => r#"{"domain": "api", "path": "user"}"#,
        ("PUT", "/switches/limiter") => r#"{"limiter": "rate", "mode": "shadow"}"#,
        ("DELETE", "/switches/limiter") => r#"{"limiter": "rate"}"#,
        ("PUT", "/log-level") => r#"{"level": "debug"}"#,
        _ => "",
    }
}

async fn changing_routes(stage: &Stage) -> Vec<(Method, String)> {
    let changes =
        |(method, path): &(Method, String)| method != Method::GET && !path.starts_with("/api/");
    let changing: Vec<_> = routes(stage).await.into_iter().filter(changes).collect();
    assert!(changing.len() >= 7, "{changing:?}");
    changing
}

#[tokio::test]
async fn every_change_asks_for_the_token() {
    let wrong_tokens = [
        None,
        Some("Bearer correct-horse-battery-stapl"),
        Some("Bearer correct-horse-battery-staplee"),
        Some("Bearer xorrect-horse-battery-staple"),
        Some("Basic correct-horse-battery-staple"),
        Some("Bearer"),
    ];
    let stage = stage(with_token());
    for (method, path) in changing_routes(&stage).await {
        for wrong in wrong_tokens {
            let headers: Vec<_> = wrong.map(|token| ("authorization", token)).into_iter().collect();
            let body = body_for(&method, &path);
            let answer = stage.send(method.clone(), &path, &headers, body).await;
            assert_eq!(answer.status, 401, "{method} {path} with {wrong:?}");
            assert_eq!(answer.field("www-authenticate"), Some("Bearer realm=\"tidegate\""));
        }
        assert!(!stage.engine.is_switched_off(), "{method} {path}");
        assert!(!stage.get("/metrics").await.body.contains("change=\"kill_switch\"} 1"));
    }
}

#[tokio::test]
async fn every_change_is_made_for_who_brings_the_token() {
    let stage = stage(with_token());
    for (method, path) in changing_routes(&stage).await {
        let token = format!("Bearer {TOKEN}");
        let body = body_for(&method, &path);
        let answer = stage.send(method.clone(), &path, &[("authorization", &token)], body).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
    }
}

#[tokio::test]
async fn without_a_token_changes_are_off() {
    let stage = stage(DebugSettings::default());
    for (method, path) in changing_routes(&stage).await {
        for headers in [&[][..], &[("authorization", "Bearer anything-at-all-here")]] {
            let body = body_for(&method, &path);
            let answer = stage.send(method.clone(), &path, headers, body).await;
            assert_eq!(answer.status, 403, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn without_a_token_changes_can_be_allowed_but_not_for_browsers() {
    let settings = DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() };
    let stage = stage(settings);
    for (method, path) in changing_routes(&stage).await {
        let body = body_for(&method, &path);
        let browser = [("origin", "https://elsewhere.example")];
        let answer = stage.send(method.clone(), &path, &browser, body).await;
        assert_eq!(answer.status, 403, "{method} {path}");
        let answer = stage.send(method.clone(), &path, &[], body).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
    }
}

#[tokio::test]
async fn a_token_closes_changes_even_where_they_were_allowed_without_one() {
    let settings = with_access(true);
    let answer = stage(settings).send(Method::POST, "/reload", &[], "").await;
    assert_eq!(answer.status, 401);
}

#[tokio::test]
async fn pages_about_callers_ask_for_the_token_if_there_is_one() {
    let stage = stage(with_token());
    let token = format!("Bearer {TOKEN}");
    let data = routes(&stage).await.into_iter().filter(|(_, path)| path.starts_with("/api/"));
    for (method, path) in data {
        assert_eq!(stage.send(method.clone(), &path, &[], "{}").await.status, 401, "{path}");
        let query = format!("{path}?token={TOKEN}");
        assert_eq!(stage.send(method, &query, &[], "{}").await.status, 401, "{path}");
    }
    for path in ["/top", "/switches", "/api/state", "/api/limits", "/api/callers", "/api/changes"] {
        assert_eq!(stage.get(path).await.status, 401, "{path}");
        assert_eq!(stage.send(Method::HEAD, path, &[], "").await.status, 401, "{path}");
        let answer = stage.send(Method::GET, path, &[("authorization", &token)], "").await;
        assert_eq!(answer.status, 200, "{path}");
    }
    for path in ["/", "/metrics", "/rlconfig", "/stats", "/log-level", "/ui/", "/ui/app.js"] {
        assert_eq!(stage.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn who_is_turned_away_is_counted() {
    let stage = stage(with_token());
    stage.send(Method::POST, "/reload", &[], "").await;
    stage.get("/top").await;
    let page = stage.get("/metrics").await.body;
    assert!(page.contains("\ntidegate_debug_denied_total 2\n"), "{page}");
}

#[tokio::test]
async fn the_token_is_shown_nowhere() {
    let stage = stage(with_token());
    assert!(!format!("{:?}", stage.door).contains(TOKEN));
    let token = format!("Bearer {TOKEN}");
    for (method, path) in routes(&stage).await {
        // A stream does not end.
        if path == "/api/events" {
            continue;
        }
        let body = body_for(&method, &path);
        let answer = stage.send(method, &path, &[("authorization", &token)], body).await;
        assert!(!answer.body.contains(TOKEN), "{path}");
    }
}

/// A body that never arrives.
struct SilentBody;

impl Body for SilentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_given_up() {
    let stage = stage(with_token());
    let request = http::Request::put("/switches/kill")
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(SilentBody)
        .unwrap();
    let Ok(answer) = stage.door.call(request).await;
    assert_eq!(answer.status(), 408);
}

/// The SHA-256 of `correct-horse-battery-staple` as a token with these roles.
fn written(roles_and_expiry: &str) -> AccessToken {
    let hash = "87cbebfeebc05f7c54ac9336c4b4bbec831227a641951a4bde7edd56020f8590";
    format!("{hash} operator {roles_and_expiry}").parse().unwrap()
}

#[tokio::test]
async fn a_token_opens_the_pages_of_its_roles_until_it_expires() {
    let token = format!("Bearer {TOKEN}");
    for (roles, read, change) in [
        ("read", 200, 403),
        ("change", 403, 202),
        ("read+change", 200, 202),
        ("check", 403, 403),
        ("read+change 2020-01-01", 401, 401),
    ] {
        let access =
            AccessPolicy { tokens: AccessTokens::new([written(roles)]), ..AccessPolicy::default() };
        let stage = stage(DebugSettings { access, ..DebugSettings::default() });
        let sent = [("authorization", token.as_str())];
        assert_eq!(stage.send(Method::GET, "/top", &sent, "").await.status, read, "{roles}");
        assert_eq!(stage.send(Method::POST, "/reload", &sent, "").await.status, change, "{roles}");
        assert_eq!(stage.get("/metrics").await.status, 200, "{roles}");
    }
}

#[tokio::test]
async fn other_host_names_are_rejected_with_the_setting() {
    let hosts = HostNames::new(["debug.internal".to_owned()]);
    let stage = stage(DebugSettings { hosts, ..DebugSettings::default() });
    for host in ["localhost:6070", "127.0.0.1", "[::1]:6070", "debug.internal"] {
        assert_eq!(stage.send(Method::GET, "/stats", &[("host", host)], "").await.status, 200);
    }
    for (method, path) in routes(&stage).await {
        let answer = stage.send(method, &path, &[("host", "evil.example")], "").await;
        assert_eq!(answer.status, 421, "{path}");
        assert!(answer.body.contains("`debug.hosts`"), "{}", answer.body);
    }
}

#[tokio::test]
async fn under_compat_upstreams_pages_answer_to_every_host_name_and_others_do_not() {
    let stage = stage(DebugSettings { compat: true, ..DebugSettings::default() });
    let host = [("host", "ratelimit:6070")];
    for path in ["/rlconfig", "/stats", "/metrics"] {
        assert_eq!(stage.send(Method::GET, path, &host, "").await.status, 200, "{path}");
    }
    for path in ["/top", "/api/callers", "/switches", "/unknown"] {
        assert_eq!(stage.send(Method::GET, path, &host, "").await.status, 421, "{path}");
    }
    assert_eq!(stage.send(Method::POST, "/reload", &host, "").await.status, 421);
}

#[tokio::test]
async fn the_dashboard_may_change_without_a_token_and_other_pages_of_this_machine_may_not() {
    let settings = DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() };
    let stage = stage(settings);
    let kill = |origin: &'static str, host: &'static str| {
        let headers = [("origin", origin), ("host", host)];
        let stage = &stage;
        async move {
            stage.send(Method::PUT, "/switches/kill", &headers, r#"{"off": true}"#).await.status
        }
    };
    assert_eq!(kill("http://127.0.0.1:6070", "127.0.0.1:6070").await, 200);
    assert_eq!(kill("http://127.0.0.1:8080", "127.0.0.1:6070").await, 403);
    assert_eq!(kill("https://127.0.0.1:6070", "127.0.0.1:6070").await, 403);
    assert_eq!(kill("null", "127.0.0.1:6070").await, 403);
    // A name that its owner points at this machine.
    assert_eq!(kill("http://evil.example:6070", "evil.example:6070").await, 421);
}

#[tokio::test]
async fn pages_of_other_sites_read_nothing() {
    let stage = stage(DebugSettings::default());
    let cross = [("sec-fetch-site", "cross-site")];
    for path in ["/api/state", "/api/events", "/top", "/switches"] {
        assert_eq!(stage.send(Method::GET, path, &cross, "").await.status, 403, "{path}");
    }
    let same = [("sec-fetch-site", "same-origin")];
    assert_eq!(stage.send(Method::GET, "/api/state", &same, "").await.status, 200);
}
