//! Upgraded connections.

use std::time::Duration;

use http::Request;
use hyper_util::rt::TokioIo;
use tidegate_gateway::Timeouts;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Harness, by_user, to, until, within};
use crate::upstream::Upstream;

fn upgrade() -> http::request::Builder {
    Request::get("/upgrade")
        .header("x-user", "7")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

#[tokio::test]
async fn bytes_pass_both_ways_once_both_sides_agree_and_the_slot_is_held() {
    let upstream = Upstream::start().await;
    let rules = "- key: user\n  limits: [{algorithm: concurrency, requests_per_unit: 1}]";
    let harness = Harness::limited(by_user(to(&[upstream.url()])), rules);
    let mut client = harness.one().await;
    let answer = within("the switch", client.begin(upgrade(), "")).await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["upgrade"]),
        (101, &"websocket".parse::<http::HeaderValue>().unwrap())
    );
    let seen = upstream.last();
    assert_eq!((seen.header("connection"), seen.header("upgrade")), ("upgrade", "websocket"));
    assert_eq!(seen.header("sec-websocket-key"), "dGhlIHNhbXBsZSBub25jZQ==");
    let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    for word in ["hello", "again"] {
        tunnel.write_all(word.as_bytes()).await.unwrap();
        let mut echo = [0; 5];
        within("the echo", tunnel.read_exact(&mut echo)).await.unwrap();
        assert_eq!(echo, word.as_bytes());
    }
    assert_eq!(harness.get_as("7").await.status, 429);
    drop(tunnel);
    until("the end of the tunnel", || harness.gateway.read().in_flight == 0).await;
    assert_eq!(harness.get_as("7").await.status, 200);
    assert_eq!(harness.gateway.read().tunnels, 1);
}

#[tokio::test]
async fn a_silent_tunnel_is_closed() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].timeouts =
        Timeouts { idle: Duration::from_millis(50), ..Timeouts::default() };
    let harness = Harness::open(settings);
    let mut client = harness.one().await;
    let answer = within("the switch", client.begin(upgrade(), "")).await.unwrap();
    let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let mut rest = Vec::new();
    let read = within("the end", tunnel.read_to_end(&mut rest)).await;
    assert!(read.is_err() || rest.is_empty());
}

#[tokio::test]
async fn an_upstream_may_decline_an_upgrade() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let declined = Request::get("/").header("connection", "upgrade").header("upgrade", "chat/2");
    assert_eq!(harness.send(declined).await.body, "hello");
    assert_eq!(upstream.last().header("upgrade"), "chat/2");
    // Without the connection option it is not a request for an upgrade.
    let unmeant = Request::get("/").header("upgrade", "websocket");
    assert_eq!(harness.send(unmeant).await.body, "hello");
    assert!(!upstream.last().headers.contains_key("upgrade"));
}

/// An upstream that agreed would serve requests that evade every limit.
#[tokio::test]
async fn an_upgrade_to_another_version_of_http_is_not_forwarded() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    for protocol in ["h2c", "H2C", "HTTP/2.0", "websocket, h2c", "TLS/1.0"] {
        let wish = Request::get("/upgrade")
            .header("connection", "Upgrade, HTTP2-Settings")
            .header("upgrade", protocol)
            .header("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA");
        assert_ne!(harness.send(wish).await.status, 101, "{protocol}");
        let seen = upstream.last().headers;
        for field in ["upgrade", "connection", "http2-settings"] {
            assert!(!seen.contains_key(field), "{protocol}: {field}");
        }
    }
}
