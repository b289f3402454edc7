//! Requests that another server reads differently: none of them evades a limit.

use http::{HeaderValue, Request};
use tidegate_gateway::{
    DescriptorSettings, EntrySettings, EscapedSlashes, GatewaySettings, PathMatch, RouteSettings,
    ValueFrom,
};

use crate::harness::{Harness, to};
use crate::upstream::{RawUpstream, Upstream};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Two requests per hour for each value.
const TWO_EACH: &str = "- key: what
  limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 2}]";

fn limited_by(mut settings: GatewaySettings, value: ValueFrom) -> GatewaySettings {
    settings.routes[0].descriptors =
        vec![DescriptorSettings::new([EntrySettings::new("what", value)])];
    settings
}

fn bytes(value: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(value).unwrap()
}

#[tokio::test]
async fn cookie_fields_reach_http_1_upstreams_as_one() {
    let upstream = RawUpstream::start(OK).await;
    let harness = Harness::open(to(&[upstream.url()]));
    let split = Request::get("/").header("cookie", "a=1").header("cookie", "b=2");
    assert_eq!(harness.two().await.send(split, "").await.status, 200);
    let got = upstream.got();
    assert!(got.contains("cookie: a=1; b=2\r\n"), "{got}");
    assert_eq!(got.matches("cookie:").count(), 1, "{got}");
}

#[tokio::test]
async fn a_field_of_split_cookies_is_one_value_for_limits() {
    let upstream = Upstream::start().await;
    let whole = ValueFrom::Header("cookie".parse().unwrap());
    let harness = Harness::limited(limited_by(to(&[upstream.url()]), whole), TWO_EACH);
    let mut client = harness.two().await;
    let split = |last| Request::get("/").header("cookie", "a=1").header("cookie", last);
    let mut statuses = Vec::new();
    for last in ["b=1", "b=2", "b=3", "b=1", "b=1"] {
        statuses.push(client.send(split(last), "").await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}

#[tokio::test]
async fn values_with_spaces_around_them_are_rejected_over_http_2() {
    let upstream = Upstream::start().await;
    let user = ValueFrom::Header("x-user".parse().unwrap());
    let harness = Harness::limited(limited_by(to(&[upstream.url()]), user), TWO_EACH);
    let mut client = harness.two().await;
    for _ in 0..2 {
        let plain = Request::get("/").header("x-user", "7");
        assert_eq!(client.send(plain, "").await.status, 200);
    }
    for padded in [" 7", "7 ", "\t7", "7\t", "  7  "] {
        let reply = client.send(Request::get("/").header("x-user", padded), "").await;
        assert_eq!(reply.status, 400, "{padded:?}");
        assert_eq!(reply.json()["code"], "bad_header");
    }
    assert_eq!(upstream.seen().len(), 2);
    // Over HTTP/1.1 the spaces are not part of the value.
    let padded = "GET / HTTP/1.1\r\nhost: a\r\nx-user: \t 7 \t\r\nconnection: close\r\n\r\n";
    assert!(harness.raw(padded).await.starts_with("HTTP/1.1 429 "));
}

#[tokio::test]
async fn a_byte_that_is_not_text_hides_no_cookie() {
    let upstream = Upstream::start().await;
    let session = ValueFrom::Cookie("session".into());
    let harness = Harness::limited(limited_by(to(&[upstream.url()]), session), TWO_EACH);
    let mut statuses = Vec::new();
    for cookie in [&b"session=7; x=\xff"[..], b"x=\xe4\xf6; session=7", b"session=7; \x80=1"] {
        let request = Request::get("/").header("cookie", bytes(cookie));
        statuses.push(harness.send(request).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn a_value_that_is_not_text_is_limited_like_any_other() {
    let upstream = Upstream::start().await;
    for value in [ValueFrom::Header("x-user".parse().unwrap()), ValueFrom::Cookie("x".into())] {
        let harness = Harness::limited(limited_by(to(&[upstream.url()]), value), TWO_EACH);
        let request = || {
            let user = Request::get("/").header("x-user", bytes(b"ada\xff"));
            user.header("cookie", bytes(b"x=ada\xff"))
        };
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(harness.send(request()).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429]);
    }
}

/// An unlimited route for `/free`, an exempt one for `/health`, and a route for the rest with two requests per hour.
fn partly_limited(upstream: &Upstream) -> GatewaySettings {
    let mut settings = limited_by(to(&[upstream.url()]), ValueFrom::Fixed("all".into()));
    for name in ["free", "health"] {
        let mut route = RouteSettings::new(name, "api");
        route.path = PathMatch::Prefix(format!("/{name}"));
        route.exempt = name == "health";
        settings.routes.insert(0, route);
    }
    settings
}

#[tokio::test]
async fn an_escaped_slash_is_rejected_with_the_name_of_the_setting() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(partly_limited(&upstream), TWO_EACH);
    for path in ["/free%2Fx", "/free/a%2fb", "/health%2F", "/a%2Fb", "/a/b%2F"] {
        let reply = harness.get(path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.json()["code"].as_str()),
            (400, Some("escaped_slash"))
        );
        assert!(reply.body.contains("escaped_slashes"), "{}", reply.body);
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn an_escaped_slash_can_be_kept_or_unescaped_by_a_route() {
    let upstream = Upstream::start().await;
    let mut settings = partly_limited(&upstream);
    settings.head.escaped_slashes = EscapedSlashes::Unescape;
    settings.routes[1].escaped_slashes = Some(EscapedSlashes::Keep);
    let harness = Harness::limited(settings, TWO_EACH);
    let mut seen = Vec::new();
    // The third is no path below `/free` while its slash is kept.
    for path in ["/free/a%2Fb", "/a%2fb?c=%2F", "/free%2Fx"] {
        assert_eq!(harness.get(path).await.status, 200, "{path}");
        seen.push(upstream.last().uri.to_string());
    }
    assert_eq!(seen, ["/free/a%2Fb", "/a/b?c=%2F", "/free/x"]);
    assert_eq!(harness.get("/a%2Fb").await.status, 429);
}

#[tokio::test]
async fn dots_beside_escaped_slashes_or_semicolons_are_rejected_whatever_the_setting() {
    let upstream = Upstream::start().await;
    for action in [EscapedSlashes::Reject, EscapedSlashes::Unescape, EscapedSlashes::Keep] {
        let mut settings = partly_limited(&upstream);
        settings.head.escaped_slashes = action;
        let harness = Harness::limited(settings, TWO_EACH);
        for path in
            ["/free/..%2Fa", "/free%2f..%2fa", "/free/..;/a", "/free/..;x=1/a", "/free/%2e%2e;/a"]
        {
            let reply = harness.get(path).await;
            assert_eq!(
                (reply.status.as_u16(), reply.json()["code"].as_str()),
                (400, Some("bad_target")),
                "{path}"
            );
        }
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_semicolon_passes_and_neither_evades_a_limit_nor_reaches_an_exempt_route() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(partly_limited(&upstream), TWO_EACH);
    assert_eq!(harness.get("/free;v=1/x;y").await.status, 200);
    assert_eq!(upstream.last().uri, "/free;v=1/x;y");
    let mut statuses = Vec::new();
    for path in ["/health", "/health;x", "/;x/health", "/a;v=1", "/health/;x"] {
        statuses.push(harness.get(path).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429, 200]);
}

#[tokio::test]
async fn parameters_of_a_path_give_no_new_key() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(limited_by(to(&[upstream.url()]), ValueFrom::Path), TWO_EACH);
    let mut statuses = Vec::new();
    for path in ["/a", "/a;x=1", "/a;x=2", "/a%3Bx"] {
        statuses.push(harness.get(path).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
}

#[tokio::test]
async fn a_host_is_the_same_in_any_case_and_with_a_final_dot() {
    let upstream = Upstream::start().await;
    let mut settings = partly_limited(&upstream);
    settings.routes[2].hosts = vec!["API.test".into()];
    settings.routes.push(RouteSettings::new("others", "api"));
    let harness = Harness::limited(settings, TWO_EACH);
    let mut statuses = Vec::new();
    for host in ["api.test", "Api.Test.", "api.test.:80", "api.test"] {
        let reply = harness.send(Request::get("/").header("host", host)).await;
        statuses.push(reply.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 429]);

    let harness = Harness::limited(limited_by(to(&[upstream.url()]), ValueFrom::Host), TWO_EACH);
    let mut statuses = Vec::new();
    for host in ["api.test", "API.test", "api.test."] {
        let reply = harness.send(Request::get("/").header("host", host)).await;
        statuses.push(reply.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
}
