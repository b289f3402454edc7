//! Request smuggling: an upstream never sees another request than the gateway does.

use std::time::Duration;

use http::Request;
use tidegate_gateway::{HeadSettings, Size, UpstreamProtocol};
use tidegate_server::ConnectionLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Harness, to, within};
use crate::upstream::{RawUpstream, Upstream};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The status of the answer to these bytes, and whether a request was forwarded.
async fn status(bytes: &str) -> (u16, bool) {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let answer = harness.raw(bytes).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), !upstream.seen().is_empty())
}

async fn refused(bytes: &str) -> u16 {
    let (status, passed) = status(bytes).await;
    assert!(!passed, "an upstream saw {bytes:?}");
    status
}

#[tokio::test]
async fn conflicting_lengths_are_rejected() {
    for lengths in [
        "content-length: 3\r\ncontent-length: 4",
        "content-length: 3, 4",
        "content-length: +3",
        "content-length: -1",
        "content-length: 0x3",
        "content-length: 3 3",
        "content-length: 99999999999999999999999",
    ] {
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{lengths}\r\n\r\nabcd");
        assert_eq!(refused(&request).await, 400, "{lengths}");
    }
}

#[tokio::test]
async fn transfer_codings_that_cannot_be_forwarded_are_rejected() {
    for (coding, expected) in [
        ("transfer-encoding: gzip, chunked", 501),
        ("transfer-encoding: identity", 400),
        ("transfer-encoding: xchunked", 400),
        ("transfer-encoding: chunked, identity", 400),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", 400),
        ("transfer-encoding:\x0bchunked", 400),
    ] {
        let request =
            format!("POST / HTTP/1.1\r\nhost: a\r\n{coding}\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        assert_eq!(refused(&request).await, expected, "{coding}");
    }
    let old = "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(refused(old).await, 400);
}

#[tokio::test]
async fn a_content_length_with_chunked_is_ignored_and_the_connection_is_closed() {
    for fields in [
        "content-length: 4\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 4",
    ] {
        let upstream = RawUpstream::start(OK).await;
        let harness = Harness::open(to(&[upstream.url()]));
        // A server that uses the length sees a second request in the body.
        let answer = harness
            .raw(&format!(
                "POST /one HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n0\r\n\r\n\
                 GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
            ))
            .await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
        let got = upstream.got();
        assert!(!got.contains("smuggled") && !got.contains("content-length"), "{got}");
    }
}

#[tokio::test]
async fn a_content_length_with_chunked_closes_the_connection_after_a_long_response_too() {
    for path in ["/large", "/medium"] {
        let upstream = Upstream::start().await;
        let harness = Harness::open(to(&[upstream.url()]));
        let answer = harness
            .raw(&format!(
                "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n\
                 0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
            ))
            .await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1);
        assert_eq!(upstream.seen().len(), 1, "{path}");
    }
}

#[tokio::test]
async fn trailer_fields_of_a_client_cannot_make_an_upstream_look_broken() {
    for protocol in [UpstreamProtocol::Http1, UpstreamProtocol::Http2] {
        let upstream = Upstream::start().await;
        let mut settings = to(&[upstream.url()]);
        settings.upstreams[0].protocol = protocol;
        let harness = Harness::open(settings);
        let answer = harness
            .raw(
                "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\
                 trailer: x-check, connection\r\nconnection: close\r\n\r\n\
                 3\r\nabc\r\n0\r\nconnection: x-a\r\nx-a: b\r\ntransfer-encoding: gzip\r\nx-check: sound\r\n\r\n",
            )
            .await;
        assert!(answer.ends_with("abc"), "{answer}");
        let trailers = upstream.last().trailers.unwrap();
        assert_eq!((trailers.len(), trailers["x-check"].as_bytes()), (1, b"sound".as_slice()));
    }
}

#[tokio::test]
async fn a_body_gets_new_framing() {
    let upstream = RawUpstream::start(OK).await;
    let harness = Harness::open(to(&[upstream.url()]));
    let answer = harness
        .raw(
            "POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: CHUNKED\r\nconnection: close\r\n\r\n\
             0003;name=value\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        )
        .await;
    assert!(answer.ends_with("ok"), "{answer}");
    upstream.gets("0\r\n\r\n").await;
    let got = upstream.got();
    let (head, body) = got.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("transfer-encoding: chunked") && !got.contains("name=value"), "{got}");
    let text: String = body.split("\r\n").skip(1).step_by(2).collect();
    assert_eq!(text, "abcde");
}

#[tokio::test]
async fn the_body_of_a_get_request_is_forwarded() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let answer = harness
        .raw(
            "GET /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
             3\r\nabc\r\n0\r\n\r\nGET /status/204 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        )
        .await;
    assert!(answer.contains("abc") && answer.contains("HTTP/1.1 204"), "{answer}");
    let seen: Vec<_> = upstream.seen().iter().map(|seen| seen.body.clone()).collect();
    assert_eq!(seen, ["abc", ""]);
}

#[tokio::test]
async fn broken_chunks_end_the_request_on_both_sides() {
    for chunks in ["zz\r\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "-1\r\n\r\n"] {
        let upstream = RawUpstream::start("").await;
        let harness = Harness::open(to(&[upstream.url()]));
        let answer = harness
            .raw(&format!(
                "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunks}\
                 GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 400 ") || answer.is_empty(), "{answer}");
        assert!(!upstream.got().contains("smuggled"));
        assert!(!upstream.got().ends_with("0\r\n\r\n"), "the upstream saw a whole body");
    }
}

#[tokio::test]
async fn folded_lines_and_odd_names_are_refused() {
    for field in
        ["x-a: b\r\n c", "x-a : b", "x a: b", " x-a: b", "x-a\x00: b", "x-a: b\x00c", ": b", "x-a"]
    {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{field}\r\n\r\n");
        assert_eq!(refused(&request).await, 400, "{field:?}");
    }
}

#[tokio::test]
async fn a_line_end_cannot_be_smuggled_in_a_value() {
    let upstream = RawUpstream::start(OK).await;
    let harness = Harness::open(to(&[upstream.url()]));
    let answer =
        harness.raw("GET /?a=b%0d%0aX-Evil:1 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(answer.await.starts_with("HTTP/1.1 200"));
    assert!(!upstream.got().to_lowercase().contains("\r\nx-evil"));
    let bare = refused("GET / HTTP/1.1\r\nhost: a\r\nx-a: b\rx-evil: 1\r\n\r\n").await;
    assert_eq!(bare, 400);
}

#[tokio::test]
async fn oversized_heads_are_refused() {
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "a".repeat(20_000));
    assert_eq!(refused(&long).await, 431);
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(200));
    assert_eq!(refused(&many).await, 431);
    let path =
        format!("GET /{} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", "a".repeat(9_000));
    assert_eq!(refused(&path).await, 414);
}

#[tokio::test]
async fn absurd_paths_are_refused() {
    for path in ["/a/../b", "/a/./b", "/%2e%2e/b", "/a%00b", "/a%zz", "/a\\b", "relative"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        assert_eq!(refused(&request).await, 400, "{path}");
    }
    let deep =
        format!("GET {} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", "/a".repeat(1_000));
    assert_eq!(refused(&deep).await, 414);
}

#[tokio::test]
async fn a_request_needs_exactly_one_host() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    for bad in ["", "host: a\r\nhost: b\r\n", "host: a b\r\n", "host: u@a\r\n", "host: a/b\r\n"] {
        let answer = harness.raw(&format!("GET / HTTP/1.1\r\n{bad}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{bad:?}: {answer}");
        assert!(answer.contains("bad_host"), "{answer}");
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn an_absolute_target_names_the_host() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let answer = harness
        .raw("GET http://real.test:81/x?y=1 HTTP/1.1\r\nhost: other\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = upstream.last();
    assert_eq!((seen.uri.to_string().as_str(), seen.header("host")), ("/x?y=1", "real.test:81"));
}

#[tokio::test]
async fn capabilities_are_answered_without_an_upstream() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let close = "host: a\r\nconnection: close\r\n";
    let all = harness.raw(&format!("OPTIONS * HTTP/1.1\r\n{close}\r\n")).await;
    assert!(all.starts_with("HTTP/1.1 204") && all.contains("allow: GET"), "{all}");
    let last = format!("OPTIONS /x HTTP/1.1\r\nmax-forwards: 0\r\n{close}\r\n");
    assert!(harness.raw(&last).await.starts_with("HTTP/1.1 204"));
    let star = harness.raw(&format!("GET * HTTP/1.1\r\n{close}\r\n")).await;
    assert!(star.starts_with("HTTP/1.1 400"), "{star}");
    for method in ["CONNECT a:443", "TRACE /"] {
        let answer = harness.raw(&format!("{method} HTTP/1.1\r\n{close}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: "), "{answer}");
    }
    assert!(upstream.seen().is_empty());
    harness.send(Request::options("/x").header("max-forwards", "5")).await;
    assert_eq!(upstream.last().header("max-forwards"), "4");
}

#[tokio::test]
async fn a_slow_head_is_cut_off() {
    let upstream = Upstream::start().await;
    let limits = ConnectionLimits {
        header_timeout: Duration::from_millis(50),
        ..ConnectionLimits::default()
    };
    let harness = Harness::connected(to(&[upstream.url()]), limits);
    assert_eq!(harness.raw("GET / HTTP/1.1\r\nhost: a\r\nx-slow: ").await, "");
}

#[tokio::test]
async fn a_slow_body_is_rejected_and_cut_off() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.head = HeadSettings { body_idle: Duration::from_millis(50), ..settings.head };
    let harness = Harness::open(settings);
    let answer =
        harness.raw("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc").await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_too_slow"), "{answer}");
    assert!(upstream.seen().is_empty(), "the upstream saw a whole body");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_rejected_before_or_while_it_arrives() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.head.body_bytes_max = Some(Size::new(5));
    let harness = Harness::open(settings);
    let reply = harness.one().await.send(Request::post("/echo"), "123456").await;
    assert_eq!(
        (reply.status.as_u16(), reply.json()["code"].as_str()),
        (413, Some("body_too_large"))
    );
    let chunked = harness
        .raw(
            "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
             3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n",
        )
        .await;
    assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
    assert!(upstream.seen().is_empty());
    assert_eq!(harness.one().await.send(Request::post("/echo"), "12345").await.body, "12345");
}

#[tokio::test]
async fn an_invalid_response_is_a_bad_gateway() {
    for answer in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nx-a: b\r\n c\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ] {
        let upstream = RawUpstream::start(answer).await;
        let harness = Harness::open(to(&[upstream.url()]));
        let reply = harness.get("/").await;
        let code = reply.json()["code"].as_str().map(str::to_owned);
        assert_eq!((reply.status.as_u16(), code.as_deref()), (502, Some("upstream_broken")));
    }
}

#[tokio::test]
async fn a_surplus_response_is_not_given_to_the_next_request() {
    // A surplus response must not be given to the next request.
    let upstream = RawUpstream::start(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
    )
    .await;
    let harness = Harness::open(to(&[upstream.url()]));
    assert_eq!(harness.get("/first").await.body, "ok");
    let second = harness.get("/second").await;
    assert_ne!(second.body, "evil");
    assert!(upstream.connections() > 1, "the connection was used again");
}

#[tokio::test]
async fn half_a_request_is_not_forwarded() {
    let upstream = RawUpstream::start(OK).await;
    let harness = Harness::open(to(&[upstream.url()]));
    let mut stream = harness.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    drop(within("the end", stream.read_to_end(&mut rest)).await);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_length_beside_chunks_does_not_cut_a_response() {
    let upstream = RawUpstream::start(
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
         5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    )
    .await;
    let harness = Harness::open(to(&[upstream.url()]));
    let reply = harness.get("/first").await;
    assert_eq!((reply.body.as_str(), reply.header("content-length")), ("hello world", ""));
    drop(harness.get("/second").await);
    assert_eq!(upstream.connections(), 2, "the connection is not used again");
}

#[tokio::test]
async fn a_transfer_coding_that_was_not_asked_for_is_a_bad_gateway() {
    for coding in [
        "gzip, chunked",
        "gzip",
        "deflate,chunked",
        "chunked, gzip",
        "chunked, chunked",
        "identity, chunked",
        "chunked\r\ntransfer-encoding: identity",
    ] {
        let answer =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n2\r\nab\r\n0\r\n\r\n");
        let upstream = RawUpstream::start(answer.leak()).await;
        let harness = Harness::open(to(&[upstream.url()]));
        let reply = harness.get("/").await;
        assert_eq!(reply.status, 502, "{coding}");
        assert_eq!(reply.json()["code"], "upstream_broken");
    }
}

#[tokio::test]
async fn odd_hosts_and_schemes_are_rejected() {
    for host in ["", "x,y", "x:abc", "x:70000", "u@x", "x..y", "[x]", "x%2ey"] {
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        assert_eq!(refused(&request).await, 400, "{host}");
    }
    for target in ["ftp://a/", "ws://a/", "http://x,y/", "http://x:abc/"] {
        let request = format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        assert_eq!(refused(&request).await, 400, "{target}");
    }
    for host in ["a", "a.test.", "a_b.test:80", "[::1]:80", "127.0.0.1"] {
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        assert_eq!(status(&request).await, (200, true), "{host}");
    }
}
