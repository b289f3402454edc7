//! Overload protection: which requests are shed, and their answers.

use std::sync::Arc;

use http::{Method, Request};
use tidegate_engine::{ManualClock, Nanos};
use tidegate_gateway::{CategoryRule, CostSettings, GatewayParts, GatewaySettings};
use tidegate_overload::{Category, Limiter, Mode, Protection, ProtectionSettings, SteadyClock};

use crate::harness::{Harness, START, by_user, engine, remaining, to, until};
use crate::upstream::Upstream;

type Guard = Arc<Protection<SteadyClock>>;

const RULES: &str = "
- key: user
  limits:
  - {algorithm: token_bucket, unit: hour, requests_per_unit: 3}
  - {unit: day, requests_per_unit: 1, mode: shadow}";

/// A gateway with room for `limit` requests in flight.
fn guarded(settings: GatewaySettings, limit: u64) -> (Harness, Guard) {
    guarded_by(settings, ProtectionSettings::new(limit))
}

fn guarded_by(settings: GatewaySettings, mut protecting: ProtectionSettings) -> (Harness, Guard) {
    protecting.fleet_mode = Mode::Off;
    protected(settings, protecting)
}

fn protected(settings: GatewaySettings, protecting: ProtectionSettings) -> (Harness, Guard) {
    let protection = Arc::new(Protection::new(protecting, SteadyClock::starting_at(START)));
    let parts =
        GatewayParts { protection: Some(Arc::clone(&protection)), ..GatewayParts::default() };
    let engine = engine(RULES, ManualClock::at(START));
    (Harness::with(engine, settings, parts, |endpoint| endpoint), protection)
}

/// Fills the gate with critical requests that the upstream holds.
async fn fill(harness: &Harness, upstream: &Upstream, count: usize) {
    for number in 1..=count {
        let mut client = harness.one().await;
        let request = Request::post("/slow").header("x-important", "yes");
        tokio::spawn(client.begin(request, ""));
        until("the request", || upstream.seen().len() == number).await;
    }
}

fn trusting(mut settings: GatewaySettings) -> GatewaySettings {
    settings.trusted_hops = vec!["127.0.0.1/32".parse().unwrap()];
    settings.categories.rules = vec![CategoryRule {
        header: Some(("x-important".parse().unwrap(), "yes".parse().unwrap())),
        ..CategoryRule::new(Category::Critical)
    }];
    settings
}

#[tokio::test]
async fn a_full_gate_answers_503_and_frees_its_slots() {
    let upstream = Upstream::start().await;
    let (harness, protection) = guarded(trusting(to(&[upstream.url()])), 2);
    fill(&harness, &upstream, 2).await;
    let reply = harness.get("/").await;
    assert_eq!(reply.status, 503);
    let code = reply.json()["code"].as_str().unwrap().to_owned();
    assert!(["queue_full", "queue_timeout"].contains(&code.as_str()), "{code}");
    assert_eq!(reply.header("x-tidegate-shed"), "get");
    let seconds: u64 = reply.header("retry-after").parse().unwrap();
    assert!((1..=5).contains(&seconds), "{seconds}");
    assert!(!reply.headers.contains_key("ratelimit"));
    let call = Request::post("/").header("content-type", "application/grpc");
    let reply = harness.two().await.send(call, "").await;
    assert_eq!((reply.header("grpc-status"), reply.header("x-tidegate-shed")), ("14", "post"));
    upstream.let_go();
    until("an empty gate", || protection.gate().view().in_flight == 0).await;
    assert_eq!(harness.get("/").await.status, 200);
}

#[tokio::test]
async fn a_client_that_disconnects_while_it_waits_at_the_gate_is_counted_as_gone() {
    let upstream = Upstream::start().await;
    let mut protecting = ProtectionSettings::new(1);
    // Longer than any test runs.
    protecting.gate.standing_after = Nanos::from_secs(3_600);
    protecting.gate.burst_wait_max = Nanos::from_secs(3_600);
    let (harness, protection) = guarded_by(trusting(to(&[upstream.url()])), protecting);
    fill(&harness, &upstream, 1).await;
    let mut client = harness.one().await;
    let waiting = tokio::spawn(async move { client.send(Request::get("/"), "").await });
    until("one that waits", || protection.gate().view().queued == 1).await;
    waiting.abort();
    until("its end", || harness.count("gone") == 1).await;
    until("its place", || protection.gate().view().queued == 0).await;
    upstream.let_go();
}

#[tokio::test]
async fn a_request_that_is_shed_early_spends_nothing_of_the_callers_budget() {
    let upstream = Upstream::start().await;
    let (harness, _protection) = guarded(trusting(by_user(to(&[upstream.url()]))), 2);
    let late = || Request::post("/").header("x-user", "7").header("grpc-timeout", "0n");
    for _ in 0..5 {
        let reply = harness.send(late()).await;
        assert_eq!((reply.status.as_u16(), reply.json()["code"].as_str()), (503, Some("deadline")));
    }
    let first = harness.get_as("7").await;
    assert_eq!((first.status.as_u16(), first.header("x-ratelimit-remaining")), (200, "2"));
}

#[tokio::test]
async fn a_request_that_the_gate_refuses_is_refunded() {
    let upstream = Upstream::start().await;
    let (harness, _protection) = guarded(trusting(by_user(to(&[upstream.url()]))), 2);
    fill(&harness, &upstream, 2).await;
    for _ in 0..5 {
        assert_eq!(harness.get_as("7").await.status, 503);
    }
    assert_eq!([0, 1].map(|place| remaining(&harness.engine, place)), [3, 1]);
    upstream.let_go();
}

#[tokio::test]
async fn a_limit_that_charged_nothing_refunds_nothing() {
    let upstream = Upstream::start().await;
    let (harness, protection) = guarded(trusting(by_user(to(&[upstream.url()]))), 2);
    assert_eq!(harness.get_as("7").await.status, 200);
    until("an empty gate", || protection.gate().view().in_flight == 0).await;
    let seen = upstream.seen().len();
    for number in 1..=2 {
        let mut client = harness.one().await;
        tokio::spawn(client.begin(Request::post("/slow").header("x-important", "yes"), ""));
        until("the request", || upstream.seen().len() == seen + number).await;
    }
    assert_eq!(harness.get_as("7").await.status, 503);
    // The shadow limit would have refused it.
    assert_eq!([0, 1].map(|place| remaining(&harness.engine, place)), [2, 0]);
    upstream.let_go();
}

#[tokio::test]
async fn a_request_that_costs_its_bytes_is_refunded() {
    let upstream = Upstream::start().await;
    let mut settings = trusting(by_user(to(&[upstream.url()])));
    settings.routes[0].cost = CostSettings::BodyBytes { min: 1 };
    let (harness, _protection) = guarded(settings, 2);
    fill(&harness, &upstream, 2).await;
    let mut client = harness.one().await;
    let reply = client.send(Request::post("/").header("x-user", "7"), "ab").await;
    assert_eq!((reply.status.as_u16(), remaining(&harness.engine, 0)), (503, 3));
    upstream.let_go();
}

#[tokio::test]
async fn a_request_that_the_fleet_sheds_is_refunded() {
    let upstream = Upstream::start().await;
    let settings = trusting(by_user(to(&[upstream.url()])));
    let mut protecting = ProtectionSettings::new(64);
    protecting.fleet_mode = Mode::ENFORCE;
    protecting.fleet.reserved_percent = 100;
    let (harness, _protection) = protected(settings, protecting);
    // A node always has room for one request.
    let mut client = harness.one().await;
    tokio::spawn(client.begin(Request::post("/slow"), ""));
    until("the request", || upstream.seen().len() == 1).await;
    let reply = harness.get_as("7").await;
    assert_eq!((reply.status.as_u16(), reply.json()["code"].as_str()), (503, Some("shed_fleet")));
    assert_eq!(remaining(&harness.engine, 0), 3);
    upstream.let_go();
}

#[tokio::test]
async fn a_category_comes_from_rules_and_trusted_hops_and_is_forwarded() {
    let upstream = Upstream::start().await;
    let mut settings = trusting(to(&[upstream.url()]));
    settings
        .categories
        .rules
        .push(CategoryRule { methods: vec![Method::DELETE], ..CategoryRule::new(Category::Test) });
    let category = |request: http::request::Builder, settings: GatewaySettings| async {
        let (harness, _protection) = guarded(settings, 2);
        harness.send(request).await;
        upstream.last().header("x-tidegate-category").to_owned()
    };
    let important = || Request::get("/").header("x-important", "yes");
    let claimed = || Request::get("/").header("x-tidegate-category", "critical");
    assert_eq!(category(Request::get("/"), settings.clone()).await, "get");
    assert_eq!(category(Request::post("/"), settings.clone()).await, "post");
    assert_eq!(category(Request::delete("/"), settings.clone()).await, "test");
    assert_eq!(category(important(), settings.clone()).await, "critical");
    assert_eq!(category(claimed(), settings.clone()).await, "critical");
    settings.trusted_hops.clear();
    assert_eq!(category(important(), settings.clone()).await, "get");
    assert_eq!(category(claimed(), settings).await, "get");
}

#[tokio::test]
async fn the_category_of_an_untrusted_client_is_not_forwarded_without_protection() {
    let upstream = Upstream::start().await;
    let claimed = || Request::get("/").header("x-tidegate-category", "critical");
    let heard = |settings: GatewaySettings, parts: GatewayParts| async {
        let engine = engine(RULES, ManualClock::at(START));
        let harness = Harness::with(engine, settings, parts, |endpoint| endpoint);
        harness.send(claimed()).await;
        upstream.last().headers.get("x-tidegate-category").cloned()
    };
    let open = to(&[upstream.url()]);
    assert_eq!(heard(open.clone(), GatewayParts::default()).await, None);
    let trusting = trusting(open.clone());
    let kept = heard(trusting, GatewayParts::default()).await;
    assert_eq!(kept.as_ref().map(|kept| kept.as_bytes()), Some(&b"critical"[..]));
    let mut exempt = open;
    exempt.routes[0].exempt = true;
    let clock = SteadyClock::starting_at(START);
    let protection = Some(Arc::new(Protection::new(ProtectionSettings::new(2), clock)));
    assert_eq!(heard(exempt, GatewayParts { protection, ..GatewayParts::default() }).await, None);
}

#[tokio::test]
async fn exempt_routes_pass_a_full_gate() {
    let upstream = Upstream::start().await;
    let mut settings = trusting(to(&[upstream.url()]));
    let mut exempt = settings.routes[0].clone();
    exempt.path = tidegate_gateway::PathMatch::Prefix("/ping".into());
    exempt.name = "ping".to_owned();
    exempt.exempt = true;
    settings.routes.insert(0, exempt);
    let (harness, _protection) = guarded(settings, 1);
    fill(&harness, &upstream, 1).await;
    assert_eq!(harness.get("/").await.status, 503);
    assert_eq!(harness.get("/ping").await.status, 200);
    upstream.let_go();
}

#[tokio::test]
async fn a_killed_or_dark_limiter_refuses_no_request() {
    let upstream = Upstream::start().await;
    let (harness, protection) = guarded(trusting(to(&[upstream.url()])), 1);
    fill(&harness, &upstream, 1).await;
    assert_eq!(harness.get("/").await.status, 503);
    protection.set_mode(Limiter::Gate, Mode::Shadow);
    assert_eq!(harness.get("/").await.status, 200);
    protection.set_mode(Limiter::Gate, Mode::ENFORCE);
    protection.kill_all(None);
    assert_eq!(harness.get("/").await.status, 200);
    upstream.let_go();
}
