//! Limits: rates, requests in flight, and failures to decide.

use http::Request;
use tidegate_answers::HeadersOn;
use tidegate_engine::{Nanos, RefusalStatus};

use crate::harness::{Harness, by_user, to, until};
use crate::upstream::Upstream;

const TWO_AN_HOUR: &str = "- key: user\n  limits: [{name: hourly, algorithm: token_bucket, \
                           unit: hour, requests_per_unit: 2}]";
const TWO_AT_ONCE: &str = "- key: user\n  limits: [{name: at-once, algorithm: concurrency, \
                           requests_per_unit: 2}]";

#[tokio::test]
async fn a_request_over_its_rate_is_not_forwarded() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(by_user(to(&[upstream.url()])), TWO_AN_HOUR);
    let first = harness.get_as("7").await;
    assert_eq!((first.status.as_u16(), first.header("x-ratelimit-remaining")), (200, "1"));
    assert_eq!(first.header("ratelimit-policy"), "\"hourly\";q=2;w=3600");
    harness.get_as("7").await;
    let refused = harness.get_as("7").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "1800");
    assert_eq!(refused.header("ratelimit"), "\"hourly\";r=0;t=1800");
    assert_eq!(refused.header("content-type"), "application/problem+json");
    assert_eq!(refused.header("cache-control"), "no-store");
    let problem = refused.json();
    assert_eq!(problem["code"], "rate_limited");
    assert_eq!(problem["violated-policies"][0], "hourly");
    assert_eq!(problem["retry-after"], 1_800);
    let limit = &problem["violated"][0];
    assert_eq!((&limit["name"], &limit["window"]), (&"hourly".into(), &3_600.into()));
    assert_eq!((&limit["limit"], &limit["used"]), (&2.into(), &2.into()));
    assert_eq!(limit["retry_after"], 1_800);
    assert_eq!(harness.get_as("8").await.status, 200);
    assert_eq!(upstream.seen().len(), 3);
    harness.engine.clock().advance(Nanos::from_secs(1_800));
    assert_eq!(harness.get_as("7").await.status, 200);
    assert_eq!((harness.count("served"), harness.count("rate_limited")), (4, 1));
}

#[tokio::test]
async fn a_route_chooses_the_status_of_refusals_unless_the_limit_does() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.routes[0].answers.refusal_status = Some(RefusalStatus::ServiceUnavailable);
    let limits = "- key: user\n  value: '7'\n  limits: [{name: a, unit: hour, requests_per_unit: 0}]\n\
                  - key: user\n  value: '8'\n  limits: [{name: b, unit: hour, requests_per_unit: 0, \
                  refusal_status: 429}]";
    let harness = Harness::limited(settings, limits);
    let refused = harness.get_as("7").await;
    assert_eq!(refused.status, 503);
    assert_eq!(
        (&refused.json()["status"], &refused.json()["code"]),
        (&503.into(), &"rate_limited".into())
    );
    assert_eq!(harness.get_as("8").await.status, 429);
    assert_eq!(harness.count("rate_limited"), 2);
}

#[tokio::test]
async fn one_refusal_per_interval_is_sampled() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.sample_refusals = Some(std::time::Duration::from_secs(1));
    let harness = Harness::limited(settings, TWO_AN_HOUR);
    for _ in 0..5 {
        harness.get_as("7").await;
    }
    let [example] = &harness.gateway.take_refusals()[..] else { panic!("one example") };
    assert_eq!((&*example.route, example.code), ("all", "rate_limited"));
    assert!(example.client.is_some_and(|client| client.is_loopback()));
    harness.engine.clock().advance(Nanos::from_secs(1));
    harness.get_as("7").await;
    assert_eq!(harness.gateway.take_refusals().len(), 1);
    assert!(harness.gateway.take_refusals().is_empty());
}

#[tokio::test]
async fn a_refusal_reads_no_body() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(by_user(to(&[upstream.url()])), TWO_AN_HOUR);
    for _ in 0..2 {
        harness.get_as("7").await;
    }
    // A client that waits for `100 Continue` gets none.
    let answer = harness
        .raw(
            "POST / HTTP/1.1\r\nhost: a\r\nx-user: 7\r\ncontent-length: 1000000\r\n\
             expect: 100-continue\r\n\r\n",
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
}

#[tokio::test]
async fn slots_are_held_until_the_answer_has_ended() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(by_user(to(&[upstream.url()])), TWO_AT_ONCE);
    let request = || Request::get("/slow").header("x-user", "7");
    let (mut one, mut two) = (harness.one().await, harness.two().await);
    let (first, second) = (one.begin(request(), ""), two.begin(request(), ""));
    let (first, second) = (tokio::spawn(first), tokio::spawn(second));
    until("both requests", || upstream.seen().len() == 2).await;
    assert_eq!(harness.gateway.read().in_flight, 2);
    let refused = harness.get_as("7").await;
    assert_eq!(
        (refused.status.as_u16(), refused.json()["code"].as_str()),
        (429, Some("concurrency_limited"))
    );
    let seconds: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=2).contains(&seconds), "{seconds}");
    upstream.let_go();
    for answer in [first, second] {
        let answer = answer.await.unwrap().unwrap();
        crate::harness::Reply::of(answer).await.unwrap();
    }
    until("the slots", || harness.gateway.read().in_flight == 0).await;
    assert_eq!(harness.get_as("7").await.status, 200);
}

#[tokio::test]
async fn a_client_that_disconnects_frees_its_slot() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(by_user(to(&[upstream.url()])), TWO_AT_ONCE);
    for number in 1..=2 {
        let mut client = harness.one().await;
        let sent = client.begin(Request::get("/slow").header("x-user", "7"), "");
        let sent = tokio::spawn(sent);
        until("the request", || upstream.seen().len() == number).await;
        sent.abort();
    }
    until("both gone", || harness.gateway.read().in_flight == 0).await;
    assert_eq!(harness.count("gone"), 2);
    assert_eq!(harness.get_as("7").await.status, 200);
}

#[tokio::test]
async fn a_stalled_answer_keeps_its_slot_and_a_dropped_one_does_not() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(by_user(to(&[upstream.url()])), &TWO_AT_ONCE.replace('2', "1"));
    let mut client = harness.one().await;
    let answer = client.begin(Request::get("/stall").header("x-user", "7"), "").await.unwrap();
    assert_eq!(harness.get_as("7").await.status, 429);
    drop((answer, client));
    until("the end", || harness.gateway.read().in_flight == 0).await;
    assert_eq!(harness.get_as("7").await.status, 200);
    assert_eq!(harness.gateway.read().broken, 0, "it was the client who left");
}

#[tokio::test]
async fn exempt_routes_and_requests_without_descriptors_are_not_limited() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    let mut exempt = settings.routes[0].clone();
    exempt.name = "health".into();
    exempt.exempt = true;
    exempt.path = tidegate_gateway::PathMatch::Prefix("/ping".into());
    settings.routes.insert(0, exempt);
    let harness =
        Harness::limited(settings, "- key: user\n  rate_limit: {unit: hour, requests_per_unit: 0}");
    let ping = harness.send(Request::get("/ping").header("x-user", "7")).await;
    assert_eq!(ping.status, 200);
    assert!(!ping.headers.contains_key("ratelimit"));
    assert_eq!(harness.get("/").await.status, 200);
    assert_eq!(harness.get_as("7").await.status, 429);
}

#[tokio::test]
async fn rate_limit_fields_can_be_for_refusals_only_and_the_upstreams_own_stay() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.headers_on = HeadersOn::Refusal;
    let harness = Harness::limited(settings, TWO_AN_HOUR);
    assert!(!harness.get_as("7").await.headers.contains_key("ratelimit"));
    harness.get_as("7").await;
    assert!(harness.get_as("7").await.headers.contains_key("ratelimit"));
}

#[tokio::test]
async fn the_kill_switch_lets_everything_pass() {
    let upstream = Upstream::start().await;
    let harness = Harness::limited(by_user(to(&[upstream.url()])), &TWO_AN_HOUR.replace('2', "0"));
    assert_eq!(harness.get_as("7").await.status, 429);
    harness.engine.switch_off(true);
    assert_eq!(harness.get_as("7").await.status, 200);
}
