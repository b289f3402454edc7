//! Forwarding of requests and responses, and the changes to them.

use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Version};
use tidegate_gateway::{
    HeaderEdit, HostHeader, PathMatch, PathRewrite, RouteSettings, UpstreamProtocol,
};

use crate::harness::{Harness, to};
use crate::upstream::{RawUpstream, Upstream};

#[tokio::test]
async fn requests_and_responses_pass_in_both_versions_on_either_side() {
    for protocol in [UpstreamProtocol::Http1, UpstreamProtocol::Http2] {
        let upstream = Upstream::start().await;
        let mut settings = to(&[upstream.url()]);
        settings.upstreams[0].protocol = protocol;
        let harness = Harness::open(settings);
        for mut client in [harness.one().await, harness.two().await] {
            let request = Request::post("/echo?a=%20b").header("x-mine", "1");
            let reply = client.send(request, "some words").await;
            assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, "some words"));
            let seen = upstream.last();
            assert_eq!((seen.method.clone(), seen.body.as_str()), (Method::POST, "some words"));
            assert_eq!(seen.uri.path_and_query().unwrap(), "/echo?a=%20b");
            assert_eq!(seen.header("x-mine"), "1");
            let (version, host) = match protocol {
                UpstreamProtocol::Http2 => (Version::HTTP_2, seen.uri.host().unwrap()),
                _ => (Version::HTTP_11, seen.header("host")),
            };
            assert_eq!((seen.version, host), (version, "api.test"));
        }
        assert_eq!(harness.count("served"), 2);
    }
}

#[tokio::test]
async fn connections_to_upstreams_are_reused() {
    for protocol in [UpstreamProtocol::Http1, UpstreamProtocol::Http2] {
        let upstream = Upstream::start().await;
        let mut settings = to(&[upstream.url()]);
        settings.upstreams[0].protocol = protocol;
        let harness = Harness::open(settings);
        for _ in 0..5 {
            assert_eq!(harness.get("/").await.body, "hello");
            assert_eq!(harness.send(Request::post("/")).await.body, "hello");
            assert_eq!(harness.send(Request::head("/")).await.body, "");
        }
        assert_eq!(upstream.connections(), 1, "{protocol:?}");
        let state = harness.gateway.read().upstreams[0].1[0].1;
        assert_eq!((state.opened, state.reused, state.requests), (1, 14, 0));
    }
}

#[tokio::test]
async fn a_burst_over_http_2_shares_one_connection() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].protocol = UpstreamProtocol::Http2;
    let harness = Harness::open(settings);
    harness.get("/").await;
    let mut client = harness.two().await;
    let sent: Vec<_> = (0..50).map(|_| client.begin(Request::get("/"), "")).collect();
    for answer in sent {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    for protocol in [UpstreamProtocol::Http1, UpstreamProtocol::Http2] {
        let upstream = Upstream::start().await;
        let mut settings = to(&[upstream.url()]);
        settings.upstreams[0].protocol = protocol;
        let harness = Harness::open(settings);
        for mut client in [harness.one().await, harness.two().await] {
            let request = Request::get("/trailers").header("te", "trailers");
            let reply = client.send(request, "").await;
            assert_eq!(reply.body, "part");
            assert_eq!(reply.trailers.unwrap()["x-sum"], "42");
            assert_eq!(upstream.last().header("te"), "trailers");
        }
        let answer = harness
            .raw(
                "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\
                 trailer: x-check\r\nconnection: close\r\n\r\n\
                 3\r\nabc\r\n0\r\nx-check: sound\r\n\r\n",
            )
            .await;
        assert!(answer.ends_with("abc"), "{answer}");
        assert_eq!(upstream.last().trailers.unwrap()["x-check"], "sound");
    }
}

#[tokio::test]
async fn hop_by_hop_fields_are_not_forwarded() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let request = Request::get("/hop")
        .header("connection", "x-private, keep-alive")
        .header("x-private", "1")
        .header("keep-alive", "timeout=1")
        .header("proxy-connection", "keep-alive")
        .header("proxy-authorization", "secret")
        .header("te", "gzip")
        .header("x-public", "2");
    let reply = harness.send(request).await;
    let seen = upstream.last();
    for gone in
        ["x-private", "keep-alive", "proxy-connection", "proxy-authorization", "te", "connection"]
    {
        assert!(!seen.headers.contains_key(gone), "{gone} was passed on");
    }
    assert_eq!(seen.header("x-public"), "2");
    for gone in ["x-between", "keep-alive", "connection"] {
        assert!(!reply.headers.contains_key(gone), "{gone} was passed back");
    }
    assert_eq!(reply.header("x-beyond"), "all");
}

#[tokio::test]
async fn fields_are_edited_in_order() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    let (name, value) = (HeaderName::from_static, HeaderValue::from_static);
    settings.routes[0].request_headers = vec![
        HeaderEdit::Set(name("x-a"), value("set")),
        HeaderEdit::Add(name("x-b"), value("added")),
        HeaderEdit::Remove(name("x-c")),
    ];
    settings.routes[0].response_headers =
        vec![HeaderEdit::Set(name("server"), value("ours")), HeaderEdit::Remove(name("date"))];
    let harness = Harness::open(settings);
    let request = Request::get("/").header("x-a", "1").header("x-b", "2").header("x-c", "3");
    let reply = harness.send(request).await;
    let seen = upstream.last();
    let all = |name: &str| -> Vec<String> {
        let values = seen.headers.get_all(name).iter();
        values.map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!((all("x-a"), all("x-b")), (vec!["set".into()], vec!["2".into(), "added".into()]));
    assert!(all("x-c").is_empty());
    assert_eq!(reply.header("server"), "ours");
}

#[tokio::test]
async fn routes_are_found_by_host_path_and_method() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let mut settings = to(&[first.url()]);
    settings.upstreams.push(tidegate_gateway::UpstreamSettings::new("b", [second.url()]));
    let mut routes = vec![RouteSettings::new("writes", "b"), RouteSettings::new("orders", "b")];
    routes[0].hosts = vec!["*.shop.test".into()];
    routes[0].methods = vec![Method::POST];
    routes[1].path = PathMatch::Template("/users/{id}/orders".into());
    settings.routes.splice(0..0, routes);
    settings.routes[2].path = PathMatch::Prefix("/users".into());
    let harness = Harness::open(settings);
    assert_eq!(harness.get("/users/7").await.status, 200);
    assert_eq!((first.seen().len(), second.seen().len()), (1, 0));
    assert_eq!(harness.get("/users/7/orders").await.status, 200);
    let write = Request::post("/any").header("host", "eu.Shop.test:81");
    assert_eq!(harness.send(write).await.status, 200);
    assert_eq!((first.seen().len(), second.seen().len()), (1, 2));
    let reply = harness.get("/elsewhere").await;
    assert_eq!((reply.status.as_u16(), reply.json()["code"].as_str()), (404, Some("no_route")));
}

#[tokio::test]
async fn prefixes_are_stripped_and_replaced() {
    let upstream = Upstream::start().await;
    for (rewrite, expected) in [
        (PathRewrite::Keep, ["/api/x?q=1", "/api"]),
        (PathRewrite::StripPrefix, ["/x?q=1", "/"]),
        (PathRewrite::ReplacePrefix("/v2/".into()), ["/v2/x?q=1", "/v2"]),
    ] {
        let mut settings = to(&[upstream.url()]);
        settings.routes[0].path = PathMatch::Prefix("/api/".into());
        settings.routes[0].rewrite = rewrite;
        let harness = Harness::open(settings);
        for (path, expected) in ["/api/x?q=1", "/api"].into_iter().zip(expected) {
            harness.get(path).await;
            assert_eq!(upstream.last().uri.to_string(), expected);
        }
    }
}

#[tokio::test]
async fn the_host_field_can_be_that_of_the_upstream() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.routes[0].host_header = HostHeader::Upstream;
    let harness = Harness::open(settings);
    harness.get("/").await;
    assert_eq!(upstream.last().header("host"), upstream.address.to_string());
    assert_eq!(upstream.last().header("x-forwarded-host"), "api.test");
}

#[tokio::test]
async fn a_client_gets_100_continue_when_the_upstream_asks_for_the_body() {
    let willing = RawUpstream::start("HTTP/1.1 100 Continue\r\n\r\n").await;
    let harness = Harness::open(to(&[willing.url()]));
    let mut stream = harness.connect().await;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = [0; 25];
    crate::harness::within("the word", stream.read_exact(&mut reply)).await.unwrap();
    assert_eq!(&reply, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert!(willing.got().contains("expect: 100-continue"));
    stream.write_all(b"body").await.unwrap();
    willing.gets("body").await;
}

#[tokio::test]
async fn over_http_2_a_client_gets_100_continue_immediately() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].protocol = UpstreamProtocol::Http2;
    let harness = Harness::open(settings);
    let answer = harness
        .raw(
            "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\
             connection: close\r\n\r\nbody",
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 100 ") && answer.ends_with("body"), "{answer}");
    assert!(!upstream.last().headers.contains_key("expect"));
}

#[tokio::test]
async fn a_client_gets_no_100_continue_if_the_upstream_rejects_the_request() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let answer = harness
        .raw(
            "POST /unwilling HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\
             expect: 100-continue\r\nconnection: close\r\n\r\n",
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 417 "), "{answer}");
}

#[tokio::test]
async fn many_requests_on_one_connection_keep_their_order() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[upstream.url()]));
    let mut bytes = String::new();
    for number in 0..20 {
        let body = format!("number {number:02}");
        bytes.push_str(&format!(
            "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
    }
    bytes.push_str("GET /status/201 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    let answer = harness.raw(&bytes).await;
    let places: Vec<_> =
        (0..20).map(|number| answer.find(&format!("number {number:02}")).unwrap()).collect();
    assert!(places.is_sorted());
    assert!(answer.contains("HTTP/1.1 201 Created"));
}
