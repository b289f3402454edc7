//! Which server is asked, when it is left alone, and how long it may take.

use std::time::Duration;

use http::Request;
use tidegate_gateway::{Ejection, HealthCheck, PoolSettings, Timeouts, UpstreamProtocol};

use crate::bench::{Bench, Told, to, until};
use crate::upstream::{Nobody, RawUpstream, Upstream};

#[tokio::test]
async fn requests_go_to_the_less_busy_of_two_hosts() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let bench = Bench::open(to(&[first.url(), second.url()]));
    let mut held = Vec::new();
    for number in 1..=4 {
        let mut client = bench.one().await;
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
async fn a_refused_connection_is_tried_elsewhere() {
    let (nobody, upstream) = (Nobody::new(), Upstream::start().await);
    let bench = Bench::open(to(&[nobody.url(), upstream.url()]));
    for _ in 0..20 {
        let told = bench.one().await.send(Request::post("/echo"), "once").await;
        assert_eq!((told.status.as_u16(), told.body.as_str()), (200, "once"));
    }
    assert_eq!(upstream.seen().len(), 20);
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let bench = Bench::open(to(&[first.url(), second.url()]));
    let told = bench.get("/break").await;
    assert_eq!(
        (told.status.as_u16(), told.json()["code"].as_str()),
        (502, Some("upstream_broken"))
    );
    assert_eq!(first.seen().len() + second.seen().len(), 1);
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_is_replaced() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    let upstream = RawUpstream::start(answer).await;
    let bench = Bench::open(to(&[upstream.url()]));
    for number in 1..=3 {
        assert_eq!(bench.one().await.send(Request::post("/"), "x").await.body, "ok");
        assert_eq!(upstream.connections(), number);
    }
}

#[tokio::test]
async fn a_host_that_fails_in_a_row_is_left_alone() {
    let (nobody, upstream) = (Nobody::new(), Upstream::start().await);
    let mut settings = to(&[nobody.url(), upstream.url()]);
    settings.upstreams[0].ejection = Ejection { failures: 1, ..Ejection::default() };
    let bench = Bench::open(settings);
    for _ in 0..10 {
        assert_eq!(bench.get("/").await.status, 200);
    }
    let hosts = bench.gateway.read().upstreams[0].1.clone();
    assert!(hosts[0].1.ejected && !hosts[1].1.ejected);
    assert_eq!(hosts[0].1.failures, 1);
}

#[tokio::test]
async fn when_nobody_is_well_all_are_tried() {
    let (first, second) = (Nobody::new(), Nobody::new());
    let mut settings = to(&[first.url(), second.url()]);
    settings.upstreams[0].ejection = Ejection { failures: 1, ..Ejection::default() };
    let bench = Bench::open(settings);
    for _ in 0..3 {
        assert_eq!(bench.get("/").await.status, 502);
    }
    let failures: u64 =
        bench.gateway.read().upstreams[0].1.iter().map(|(_, state)| state.failures).sum();
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
        let bench = Bench::open(settings);
        let gateway = bench.gateway.clone();
        let tending = tokio::spawn(async move { gateway.tend().await });
        let healthy = || bench.gateway.read().upstreams[0].1[0].1.healthy;
        until("the bad checks", || !healthy()).await;
        for _ in 0..10 {
            assert_eq!(bench.get("/").await.status, 200);
        }
        assert_eq!((first.seen().len(), second.seen().len()), (0, 10));
        first.fall_sick(false);
        until("the good check", healthy).await;
        for _ in 0..50 {
            bench.get("/").await;
        }
        assert!(!first.seen().is_empty());
        tending.abort();
    }
}

#[tokio::test]
async fn an_answer_that_does_not_begin_in_time_is_a_timeout() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].timeouts =
        Timeouts { first_byte: Duration::from_millis(50), ..Timeouts::default() };
    let bench = Bench::open(settings);
    let told = bench.get("/slow").await;
    assert_eq!(
        (told.status.as_u16(), told.json()["code"].as_str()),
        (504, Some("upstream_timeout"))
    );
    assert_eq!(bench.gateway.read().in_flight, 0);
    upstream.let_go();
    assert_eq!(bench.get("/").await.status, 200);
}

#[tokio::test]
async fn a_whole_request_has_a_time_of_its_own_on_a_route() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.routes[0].timeouts =
        Some(Timeouts { total: Some(Duration::from_millis(50)), ..Timeouts::default() });
    let bench = Bench::open(settings);
    assert_eq!(bench.get("/slow").await.status, 504);
    let mut client = bench.one().await;
    let answer = client.begin(Request::get("/stall"), "").await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(Told::of(answer).await.is_err());
}

#[tokio::test]
async fn an_answer_that_stalls_is_broken_off() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].timeouts =
        Timeouts { idle: Duration::from_millis(50), ..Timeouts::default() };
    let bench = Bench::open(settings);
    for mut client in [bench.one().await, bench.two().await] {
        let answer = client.begin(Request::get("/stall"), "").await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(Told::of(answer).await.is_err());
    }
    until("both ends", || bench.gateway.read().broken == 2).await;
    assert_eq!(bench.gateway.read().upstreams[0].1[0].1.failures, 2);
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_while() {
    let upstream = Upstream::start().await;
    let mut settings = to(&[upstream.url()]);
    settings.upstreams[0].pool =
        PoolSettings { idle_timeout: Duration::from_millis(20), ..PoolSettings::default() };
    let bench = Bench::open(settings);
    let gateway = bench.gateway.clone();
    let tending = tokio::spawn(async move { gateway.tend().await });
    assert_eq!(bench.get("/").await.status, 200);
    until("the end of the connection", || upstream.open() == 0).await;
    assert_eq!(bench.get("/").await.status, 200);
    assert_eq!(upstream.connections(), 2);
    tending.abort();
}

#[tokio::test]
async fn a_name_is_resolved() {
    let upstream = Upstream::start().await;
    let bench = Bench::open(to(&[format!("http://localhost:{}", upstream.address.port())]));
    assert_eq!(bench.get("/").await.body, "hello");
    let bench = Bench::open(to(&["http://nobody.invalid:80".to_owned()]));
    assert_eq!(bench.get("/").await.status, 502);
}
