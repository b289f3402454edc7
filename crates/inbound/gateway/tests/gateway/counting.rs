//! Every request is counted once, in every metric.

use std::sync::Arc;

use http::Request;
use tidegate_engine::ManualClock;
use tidegate_gateway::{GatewayParts, PathMatch, RouteSettings, UpstreamSettings};
use tidegate_metrics::{AnswerKind, Meter};
use tidegate_overload::{Mode, Protection, ProtectionSettings, SteadyClock};

use crate::harness::{Harness, START, by_user, engine, to, until};
use crate::upstream::Upstream;

const RULES: &str = "
- key: user
  limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 3}]
- key: user
  value: patient
  limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 1, when_over: queue}]";

fn answered(meter: &Meter, kind: AnswerKind) -> u64 {
    meter.read().answers[kind as usize]
}

#[tokio::test]
async fn a_request_is_counted_once_however_it_ends() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    let mut broken = RouteSettings::new("broken", "nowhere");
    broken.path = PathMatch::Prefix("/broken".into());
    settings.routes.push(broken);
    settings.routes.swap(0, 1);
    settings.upstreams.push(UpstreamSettings::new("nowhere", ["http://127.0.0.1:1"]));
    let meter = Arc::new(Meter::new("gateway"));
    let mut protecting = ProtectionSettings::new(1);
    protecting.fleet_mode = Mode::Off;
    let protection = Arc::new(Protection::new(protecting, SteadyClock::starting_at(START)));
    let parts = GatewayParts {
        meter: Some(Arc::clone(&meter)),
        protection: Some(Arc::clone(&protection)),
        ..GatewayParts::default()
    };
    let engine = engine(RULES, ManualClock::at(START));
    let harness = Harness::with(engine, settings, parts, |endpoint| endpoint);

    // One in the gate, five that find it full: their limits admit them first.
    let mut first = harness.one().await;
    let slow = tokio::spawn(first.begin(Request::post("/slow").header("x-user", "slow"), ""));
    until("the request", || upstream.seen().len() == 1).await;
    for _ in 0..5 {
        assert_eq!(harness.get_as("7").await.status, 503);
    }
    upstream.let_go();
    assert_eq!(slow.await.unwrap().unwrap().status(), 200);
    until("an empty gate", || protection.gate().view().in_flight == 0).await;

    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(harness.get_as("7").await.status.as_u16());
    }
    statuses.push(harness.get("/broken").await.status.as_u16());
    statuses.push(harness.get("/a/../b").await.status.as_u16());
    for _ in 0..2 {
        statuses.push(harness.get_as("patient").await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429, 502, 400, 200, 202]);

    let outcomes = || -> u64 {
        let routes = harness.gateway.read().routes;
        routes.iter().flat_map(|(_, outcomes)| outcomes).map(|(_, count)| count).sum()
    };
    until("all ends", || outcomes() == 14).await;
    // Served are the slow one, three of user 7 and one of the patient user; another of that user is kept.
    assert_eq!(answered(&meter, AnswerKind::Admitted), 6);
    assert_eq!(answered(&meter, AnswerKind::Refused), 6);
    assert_eq!(answered(&meter, AnswerKind::Failed), 1);
    assert_eq!(answered(&meter, AnswerKind::Invalid), 1);
    let reading = meter.read();
    assert_eq!(reading.answers.iter().sum::<u64>(), 14);
    assert_eq!(reading.buckets.iter().sum::<u64>(), 14);
}
