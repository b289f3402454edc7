//! Requests over a limit that does not refuse: they wait, or are kept for later.

use std::time::{Duration, Instant};

use http::Request;
use tidegate_engine::SystemClock;
use tidegate_gateway::{DelaySettings, QueueSettings};

use crate::bench::{Bench, Told, by_user, to, until, within};
use crate::upstream::Upstream;

/// One each 40 ms, and none ahead.
fn paced(when_over: &str) -> String {
    format!(
        "- key: user\n  limits: [{{name: paced, algorithm: token_bucket, unit: second, \
         requests_per_unit: 25, burst: 1, when_over: {when_over}}}]"
    )
}

/// Sends requests of one user at once, each on a connection of its own.
async fn together(bench: &Bench<SystemClock>, count: usize) -> Vec<tokio::task::JoinHandle<Told>> {
    let mut sent = Vec::new();
    for number in 0..count {
        let mut client = bench.one().await;
        let path = format!("/{number}");
        sent.push(tokio::spawn(async move {
            client.send(Request::get(path).header("x-user", "7"), "").await
        }));
    }
    sent
}

/// The next turn is in 144 seconds, less what has passed since the last.
#[track_caller]
fn assert_refused_for_long(told: &Told) {
    let wait: u64 = told.header("retry-after").parse().unwrap();
    assert!(told.status == 429 && (100..=144).contains(&wait), "{} {wait}", told.status);
}

#[expect(clippy::disallowed_methods, reason = "the pace of a real limit is measured")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test]
async fn delayed_requests_leave_at_the_limits_pace() {
    let upstream = Upstream::start().await;
    let bench = Bench::timed(by_user(to(&[upstream.url()])), &paced("delay"));
    let began = now();
    for told in together(&bench, 6).await {
        assert_eq!(told.await.unwrap().status, 200);
    }
    let took = now().duration_since(began);
    assert!(took >= Duration::from_millis(195), "{took:?}");
    assert_eq!(upstream.seen().len(), 6);
    assert_eq!(bench.gateway.read().waiting, 0);
}

#[tokio::test]
async fn a_full_line_and_a_wait_that_is_too_long_refuse() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.delay = DelaySettings { line_max: 2, ..DelaySettings::default() };
    let bench = Bench::timed(settings.clone(), &paced("delay").replace("second", "hour"));
    assert_eq!(bench.get_as("7").await.status, 200);
    // 144 seconds are longer than anybody waits here.
    assert_refused_for_long(&bench.get_as("7").await);

    settings.delay.wait_max = Duration::from_secs(600);
    let bench = Bench::timed(settings, &paced("delay").replace("second", "hour"));
    assert_eq!(bench.get_as("7").await.status, 200);
    let waiting = together(&bench, 2).await;
    until("a full line", || bench.gateway.read().waiting == 2).await;
    assert_eq!(bench.get_as("7").await.status, 429);
    assert_eq!(bench.get_as("8").await.status, 200);
    for request in waiting {
        request.abort();
    }
    until("places given up", || bench.gateway.read().waiting == 0).await;
}

#[tokio::test]
async fn a_client_that_goes_gives_its_place_to_the_next() {
    let upstream = Upstream::start().await;
    // Two seconds apart: long enough for three requests to arrive within.
    let rules = paced("delay").replace("25", "30").replace("second", "minute");
    let bench = Bench::timed(by_user(to(&[upstream.url()])), &rules);
    assert_eq!(bench.get_as("7").await.status, 200);
    let mut waiting = together(&bench, 1).await;
    until("the first in line", || bench.gateway.read().waiting == 1).await;
    waiting.extend(together(&bench, 1).await);
    until("the second in line", || bench.gateway.read().waiting == 2).await;
    waiting[0].abort();
    let told = within("the second's turn", waiting.remove(1)).await.unwrap();
    assert_eq!(told.status, 200);
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn a_leaky_bucket_lets_requests_wait_for_their_turn() {
    let upstream = Upstream::start().await;
    let rules = "- key: user\n  limits: [{algorithm: leaky_bucket, unit: second, \
                 requests_per_unit: 25, queue: 10}]";
    let bench = Bench::timed(by_user(to(&[upstream.url()])), rules);
    let began = now();
    for told in together(&bench, 4).await {
        assert_eq!(told.await.unwrap().status, 200);
    }
    assert!(now().duration_since(began) >= Duration::from_millis(115));
}

#[tokio::test]
async fn a_kept_request_is_processed_later_and_its_state_is_told() {
    let upstream = Upstream::start().await;
    let bench = Bench::timed(by_user(to(&[upstream.url()])), &paced("queue"));
    let post = || Request::post("/status/201").header("x-user", "7");
    // Whoever comes soon enough after another is kept.
    let (body, kept) = within("a request that is kept", async {
        for number in 1.. {
            let body = format!("number {number}");
            let told = bench.one().await.send(post(), body.clone()).await;
            if told.status != 201 {
                return (body, told);
            }
        }
        unreachable!("numbers do not end")
    })
    .await;
    assert_eq!((kept.status.as_u16(), kept.json()["state"].as_str()), (202, Some("waiting")));
    let place = kept.header("location").to_owned();
    assert!(place.starts_with("/.tidegate/held/"), "{place}");
    within("the request", async { while bench.get(&place).await.json()["state"] != "done" {} })
        .await;
    assert_eq!(bench.get(&place).await.json()["status"], 201);
    assert_eq!(upstream.last().body, body);
    assert_eq!(upstream.last().header("x-user"), "7");
    let unknown = format!("/.tidegate/held/{}", "0".repeat(32));
    assert_eq!(bench.get(&unknown).await.status, 404);
    assert_eq!(bench.count("kept"), 1);
}

#[tokio::test]
async fn a_kept_request_that_waits_too_long_expires() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.queue =
        QueueSettings { wait_max: Duration::from_millis(50), ..QueueSettings::default() };
    let bench = Bench::timed(settings, &paced("queue").replace("second", "hour"));
    bench.get_as("7").await;
    let kept = bench.get_as("7").await;
    assert_eq!(kept.status, 202);
    let place = kept.header("location").to_owned();
    within("the end", async { while bench.get(&place).await.json()["state"] != "expired" {} })
        .await;
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn without_room_a_request_is_refused_and_not_kept() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.queue =
        QueueSettings { requests_max: 1, body_bytes_max: 10, ..QueueSettings::default() };
    let bench = Bench::timed(settings, &paced("queue").replace("second", "hour"));
    bench.get_as("7").await;
    let post = || Request::post("/").header("x-user", "7");
    assert_eq!(bench.one().await.send(post(), "eleven bytes").await.status, 413);
    assert_eq!(bench.one().await.send(post(), "few").await.status, 202);
    assert_refused_for_long(&bench.one().await.send(post(), "few").await);
}
