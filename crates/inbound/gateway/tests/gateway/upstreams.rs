//! Choice of a host, retries, ejection, health checks and timeouts.

use std::time::Duration;

use http::Request;
use tidegate_gateway::{Ejection, HealthCheck, PoolSettings, Timeouts, UpstreamProtocol};

use crate::harness::{Harness, Reply, to, until};
use crate::upstream::{Nobody, RawUpstream, Upstream};

#[tokio::test]
async fn requests_go_to_the_less_busy_of_two_hosts() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let harness = Harness::open(to(&[first.url(), second.url()]));
    let mut held = Vec::new();
    for number in 1..=4 {
        let mut client = harness.one().await;
        held.push(tokio::spawn(client.begin(Request::get("/slow"), "")));
        until("the request", || first.seen().len() + second.seen().len() == number).await;
    }
    assert_eq!((first.seen().len(), second.seen().len()), (2, 2));
    first.let_go();
    second.let_go();
    for answer in held {
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn after_a_refused_connection_another_host_is_tried() {
    let (nobody, upstream) = (Nobody::new(), Upstream::start().await);
    let harness = Harness::open(to(&[nobody.url(), upstream.url()]));
    for _ in 0..20 {
        let reply = harness.one().await.send(Request::post("/echo"), "once").await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, "once"));
    }
    assert_eq!(upstream.seen().len(), 20);
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let harness = Harness::open(to(&[first.url(), second.url()]));
    let reply = harness.get("/break").await;
    assert_eq!(
        (reply.status.as_u16(), reply.json()["code"].as_str()),
        (502, Some("upstream_broken"))
    );
    assert_eq!(first.seen().len() + second.seen().len(), 1);
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_is_replaced() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    let upstream = RawUpstream::start(answer).await;
    let harness = Harness::open(to(&[upstream.url()]));
    for number in 1..=3 {
        assert_eq!(harness.one().await.send(Request::post("/"), "x").await.body, "ok");
        assert_eq!(upstream.connections(), number);
    }
}

#[tokio::test]
async fn a_host_with_consecutive_failures_is_ejected() {
    let (nobody, upstream) = (Nobody::new(), Upstream::start().await);
    let mut settings = to(&[nobody.url(), upstream.url()]);
    settings.upstreams[0].ejection = Ejection { failures: 1, ..Ejection::default() };
    let harness = Harness::open(settings);
    for _ in 0..10 {
        assert_eq!(harness.get("/").await.status, 200);
    }
    let hosts = harness.gateway.read().upstreams[0].1.clone();
    assert!(hosts[0].1.ejected && !hosts[1].1.ejected);
    assert_eq!(hosts[0].1.failures, 1);
}

#[tokio::test]
async fn when_no_host_is_available_all_are_tried() {
    let (first, second) = (Nobody::new(), Nobody::new());
    let mut settings = to(&[first.url(), second.url()]);
    settings.upstreams[0].ejection = Ejection { failures: 1, ..Ejection::default() };
    let harness = Harness::open(settings);
    for _ in 0..3 {
        assert_eq!(harness.get("/").await.status, 502);
    }
    let failures: u64 =
        harness.gateway.read().upstreams[0].1.iter().map(|(_, state)| state.failures).sum();
    assert_eq!(failures, 6);
}

#[tokio::test]
async fn a_host_that_fails_its_health_checks_gets_nothing_until_it_passes_them() {
    for protocol in [UpstreamProtocol::Http1, UpstreamProtocol::Http2] {
        let (first, second) = (Upstream::start().await, Upstream::start().await);
        let mut settings = to(&[first.url(), second.url()]);
        settings.upstreams[0].protocol = protocol;
        settings.upstreams[0].health = Some(HealthCheck {
            path: "/health".into(),
            interval: Duration::from_millis(10),
            unhealthy_after: 2,
            healthy_after: 1,
            ..HealthCheck::default()
        });
        first.fall_sick(true);
        let harness = Harness::open(settings);
        let gateway = harness.gateway.clone();
        let maintenance = tokio::spawn(async move { gateway.maintain().await });
        let healthy = || harness.gateway.read().upstreams[0].1[0].1.healthy;
        until("the bad checks", || !healthy()).await;
        for _ in 0..10 {
            assert_eq!(harness.get("/").await.status, 200);
        }
        assert_eq!((first.seen().len(), second.seen().len()), (0, 10));
        first.fall_sick(false);
        until("the good check", healthy).await;
        for _ in 0..50 {
            harness.get("/").await;
        }
        assert!(!first.seen().is_empty());
        maintenance.abort();
    }
}

#[tokio::test]
async fn a_response_that_does_not_begin_in_time_is_a_timeout() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].timeouts =
        Timeouts { first_byte: Duration::from_millis(50), ..Timeouts::default() };
    let harness = Harness::open(settings);
    let reply = harness.get("/slow").await;
    assert_eq!(
        (reply.status.as_u16(), reply.json()["code"].as_str()),
        (504, Some("upstream_timeout"))
    );
    assert_eq!(harness.gateway.read().in_flight, 0);
    upstream.let_go();
    assert_eq!(harness.get("/").await.status, 200);
}

#[tokio::test]
async fn a_route_has_a_timeout_for_the_whole_request() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.routes[0].timeouts =
        Some(Timeouts { total: Some(Duration::from_millis(50)), ..Timeouts::default() });
    let harness = Harness::open(settings);
    assert_eq!(harness.get("/slow").await.status, 504);
    let mut client = harness.one().await;
    let answer = client.begin(Request::get("/stall"), "").await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(Reply::of(answer).await.is_err());
}

#[tokio::test]
async fn a_response_that_stalls_is_aborted() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].timeouts =
        Timeouts { idle: Duration::from_millis(50), ..Timeouts::default() };
    let harness = Harness::open(settings);
    for mut client in [harness.one().await, harness.two().await] {
        let answer = client.begin(Request::get("/stall"), "").await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(Reply::of(answer).await.is_err());
    }
    until("both ends", || harness.gateway.read().broken == 2).await;
    assert_eq!(harness.gateway.read().upstreams[0].1[0].1.failures, 2);
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_while() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].pool =
        PoolSettings { idle_timeout: Duration::from_millis(20), ..PoolSettings::default() };
    let harness = Harness::open(settings);
    let gateway = harness.gateway.clone();
    let maintenance = tokio::spawn(async move { gateway.maintain().await });
    assert_eq!(harness.get("/").await.status, 200);
    until("the end of the connection", || upstream.open() == 0).await;
    assert_eq!(harness.get("/").await.status, 200);
    assert_eq!(upstream.connections(), 2);
    maintenance.abort();
}

#[tokio::test]
async fn a_name_is_resolved() {
    let upstream = Upstream::start().await;
    let harness = Harness::open(to(&[format!("http://localhost:{}", upstream.address.port())]));
    assert_eq!(harness.get("/").await.body, "hello");
    let harness = Harness::open(to(&["http://nobody.invalid:80".to_owned()]));
    assert_eq!(harness.get("/").await.status, 502);
}

#[tokio::test]
async fn a_body_that_its_client_does_not_finish_is_no_failure_of_the_host() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].ejection = Ejection { failures: 1, ..Ejection::default() };
    settings.head.body_bytes_max = Some(100);
    settings.head.body_idle = Duration::from_millis(50);
    let harness = Harness::open(settings);
    let post = "POST /echo HTTP/1.1\r\nhost: a\r\n";
    let chunked = format!("{post}transfer-encoding: chunked\r\n\r\n");
    let too_large = format!("{chunked}40\r\n{0}\r\n40\r\n{0}\r\n", "x".repeat(64));
    for (request, status) in [
        (format!("{chunked}3\r\nabc\r\nzz\r\n"), "HTTP/1.1 400"),
        (too_large, "HTTP/1.1 413"),
        (format!("{post}content-length: 9\r\n\r\nabc"), "HTTP/1.1 408"),
    ] {
        let answer = harness.raw(&request).await;
        assert!(answer.starts_with(status), "{answer}");
    }
    // A client that disconnects in the middle of its body.
    let mut stream = harness.connect().await;
    let half = format!("{post}content-length: 9\r\n\r\nabc");
    tokio::io::AsyncWriteExt::write_all(&mut stream, half.as_bytes()).await.unwrap();
    until("the request", || harness.gateway.read().in_flight == 1).await;
    drop(stream);
    until("its end", || harness.gateway.read().in_flight == 0).await;
    let state = harness.gateway.read().upstreams[0].1[0].1;
    assert_eq!((state.failures, state.ejected), (0, false), "{state:?}");
    assert_eq!(harness.get("/").await.status, 200);
}
