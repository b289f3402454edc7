//! Overload protection in front of an upstream: who is shed, and what they are told.

use std::sync::Arc;

use http::{Method, Request};
use tidegate_engine::{ManualClock, Nanos};
use tidegate_gateway::{CategoryRule, CostSettings, GatewayParts, GatewaySettings};
use tidegate_overload::{Category, Limiter, Mode, Protection, ProtectionSettings, SteadyClock};

use crate::bench::{Bench, START, by_user, engine, remaining, to, until};
use crate::upstream::Upstream;

type Guard = Arc<Protection<SteadyClock>>;

const RULES: &str = "
- key: user
  limits:
  - {algorithm: token_bucket, unit: hour, requests_per_unit: 3}
  - {unit: day, requests_per_unit: 1, mode: shadow}";

/// A gateway that works on `limit` requests at once.
fn guarded(settings: GatewaySettings, limit: u64) -> (Bench, Guard) {
    guarded_by(settings, ProtectionSettings::new(limit))
}

fn guarded_by(settings: GatewaySettings, mut protecting: ProtectionSettings) -> (Bench, Guard) {
    protecting.fleet_mode = Mode::Off;
    protected(settings, protecting)
}

fn protected(settings: GatewaySettings, protecting: ProtectionSettings) -> (Bench, Guard) {
    let protection = Arc::new(Protection::new(protecting, SteadyClock::starting_at(START)));
    let parts =
        GatewayParts { protection: Some(Arc::clone(&protection)), ..GatewayParts::default() };
    let engine = engine(RULES, ManualClock::at(START));
    (Bench::with(engine, settings, parts, |endpoint| endpoint), protection)
}

/// Fills the gate with critical requests that do not end until the upstream lets go.
async fn fill(bench: &Bench, upstream: &Upstream, count: usize) {
    for number in 1..=count {
        let mut client = bench.one().await;
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
async fn a_full_gate_answers_503_and_gives_its_places_back() {
    let upstream = Upstream::start().await;
    let (bench, protection) = guarded(trusting(to(&[upstream.url()])), 2);
    fill(&bench, &upstream, 2).await;
    let told = bench.get("/").await;
    assert_eq!(told.status, 503);
    let code = told.json()["code"].as_str().unwrap().to_owned();
    assert!(["queue_full", "queue_timeout"].contains(&code.as_str()), "{code}");
    assert_eq!(told.header("x-tidegate-shed"), "get");
    let seconds: u64 = told.header("retry-after").parse().unwrap();
    assert!((1..=5).contains(&seconds), "{seconds}");
    assert!(!told.headers.contains_key("ratelimit"));
    let call = Request::post("/").header("content-type", "application/grpc");
    let told = bench.two().await.send(call, "").await;
    assert_eq!((told.header("grpc-status"), told.header("x-tidegate-shed")), ("14", "post"));
    upstream.let_go();
    until("an empty gate", || protection.gate().view().in_flight == 0).await;
    assert_eq!(bench.get("/").await.status, 200);
}

#[tokio::test]
async fn a_client_that_goes_while_it_waits_at_the_gate_is_counted_as_gone() {
    let upstream = Upstream::start().await;
    let mut protecting = ProtectionSettings::new(1);
    // Longer than any test.
    protecting.gate.standing_after = Nanos::from_secs(3_600);
    protecting.gate.burst_wait_max = Nanos::from_secs(3_600);
    let (bench, protection) = guarded_by(trusting(to(&[upstream.url()])), protecting);
    fill(&bench, &upstream, 1).await;
    let mut client = bench.one().await;
    let waiting = tokio::spawn(async move { client.send(Request::get("/"), "").await });
    until("one that waits", || protection.gate().view().queued == 1).await;
    waiting.abort();
    until("its end", || bench.count("gone") == 1).await;
    until("its place", || protection.gate().view().queued == 0).await;
    upstream.let_go();
}

#[tokio::test]
async fn what_is_shed_here_spends_nothing_of_the_callers_budget_when_it_is_hopeless() {
    let upstream = Upstream::start().await;
    let (bench, _protection) = guarded(trusting(by_user(to(&[upstream.url()]))), 2);
    let late = || Request::post("/").header("x-user", "7").header("grpc-timeout", "0n");
    for _ in 0..5 {
        let told = bench.send(late()).await;
        assert_eq!((told.status.as_u16(), told.json()["code"].as_str()), (503, Some("deadline")));
    }
    let first = bench.get_as("7").await;
    assert_eq!((first.status.as_u16(), first.header("x-ratelimit-remaining")), (200, "2"));
}

#[tokio::test]
async fn a_request_for_which_the_gate_has_no_place_gets_back_what_it_was_charged() {
    let upstream = Upstream::start().await;
    let (bench, _protection) = guarded(trusting(by_user(to(&[upstream.url()]))), 2);
    fill(&bench, &upstream, 2).await;
    for _ in 0..5 {
        assert_eq!(bench.get_as("7").await.status, 503);
    }
    assert_eq!([0, 1].map(|place| remaining(&bench.engine, place)), [3, 1]);
    upstream.let_go();
}

#[tokio::test]
async fn a_limit_that_charged_nothing_gives_nothing_back() {
    let upstream = Upstream::start().await;
    let (bench, protection) = guarded(trusting(by_user(to(&[upstream.url()]))), 2);
    assert_eq!(bench.get_as("7").await.status, 200);
    until("an empty gate", || protection.gate().view().in_flight == 0).await;
    let seen = upstream.seen().len();
    for number in 1..=2 {
        let mut client = bench.one().await;
        tokio::spawn(client.begin(Request::post("/slow").header("x-important", "yes"), ""));
        until("the request", || upstream.seen().len() == seen + number).await;
    }
    assert_eq!(bench.get_as("7").await.status, 503);
    // The limit in shadow had refused it.
    assert_eq!([0, 1].map(|place| remaining(&bench.engine, place)), [2, 0]);
    upstream.let_go();
}

#[tokio::test]
async fn a_request_that_costs_its_bytes_gets_them_back() {
    let upstream = Upstream::start().await;
    let mut settings = trusting(by_user(to(&[upstream.url()])));
    settings.routes[0].cost = CostSettings::BodyBytes;
    let (bench, _protection) = guarded(settings, 2);
    fill(&bench, &upstream, 2).await;
    let mut client = bench.one().await;
    let told = client.send(Request::post("/").header("x-user", "7"), "ab").await;
    assert_eq!((told.status.as_u16(), remaining(&bench.engine, 0)), (503, 3));
    upstream.let_go();
}

#[tokio::test]
async fn a_request_that_the_fleet_sheds_gets_back_what_it_was_charged() {
    let upstream = Upstream::start().await;
    let settings = trusting(by_user(to(&[upstream.url()])));
    let mut protecting = ProtectionSettings::new(64);
    protecting.fleet_mode = Mode::ENFORCE;
    protecting.fleet.reserved_percent = 100;
    let (bench, _protection) = protected(settings, protecting);
    // A node may always work on one.
    let mut client = bench.one().await;
    tokio::spawn(client.begin(Request::post("/slow"), ""));
    until("the request", || upstream.seen().len() == 1).await;
    let told = bench.get_as("7").await;
    assert_eq!((told.status.as_u16(), told.json()["code"].as_str()), (503, Some("shed_fleet")));
    assert_eq!(remaining(&bench.engine, 0), 3);
    upstream.let_go();
}

#[tokio::test]
async fn a_category_comes_from_rules_and_trusted_hops_and_upstreams_are_told() {
    let upstream = Upstream::start().await;
    let mut settings = trusting(to(&[upstream.url()]));
    settings
        .categories
        .rules
        .push(CategoryRule { methods: vec![Method::DELETE], ..CategoryRule::new(Category::Test) });
    let category = |request: http::request::Builder, settings: GatewaySettings| async {
        let (bench, _protection) = guarded(settings, 2);
        bench.send(request).await;
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
async fn what_a_stranger_says_of_its_category_goes_no_further_where_nobody_is_shed() {
    let upstream = Upstream::start().await;
    let claimed = || Request::get("/").header("x-tidegate-category", "critical");
    let heard = |settings: GatewaySettings, parts: GatewayParts| async {
        let engine = engine(RULES, ManualClock::at(START));
        let bench = Bench::with(engine, settings, parts, |endpoint| endpoint);
        bench.send(claimed()).await;
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
    let (bench, _protection) = guarded(settings, 1);
    fill(&bench, &upstream, 1).await;
    assert_eq!(bench.get("/").await.status, 503);
    assert_eq!(bench.get("/ping").await.status, 200);
    upstream.let_go();
}

#[tokio::test]
async fn a_killed_or_dark_limiter_refuses_nobody() {
    let upstream = Upstream::start().await;
    let (bench, protection) = guarded(trusting(to(&[upstream.url()])), 1);
    fill(&bench, &upstream, 1).await;
    assert_eq!(bench.get("/").await.status, 503);
    protection.set_mode(Limiter::Gate, Mode::Shadow);
    assert_eq!(bench.get("/").await.status, 200);
    protection.set_mode(Limiter::Gate, Mode::ENFORCE);
    protection.kill_all(None);
    assert_eq!(bench.get("/").await.status, 200);
    upstream.let_go();
}
