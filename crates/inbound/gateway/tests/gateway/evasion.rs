//! Requests that another server reads differently: none of them evades a limit.

use http::{HeaderValue, Request};
use tidegate_gateway::{DescriptorSettings, EntrySettings, GatewaySettings, ValueFrom};

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
