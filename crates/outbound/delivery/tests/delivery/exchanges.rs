//! Requests, answers and what they mean.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{Response, Version};
use http_body_util::Full;
use tidegate_capacity::{Dimension, TargetLimit};
use tidegate_delivery::signature::{SigningKey, verify};
use tidegate_delivery::{
    Attempt, AttemptOutcome, BulkEnvelope, BulkFormat, BulkResults, BulkSettings, CostSource,
    HttpProcessor, HttpProtocol, METHOD_FIELD, Processor, SlotEpoch, URL_FIELD,
};
use tidegate_queue::{Clock, Payload, WallClock};
use tidegate_throttled_service::{
    LimitKind, RetryHint, ServiceFault, ServiceLimit, ThrottledService, ThrottledServiceSettings,
};
use tokio::net::TcpListener;

use crate::harness::{TestServer, attempt, local_settings, ok, send, status};

#[tokio::test]
async fn a_record_becomes_a_request_with_its_id() {
    let server = TestServer::start(|_| status(201)).await;
    let mut settings = local_settings(server.url("/orders"));
    settings.send_slot = true;
    settings.headers =
        vec![(HeaderName::from_static("authorization"), HeaderValue::from_static("Bearer t"))];
    let processor = HttpProcessor::new(settings).unwrap();
    let payload = Payload::from_body("hello")
        .with_header("content-type", "text/plain")
        .with_header("authorization", "Bearer of the producer")
        .with_header("connection", "close")
        .with_header("host", "evil.test")
        .with_header(METHOD_FIELD, "PUT")
        .with_header(URL_FIELD, "/orders/7?a=b");
    let slot = Some(SlotEpoch { slot: 3, epoch: 12 });
    let first = Attempt { slot, number: 2, ..attempt(1, payload) };
    let result = processor.process(std::slice::from_ref(&first)).await.remove(0);
    assert_eq!(result.outcome, AttemptOutcome::Delivered);

    let seen = &server.seen()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("PUT", "/orders/7?a=b"));
    assert_eq!(seen.body, "hello");
    assert_eq!(seen.headers["idempotency-key"], first.record.id.to_string());
    assert_eq!(seen.headers["tidegate-attempt"], "2");
    assert_eq!(seen.headers["tidegate-slot"], "3:12");
    assert_eq!(seen.headers["content-type"], "text/plain");
    assert_eq!(seen.headers["authorization"], "Bearer t");
    assert_eq!(seen.headers["host"], server.address.to_string());
    assert!(!seen.headers.contains_key("connection"));
}

#[tokio::test]
async fn http2_is_spoken_without_tls_if_asked_for() {
    let server = TestServer::start(|_| ok("fine")).await;
    let mut settings = local_settings(server.url("/"));
    settings.protocol = HttpProtocol::Http2;
    assert_eq!(send(settings, Payload::from_body("x")).await.outcome, AttemptOutcome::Delivered);
    assert_eq!(server.seen()[0].version, Version::HTTP_2);
}

#[tokio::test]
async fn a_throttled_service_is_understood() {
    let limit = TargetLimit::per_minute(Dimension::Units, 10);
    let limits = vec![ServiceLimit { limit, kind: LimitKind::SlidingLog }];
    let mut settings = ThrottledServiceSettings::new(limits);
    settings.units = 8;
    settings.retry_hint = RetryHint::Seconds;
    let service = ThrottledService::start(settings).unwrap();
    let mut settings = local_settings(format!("http://{}/", service.address()).parse().unwrap());
    settings.real_cost = CostSource::Header(HeaderName::from_static("x-request-charge"));
    let processor = HttpProcessor::new(settings).unwrap();
    let one = [attempt(1, Payload::from_body("x"))];
    let first = processor.process(&one).await.remove(0);
    assert_eq!((first.outcome, first.real_cost), (AttemptOutcome::Delivered, Some(8)));
    let second = processor.process(&one).await.remove(0).outcome;
    let AttemptOutcome::Throttled { hold: Some(hold) } = second else { panic!("{second:?}") };
    assert!(hold > Duration::ZERO && hold <= Duration::from_secs(60), "{hold:?}");
    service.set_fault(ServiceFault::Closed { retry_after: 30 });
    let closed = processor.process(&one).await.remove(0).outcome;
    assert_eq!(closed, AttemptOutcome::Throttled { hold: Some(Duration::from_secs(30)) });
    service.set_fault(ServiceFault::Status(500));
    let failed = processor.process(&one).await.remove(0).outcome;
    assert!(matches!(failed, AttemptOutcome::Failed { .. }), "{failed:?}");
    assert_eq!(service.log().arrivals().len(), 4);
}

#[tokio::test]
async fn responses_are_kept_within_their_bounds() {
    let server = TestServer::start(|_| {
        Response::builder()
            .header("set-cookie", "secret")
            .header("x-request-id", "77")
            .body(Full::from("0123456789"))
            .unwrap()
    })
    .await;
    let mut settings = local_settings(server.url("/"));
    settings.responses.keep = true;
    settings.responses.body_bytes_max = 4;
    settings.responses.fields = vec![HeaderName::from_static("x-request-id")];
    let kept = send(settings.clone(), Payload::default()).await.response.unwrap();
    assert_eq!((kept.status, &kept.body[..], kept.truncated), (200, &b"0123"[..], true));
    assert_eq!(kept.headers, [("x-request-id".to_owned(), "77".into())]);
    settings.responses.keep = false;
    assert_eq!(send(settings, Payload::default()).await.response, None);
}

#[tokio::test]
async fn a_host_that_does_not_listen_fails_and_nothing_was_sent() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let settings = local_settings(format!("http://{free}/").parse().unwrap());
    let outcome = send(settings, Payload::default()).await.outcome;
    let AttemptOutcome::Failed { detail } = outcome else { panic!("{outcome:?}") };
    assert!(detail.contains("refused"), "{detail}");
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_ambiguous() {
    // Accepts, reads and stays silent; then one that closes the connection without an answer.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let mut settings = local_settings(format!("http://{address}/").parse().unwrap());
    settings.timeouts.connect = Duration::from_millis(50);
    settings.timeouts.head = Duration::from_millis(50);
    let outcome = send(settings.clone(), Payload::from_body("x")).await.outcome;
    assert!(matches!(outcome, AttemptOutcome::Ambiguous { .. }), "{outcome:?}");
    drop(silent);

    let closing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closing.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::AsyncReadExt;
        let (mut stream, _) = closing.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
    });
    let settings = local_settings(format!("http://{address}/").parse().unwrap());
    let outcome = send(settings, Payload::from_body("x")).await.outcome;
    assert!(matches!(outcome, AttemptOutcome::Ambiguous { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_body_that_stalls_does_not_hide_the_status() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc").await.unwrap();
        std::future::pending::<()>().await;
    });
    let mut settings = local_settings(format!("http://{address}/").parse().unwrap());
    settings.timeouts.body = Duration::from_millis(50);
    settings.responses.keep = true;
    settings.responses.body_bytes_max = 100;
    let result = send(settings, Payload::from_body("x")).await;
    assert_eq!(result.outcome, AttemptOutcome::Delivered);
    let kept = result.response.unwrap();
    assert_eq!((&kept.body[..], kept.truncated), (&b"abc"[..], true));
}

#[tokio::test]
async fn bulk_requests_carry_many_records_and_return_a_result_for_each() {
    let server = TestServer::start(|seen| {
        let lines = std::str::from_utf8(&seen.body).unwrap().lines();
        let items: Vec<serde_json::Value> =
            lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let results = items.iter().enumerate().map(|(index, item)| {
            let status = [200, 429, 422][index % 3];
            serde_json::json!({ "id": item["id"], "status": status, "cost": 5 })
        });
        let results: Vec<_> = results.rev().collect();
        Response::new(Full::from(serde_json::json!({ "results": results }).to_string()))
    })
    .await;
    let mut settings = local_settings(server.url("/bulk"));
    settings.bulk = Some(BulkSettings {
        records_max: 100,
        format: BulkFormat::NdJson,
        envelope: BulkEnvelope::Wrapped,
        results: BulkResults::PerRecord,
    });
    let processor = HttpProcessor::new(settings).unwrap();
    assert_eq!(processor.batch_max(), 100);
    let bodies = ["{\"n\":1}", "not json", "2", "\"three\""];
    let batch: Vec<Attempt> = (0..4)
        .map(|number| attempt(number, Payload::from_body(bodies[usize::try_from(number).unwrap()])))
        .collect();
    let results = processor.process(&batch).await;
    assert_eq!(results[0].outcome, AttemptOutcome::Delivered);
    assert!(matches!(results[1].outcome, AttemptOutcome::Rejected { .. }));
    assert_eq!(results[2].outcome, AttemptOutcome::Throttled { hold: None });
    assert!(matches!(results[3].outcome, AttemptOutcome::Rejected { .. }));
    assert_eq!(results[0].real_cost, Some(5));
    let seen = &server.seen()[0];
    assert_eq!(seen.headers["content-type"], "application/x-ndjson");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_callback_is_signed_so_that_its_receiver_can_verify_it() {
    let server = TestServer::start(|_| ok("")).await;
    let key = SigningKey::new("sixteen bytes or more").unwrap();
    let mut settings = local_settings(server.url("/callback"));
    settings.signing_keys = vec![key.clone()];
    send(settings, Payload::from_body("{\"state\":\"delivered\"}")).await;
    let seen = &server.seen()[0];
    let field = seen.headers["tidegate-signature"].to_str().unwrap();
    let now = WallClock::default().now();
    assert_eq!(verify(field, &seen.body, &[key], now, Duration::from_secs(300)), Ok(()));
}

#[tokio::test]
async fn a_record_that_cannot_become_a_request_is_rejected() {
    let server = TestServer::start(|_| ok("")).await;
    let payloads = [
        Payload::default().with_header("bad name", "x"),
        Payload::default().with_header("x", "line\nfeed"),
        Payload::default().with_header(METHOD_FIELD, "CONNECT"),
        Payload::default().with_header(URL_FIELD, "//evil.test/"),
    ];
    for payload in payloads {
        let outcome = send(local_settings(server.url("/")), payload).await.outcome;
        assert!(matches!(outcome, AttemptOutcome::Rejected { .. }), "{outcome:?}");
    }
    assert!(server.seen().is_empty());
}
