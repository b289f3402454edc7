//! Clients that do not read: what they hold, and for how long.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use tidegate_engine::ManualClock;
use tidegate_gateway::{GatewayParts, GatewaySettings, Timeouts};
use tidegate_overload::{Mode, Protection, ProtectionSettings, SteadyClock};
use tidegate_server::{ConnectionLimits, Endpoint, Pressure};
use tokio::io::AsyncWriteExt as _;

use crate::harness::{Harness, START, by_user, engine, to, until, within};
use crate::upstream::Upstream;

const SOON: Duration = Duration::from_millis(50);

/// No client is too slow, and no connection idle for too long.
fn patient() -> ConnectionLimits {
    ConnectionLimits { idle_timeout: None, send_rate_min: 0, ..ConnectionLimits::default() }
}

/// A client must read, averaged over a moment.
fn reading() -> ConnectionLimits {
    ConnectionLimits { send_rate_min: 1_000, send_rate_window: SOON, ..patient() }
}

/// A gateway with room for one request in flight.
fn guarded(
    settings: GatewaySettings,
    limits: ConnectionLimits,
) -> (Harness, Arc<Protection<SteadyClock>>) {
    let mut protecting = ProtectionSettings::new(1);
    protecting.fleet_mode = Mode::Off;
    let protection = Arc::new(Protection::new(protecting, SteadyClock::starting_at(START)));
    let parts =
        GatewayParts { protection: Some(Arc::clone(&protection)), ..GatewayParts::default() };
    let rules = "- key: user\n  limits: [{algorithm: concurrency, requests_per_unit: 1}]";
    let engine = engine(rules, ManualClock::at(START));
    let gate = Arc::clone(&protection);
    let pressure = Pressure::new(move || gate.gate().view().in_flight > 0);
    let adjust = |endpoint: Endpoint| endpoint.limits(limits).pressure(pressure);
    (Harness::with(engine, settings, parts, adjust), protection)
}

#[tokio::test]
async fn an_http2_client_that_does_not_read_frees_the_gate_and_the_upstream() {
    let upstream = Upstream::start().await;
    let (harness, protection) = guarded(to(&[upstream.url()]), reading());
    let mut client = harness.two_with_window(0).await;
    let stalled = within("a response", client.begin(Request::get("/large"), "")).await.unwrap();
    until("a free gate", || protection.gate().view().in_flight == 0).await;
    until("the end of the upstream request", || upstream.open() == 0).await;
    assert_eq!(harness.get("/").await.status, 200);
    assert!(stalled.into_body().collect().await.is_err(), "the stream is reset");
    until("the end of both requests", || harness.gateway.read().in_flight == 0).await;
    assert_eq!(harness.gateway.read().broken, 0, "the upstream did not break off");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_sooner_while_the_gate_is_full() {
    let upstream = Upstream::start().await;
    let limits = ConnectionLimits {
        send_rate_window: Duration::from_secs(3_600),
        send_rate_window_pressed: SOON,
        ..reading()
    };
    let (harness, protection) = guarded(to(&[upstream.url()]), limits);
    let mut client = harness.two_with_window(0).await;
    let stalled = within("a response", client.begin(Request::get("/large"), "")).await.unwrap();
    until("a free gate", || protection.gate().view().in_flight == 0).await;
    assert!(stalled.into_body().collect().await.is_err(), "the stream is reset");
}

#[tokio::test]
async fn an_http1_client_that_does_not_read_frees_the_gate_and_the_upstream() {
    let upstream = Upstream::start().await;
    let (harness, protection) = guarded(to(&[upstream.url()]), reading());
    let mut stream = harness.connect().await;
    stream.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    until("the request", || upstream.seen().len() == 1).await;
    until("a free gate", || protection.gate().view().in_flight == 0).await;
    until("the end of the upstream request", || upstream.open() == 0).await;
    assert_eq!(harness.get("/").await.status, 200);
}

#[tokio::test]
async fn the_gate_is_free_when_the_upstream_has_finished_and_the_callers_slot_when_the_client_has()
{
    let upstream = Upstream::start().await;
    let (harness, protection) = guarded(by_user(to(&[upstream.url()])), patient());
    let mut client = harness.two_with_window(0).await;
    let request = Request::get("/medium").header("x-user", "7");
    let stalled = within("a response", client.begin(request, "")).await.unwrap();
    until("a free gate", || protection.gate().view().in_flight == 0).await;
    let refused = harness.get_as("7").await;
    assert_eq!(refused.json()["code"], "concurrency_limited");
    assert_eq!(harness.get_as("8").await.status, 200);
    drop(stalled);
    until("the request that was stalled", || harness.gateway.read().in_flight == 0).await;
    let again = async { while harness.get_as("7").await.status != 200 {} };
    within("a free slot", again).await;
}

#[tokio::test]
async fn the_timeout_of_a_whole_request_ends_a_response_that_is_not_read() {
    let upstream = Upstream::start().await;
    for is_http2 in [false, true] {
        let mut settings = to(&[upstream.url()]);
        settings.upstreams[0].timeouts =
            Timeouts { total: Some(Duration::from_millis(500)), ..Timeouts::default() };
        let (harness, protection) = guarded(settings, patient());
        let mut client = match is_http2 {
            false => harness.one().await,
            true => harness.two_with_window(0).await,
        };
        let stalled = within("a response", client.begin(Request::get("/large"), "")).await.unwrap();
        assert_eq!(stalled.status(), 200);
        until("a free gate", || protection.gate().view().in_flight == 0).await;
        assert!(stalled.into_body().collect().await.is_err(), "it is incomplete");
    }
}

#[tokio::test]
async fn a_stream_of_events_may_be_silent_for_longer_than_a_connection_may_be_idle() {
    let upstream = Upstream::start().await;
    let limits = ConnectionLimits { idle_timeout: Some(SOON), ..reading() };
    let harness = Harness::connected(to(&[upstream.url()]), limits);
    for is_http2 in [false, true] {
        let mut client = match is_http2 {
            false => harness.one().await,
            true => harness.two().await,
        };
        let events = within("a response", client.begin(Request::get("/stall"), "")).await.unwrap();
        let mut events = events.into_body();
        let first = within("an event", events.frame()).await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "first");
        for _ in 0..3 {
            // The end of an idle connection shows that the server has checked its connections.
            let mut idle = harness.connect().await;
            idle.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            let closed = tokio::io::AsyncReadExt::read_to_end(&mut idle, &mut answer);
            within("the end of an idle connection", closed).await.unwrap();
        }
        let next = std::pin::pin!(events.frame());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(next.poll(&mut cx).is_pending(), "the stream is still open");
    }
}
