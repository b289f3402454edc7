//! The throttled service over real sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tidegate_capacity::{Dimension, TargetLimit};
use tidegate_throttled_service::{
    LimitKind, NaiveClient, REPORT_PATH, RetryHint, ServiceFault, ServiceLimit, ThrottledService,
    ThrottledServiceSettings, run_over_http,
};
use tokio::net::TcpStream;

/// A limit that no test outlives, so that the outcome does not depend on the machine's speed.
fn per_minute(amount: u64) -> Vec<ServiceLimit> {
    let limit = TargetLimit::per_minute(Dimension::Units, amount);
    vec![ServiceLimit { limit, kind: LimitKind::SlidingLog }]
}

async fn get(
    service: &ThrottledService,
    path: &str,
    fields: &[(&str, &str)],
) -> Response<Incoming> {
    let stream = TcpStream::connect(service.address()).await.unwrap();
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, driver) = shaken.unwrap();
    tokio::spawn(driver);
    let mut request = Request::get(path).header("host", "service");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn requests_over_the_limit_get_429_with_a_time() {
    let mut settings = ThrottledServiceSettings::new(per_minute(25));
    settings.retry_hint = RetryHint::Seconds;
    let service = ThrottledService::start(settings).unwrap();
    let fields = [("x-units", "10"), ("idempotency-key", "r1"), ("tidegate-slot", "3:7")];
    let first = get(&service, "/", &fields).await;
    assert_eq!(first.status(), 200);
    assert_eq!(first.headers()["x-request-charge"], "10");
    assert_eq!(first.headers()["x-ratelimit-remaining"], "15");
    assert_eq!(get(&service, "/", &fields).await.status(), 200);
    let third = get(&service, "/", &fields).await;
    assert_eq!(third.status(), 429);
    let wait: u64 = third.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");

    let report = get(&service, REPORT_PATH, &[]).await.into_body().collect().await.unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.to_bytes()).unwrap();
    assert_eq!((&report["arrivals"], &report["throttled"]), (&3.into(), &1.into()));
    let log = service.stop().await;
    let arrival = &log.arrivals()[0];
    assert_eq!((arrival.id.as_deref(), arrival.slot), (Some("r1"), Some((3, 7))));
    assert_eq!(log.duplicates(), 1);
}

#[tokio::test]
async fn faults_and_fences_decide_before_the_limit() {
    let mut settings = ThrottledServiceSettings::new(per_minute(100));
    settings.fences = true;
    let service = ThrottledService::start(settings).unwrap();
    service.set_fault(ServiceFault::Closed { retry_after: 30 });
    let closed = get(&service, "/", &[]).await;
    assert_eq!(
        (closed.status(), &closed.headers()["retry-after"]),
        (503_u16.try_into().unwrap(), &"30".parse().unwrap())
    );
    service.set_fault(ServiceFault::Status(500));
    assert_eq!(get(&service, "/", &[]).await.status(), 500);
    service.set_fault(ServiceFault::None);
    assert_eq!(get(&service, "/", &[("tidegate-slot", "1:5")]).await.status(), 200);
    assert_eq!(get(&service, "/", &[("tidegate-slot", "1:4")]).await.status(), 409);
    assert_eq!(service.log().stale_epochs(), 1);
}

#[tokio::test]
async fn a_baseline_sends_every_record_once_if_there_is_room() {
    let service =
        ThrottledService::start(ThrottledServiceSettings::new(per_minute(10_000))).unwrap();
    let report = run_over_http(&mut NaiveClient::new(500), service.address(), 10).await.unwrap();
    assert_eq!((report.sends, report.accepted, report.throttled), (500, 500, 0));
    let ids: Vec<String> = (0..500).map(|record| record.to_string()).collect();
    let log = service.log();
    assert!(log.missing(ids.iter().map(String::as_str)).is_empty());
    assert_eq!(log.summary(Dimension::Units).busiest_second, 5_000);
}
