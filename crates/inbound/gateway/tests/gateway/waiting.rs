//! Requests over a limit that delays or queues them.

use std::time::{Duration, Instant};

use http::Request;
use tidegate_engine::SystemClock;
use tidegate_gateway::{DelaySettings, QueueSettings, ValueFrom};

use crate::harness::{Harness, Reply, by_user, to, until, within};
use crate::upstream::Upstream;

/// One request per 40 ms, without a burst.
fn paced(when_over: &str) -> String {
    format!(
        "- key: user\n  limits: [{{name: paced, algorithm: token_bucket, unit: second, \
         requests_per_unit: 25, burst: 1, when_over: {when_over}}}]"
    )
}

/// Sends requests of one user at the same time, each on a new connection.
async fn together(
    harness: &Harness<SystemClock>,
    count: usize,
) -> Vec<tokio::task::JoinHandle<Reply>> {
    let mut sent = Vec::new();
    for number in 0..count {
        let mut client = harness.one().await;
        let path = format!("/{number}");
        sent.push(tokio::spawn(async move {
            client.send(Request::get(path).header("x-user", "7"), "").await
        }));
    }
    sent
}

/// The next turn is 144 seconds after the last one.
#[track_caller]
fn assert_refused_for_long(reply: &Reply) {
    let wait: u64 = reply.header("retry-after").parse().unwrap();
    assert!(reply.status == 429 && (100..=144).contains(&wait), "{} {wait}", reply.status);
}

#[expect(clippy::disallowed_methods, reason = "the pace of a real limit is measured")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test]
async fn delayed_requests_leave_at_the_limits_pace() {
    let upstream = Upstream::start().await;
    let harness = Harness::timed(by_user(to(&[upstream.url()])), &paced("delay"));
    let began = now();
    for reply in together(&harness, 6).await {
        assert_eq!(reply.await.unwrap().status, 200);
    }
    let took = now().duration_since(began);
    assert!(took >= Duration::from_millis(195), "{took:?}");
    assert_eq!(upstream.seen().len(), 6);
    assert_eq!(harness.gateway.read().waiting, 0);
}

#[tokio::test]
async fn a_full_line_and_a_wait_that_is_too_long_refuse() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.delay = DelaySettings { line_max: 2, ..DelaySettings::default() };
    let harness = Harness::timed(settings.clone(), &paced("delay").replace("second", "hour"));
    assert_eq!(harness.get_as("7").await.status, 200);
    // 144 seconds exceed the maximum wait.
    assert_refused_for_long(&harness.get_as("7").await);

    settings.delay.wait_max = Duration::from_secs(600);
    let harness = Harness::timed(settings, &paced("delay").replace("second", "hour"));
    assert_eq!(harness.get_as("7").await.status, 200);
    let waiting = together(&harness, 2).await;
    until("a full line", || harness.gateway.read().waiting == 2).await;
    assert_eq!(harness.get_as("7").await.status, 429);
    assert_eq!(harness.get_as("8").await.status, 200);
    for request in waiting {
        request.abort();
    }
    until("places given up", || harness.gateway.read().waiting == 0).await;
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_its_position_to_the_next() {
    let upstream = Upstream::start().await;
    // Two seconds apart: enough for three requests to arrive in between.
    let rules = paced("delay").replace("25", "30").replace("second", "minute");
    let harness = Harness::timed(by_user(to(&[upstream.url()])), &rules);
    assert_eq!(harness.get_as("7").await.status, 200);
    let mut waiting = together(&harness, 1).await;
    until("the first in line", || harness.gateway.read().waiting == 1).await;
    waiting.extend(together(&harness, 1).await);
    until("the second in line", || harness.gateway.read().waiting == 2).await;
    waiting[0].abort();
    let reply = within("the second's turn", waiting.remove(1)).await.unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn a_leaky_bucket_lets_requests_wait_for_their_turn() {
    let upstream = Upstream::start().await;
    let rules = "- key: user\n  limits: [{algorithm: leaky_bucket, unit: second, \
                 requests_per_unit: 25, queue: 10}]";
    let harness = Harness::timed(by_user(to(&[upstream.url()])), rules);
    let began = now();
    for reply in together(&harness, 4).await {
        assert_eq!(reply.await.unwrap().status, 200);
    }
    assert!(now().duration_since(began) >= Duration::from_millis(115));
}

#[tokio::test]
async fn a_queued_request_is_processed_later_and_its_state_can_be_queried() {
    let upstream = Upstream::start().await;
    let harness = Harness::timed(by_user(to(&[upstream.url()])), &paced("queue"));
    let post = || Request::post("/status/201").header("x-user", "7");
    // A request that arrives soon after another is queued.
    let (body, kept) = within("a request that is kept", async {
        for number in 1.. {
            let body = format!("number {number}");
            let reply = harness.one().await.send(post(), body.clone()).await;
            if reply.status != 201 {
                return (body, reply);
            }
        }
        unreachable!("numbers do not end")
    })
    .await;
    assert_eq!((kept.status.as_u16(), kept.json()["state"].as_str()), (202, Some("waiting")));
    let place = kept.header("location").to_owned();
    assert!(place.starts_with("/.tidegate/held/"), "{place}");
    within("the request", async { while harness.get(&place).await.json()["state"] != "done" {} })
        .await;
    assert_eq!(harness.get(&place).await.json()["status"], 201);
    assert_eq!(upstream.last().body, body);
    assert_eq!(upstream.last().header("x-user"), "7");
    let unknown = format!("/.tidegate/held/{}", "0".repeat(32));
    assert_eq!(harness.get(&unknown).await.status, 404);
    assert_eq!(harness.count("kept"), 1);
}

#[tokio::test]
async fn a_queued_request_that_waits_too_long_expires() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.queue =
        QueueSettings { wait_max: Duration::from_millis(50), ..QueueSettings::default() };
    let harness = Harness::timed(settings, &paced("queue").replace("second", "hour"));
    harness.get_as("7").await;
    let kept = harness.get_as("7").await;
    assert_eq!(kept.status, 202);
    let place = kept.header("location").to_owned();
    within("the end", async { while harness.get(&place).await.json()["state"] != "expired" {} })
        .await;
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn one_caller_cannot_fill_the_queue() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.queue = QueueSettings { requests_max: 10, caller_requests_max: 2, ..settings.queue };
    settings.categories.caller = ValueFrom::Header("x-user".parse().unwrap());
    let harness = Harness::timed(settings, &paced("queue").replace("second", "hour"));
    let mut statuses = Vec::new();
    for user in ["7", "7", "7", "7", "8", "8", "8", "8"] {
        statuses.push(harness.get_as(user).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 202, 202, 429, 200, 202, 202, 429]);
}

#[tokio::test]
async fn a_full_queue_refuses_requests() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.queue =
        QueueSettings { requests_max: 1, body_bytes_max: 10, ..QueueSettings::default() };
    let harness = Harness::timed(settings, &paced("queue").replace("second", "hour"));
    harness.get_as("7").await;
    let post = || Request::post("/").header("x-user", "7");
    assert_eq!(harness.one().await.send(post(), "eleven bytes").await.status, 413);
    assert_eq!(harness.one().await.send(post(), "few").await.status, 202);
    assert_refused_for_long(&harness.one().await.send(post(), "few").await);
}
