//! Turns in a leaky bucket: their pace, the longest wait, and turns of clients that disconnected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Request;
use tidegate_engine::{Clock, ManualClock, Nanos, Observer, Verb, Verdict};
use tidegate_gateway::{DelaySettings, GatewayParts, GatewaySettings, QueueSettings};
use tidegate_overload::{
    Answer as Said, Limiter, Mode, Protection, ProtectionSettings, SteadyClock,
};
use tokio::task::JoinHandle;

use crate::harness::{Harness, Reply, START, by_user, engine, to, until};
use crate::manual_time::ByHand;
use crate::upstream::Upstream;

const DRIP: &str =
    "{name: drip, algorithm: leaky_bucket, unit: second, requests_per_unit: 10, queue: 100}";
const DAILY: &str = "{name: daily, unit: day, requests_per_unit: 1000}";
/// Turns so far apart that none comes while a test runs.
const HOURLY: &str =
    "{name: drip, algorithm: leaky_bucket, unit: hour, requests_per_unit: 1, queue: 10}";

/// The same pace, in a line.
const PACED: &str = "{algorithm: token_bucket, unit: hour, requests_per_unit: 1, when_over: delay}";

const HOUR: Duration = Duration::from_secs(3_600);

fn waiting_at_most(wait_max: Duration) -> impl FnOnce(&mut GatewaySettings) {
    move |settings| settings.delay = DelaySettings { wait_max, ..DelaySettings::default() }
}

/// A gateway with these limits for each user, whose maximum wait allows for one turn but not for two.
fn hourly(upstream: &Upstream, limits: &str) -> Harness {
    let mut settings = by_user(to(&[upstream.url()]));
    waiting_at_most(HOUR * 3 / 2)(&mut settings);
    Harness::limited(settings, &format!("- {{key: user, limits: [{limits}]}}"))
}

/// Sends a request of a user that waits. Aborting it disconnects the client.
async fn waits(harness: &Harness, user: &str) -> JoinHandle<Reply> {
    // More than its maximum wait of an hour.
    let request = Request::get("/").header("x-user", user).header("x-timeout-ms", "4000000");
    let before = harness.gateway.read().waiting;
    let mut client = harness.one().await;
    let sent = tokio::spawn(async move { client.send(request, "").await });
    until("a request that waits", || harness.gateway.read().waiting == before + 1).await;
    sent
}

/// The units left of the limit with this index.
fn remaining(harness: &Harness, place: usize) -> u64 {
    crate::harness::remaining(&harness.engine, place)
}

#[tokio::test(start_paused = true)]
async fn requests_leave_a_leaky_bucket_at_a_constant_pace_in_their_order() {
    let hand = ByHand::new(DRIP, |_| {}).await;
    let sent = ["/0", "/1", "/2", "/3"].map(|path| hand.begin(path));
    hand.until_left(1).await;
    assert_eq!(hand.gateway.read().waiting, 3);
    for left in 2..=4 {
        hand.turn(100).await;
        hand.until_left(left).await;
    }
    let left = [("/0", 0), ("/1", 100), ("/2", 200), ("/3", 300)];
    assert_eq!(hand.left(), left.map(|(path, at)| (path.to_owned(), at)));
    for answer in sent {
        assert_eq!(answer.await.unwrap(), 200);
    }
    assert_eq!(hand.gateway.read().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn the_pace_stays_at_twice_the_load_and_refused_requests_are_not_charged() {
    let limits = format!("{DRIP}, {DAILY}");
    let hand = ByHand::new(&limits, waiting_at_most(Duration::from_millis(300))).await;
    let mut sent = Vec::new();
    for round in 0..100 {
        sent.push(hand.begin("/"));
        hand.until_left(round / 2 + 1).await;
        hand.turn(50).await;
    }
    hand.until_left(51).await;
    for left in 52..=51 + hand.gateway.read().waiting {
        hand.turn(100).await;
        hand.until_left(left).await;
    }
    let left: Vec<u128> = hand.left().into_iter().map(|(_, at)| at).collect();
    assert!(left.windows(2).all(|pair| pair[1] - pair[0] == 100), "{left:?}");
    let mut refused = 0;
    for answer in sent {
        let status = answer.await.unwrap();
        assert!(status == 200 || status == 429, "{status}");
        refused += usize::from(status == 429);
    }
    assert_eq!(refused, 100 - left.len());
    assert_eq!(hand.remaining(1), 1_000 - u64::try_from(left.len()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_leaves_its_turn_to_the_next_and_is_refunded() {
    let hand = ByHand::new(&format!("{DRIP}, {DAILY}"), |_| {}).await;
    let sent = ["/0", "/1", "/2", "/3"].map(|path| hand.begin(path));
    hand.until_left(1).await;
    assert_eq!(hand.remaining(1), 996);
    sent[1].abort();
    hand.until("leaving the turn", |hand| hand.gateway.read().waiting == 2).await;
    assert_eq!(hand.remaining(1), 997);
    let next = hand.begin("/next");
    for left in 2..=4 {
        hand.turn(100).await;
        hand.until_left(left).await;
    }
    // The other requests keep their turns.
    let left = [("/0", 0), ("/next", 100), ("/2", 200), ("/3", 300)];
    assert_eq!(hand.left(), left.map(|(path, at)| (path.to_owned(), at)));
    assert_eq!(next.await.unwrap(), 200);
    assert_eq!(hand.gateway.read().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn an_asynchronous_store_gives_the_same_turns() {
    let hand = ByHand::elsewhere(&format!("{DRIP}, {DAILY}")).await;
    let mut sent = vec![hand.begin("/0")];
    hand.until_left(1).await;
    for waiting in 1..=2 {
        sent.push(hand.begin(&format!("/{waiting}")));
        hand.until("a turn", |hand| hand.gateway.read().waiting == waiting).await;
    }
    sent.remove(1).abort();
    hand.until("leaving the turn", |hand| hand.gateway.read().waiting == 1).await;
    sent.push(hand.begin("/next"));
    hand.until("a turn", |hand| hand.gateway.read().waiting == 2).await;
    for left in 2..=3 {
        hand.turn(100).await;
        hand.until_left(left).await;
    }
    let left = [("/0", 0), ("/next", 100), ("/2", 200)];
    assert_eq!(hand.left(), left.map(|(path, at)| (path.to_owned(), at)));
    for answer in sent {
        assert_eq!(answer.await.unwrap(), 200);
    }
    assert_eq!(hand.remaining(1).await, 997);
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_leaves_at_its_turn_too() {
    let limits = format!("{}, {DAILY}", DRIP.replace('}', ", when_over: queue}"));
    let hand = ByHand::new(&limits, waiting_at_most(Duration::from_millis(150))).await;
    let sent = ["/0", "/1"].map(|path| hand.begin(path));
    hand.until_left(1).await;
    // Its turn is in 200 ms, beyond the maximum wait; 50 ms later it is within.
    assert_eq!(hand.begin("/2").await.unwrap(), 202);
    hand.until("standing in line", |hand| hand.gateway.read().waiting == 2).await;
    assert_eq!(hand.remaining(1), 998);
    hand.turn(50).await;
    hand.until("asking again", |hand| hand.remaining(1) == 997).await;
    hand.turn(50).await;
    hand.until_left(2).await;
    hand.turn(100).await;
    hand.until_left(3).await;
    let left = [("/0", 0), ("/1", 100), ("/2", 200)];
    assert_eq!(hand.left(), left.map(|(path, at)| (path.to_owned(), at)));
    for answer in sent {
        assert_eq!(answer.await.unwrap(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_that_the_gate_refuses_is_tried_again() {
    let mut protecting = ProtectionSettings::new(1);
    protecting.fleet_mode = Mode::Off;
    protecting.gate.reserved_percent = 0;
    protecting.gate.burst_wait_max = Nanos::ZERO;
    let guard = Arc::new(Protection::new(protecting, SteadyClock::starting_at(START)));
    let limits = "{algorithm: token_bucket, unit: second, requests_per_unit: 1, burst: 1, \
                  when_over: queue}";
    let hand = ByHand::protected(limits, Arc::clone(&guard)).await;
    let first = hand.begin("/slow");
    hand.until_left(1).await;
    assert_eq!(hand.begin("/2").await.unwrap(), 202);
    hand.until("standing in line", |hand| hand.gateway.read().waiting == 1).await;
    hand.turn(1_000).await;
    let refused = |_: &ByHand| {
        let gate = guard.decisions().into_iter().filter(|count| count.limiter == Limiter::Gate);
        gate.filter(|count| count.answer == Said::Reject).any(|count| count.count > 0)
    };
    hand.turn(1).await;
    hand.until("a refusal at the gate", refused).await;
    hand.let_go();
    assert_eq!(first.await.unwrap(), 200);
    hand.until("an empty gate", |_| guard.gate().view().in_flight == 0).await;
    assert_eq!(hand.left().len(), 1);
    // A `get` request gets a retry time of about three seconds.
    hand.turn(10_000).await;
    hand.until_left(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_is_served_regardless_of_its_clients_timeout() {
    let mut protecting = ProtectionSettings::new(1);
    protecting.fleet_mode = Mode::Off;
    let guard = Arc::new(Protection::new(protecting, SteadyClock::starting_at(START)));
    let limits = "{algorithm: token_bucket, unit: second, requests_per_unit: 1, burst: 1, \
                  when_over: queue}";
    let hand = ByHand::protected(limits, Arc::clone(&guard)).await;
    assert_eq!(hand.begin("/1").await.unwrap(), 200);
    let impatient = Request::get("/2").header("grpc-timeout", "50m");
    assert_eq!(hand.send(impatient).await.unwrap(), 202);
    // Overload protection uses the real clock.
    let too_late = guard.clock().now().after(Nanos::from_millis(50));
    hand.until("its deadline", |_| guard.clock().now() > too_late).await;
    hand.turn(1_000).await;
    hand.until_left(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_whose_turn_is_too_late_expires_and_is_not_charged() {
    let limits = format!("{}, {DAILY}", DRIP.replace('}', ", when_over: queue}"));
    let hand = ByHand::new(&limits, |settings| {
        waiting_at_most(Duration::from_millis(150))(settings);
        let wait_max = Duration::from_millis(120);
        settings.queue = QueueSettings { wait_max, ..QueueSettings::default() };
    })
    .await;
    let _sent = ["/0", "/1"].map(|path| hand.begin(path));
    hand.until_left(1).await;
    assert_eq!(hand.begin("/2").await.unwrap(), 202);
    hand.until("standing in line", |hand| hand.gateway.read().waiting == 2).await;
    hand.turn(50).await;
    hand.until("its end", |hand| hand.gateway.read().waiting == 1).await;
    assert_eq!(hand.remaining(1), 998);
}

#[tokio::test]
async fn a_turn_that_is_too_far_off_is_refused_and_charges_nothing() {
    let upstream = Upstream::start().await;
    let harness = hourly(&upstream, &format!("{HOURLY}, {DAILY}"));
    assert_eq!(harness.get_as("7").await.status, 200);
    let _waiting = waits(&harness, "7").await;
    assert_eq!(remaining(&harness, 1), 998);
    // Two hours are half an hour more than the maximum wait.
    let refused = harness.get_as("7").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "1800"));
    assert_eq!(refused.json()["code"], "rate_limited");
    assert!(refused.header("ratelimit").starts_with("\"drip\""), "{refused:?}");
    for _ in 0..3 {
        assert_eq!(harness.get_as("7").await.status, 429);
    }
    assert_eq!(remaining(&harness, 1), 998);
    assert_eq!((harness.count("rate_limited"), harness.count("served")), (4, 1));
    assert_eq!((upstream.seen().len(), harness.gateway.read().waiting), (1, 1));
}

/// Counts requests that are turned away.
#[derive(Default)]
struct TurnedAway(AtomicU64);

impl Observer for TurnedAway {
    fn observe(&self, _: Verb, _: &tidegate_engine::Request<'_>, _: &Verdict) {}

    fn observe_turned_away(&self, _: &tidegate_engine::Request<'_>, verdict: &Verdict) {
        self.0.fetch_add(u64::from(!verdict.is_admitted()), Ordering::Relaxed);
    }
}

#[tokio::test]
async fn an_observer_sees_requests_that_may_not_wait() {
    let upstream = Upstream::start().await;
    let turned_away = Arc::new(TurnedAway::default());
    let rules = format!("- {{key: user, limits: [{HOURLY}]}}");
    let engine = Arc::into_inner(engine(&rules, ManualClock::at(START))).unwrap();
    let engine = Arc::new(engine.with_observer(Arc::clone(&turned_away) as Arc<dyn Observer>));
    // The default is ten seconds.
    let settings = by_user(to(&[upstream.url()]));
    let harness = Harness::with(engine, settings, GatewayParts::default(), |endpoint| endpoint);
    let reply = [harness.get_as("7").await.status, harness.get_as("7").await.status];
    assert_eq!(reply, [200, 429]);
    assert_eq!(turned_away.0.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_its_turn_to_the_next_and_frees_its_slot() {
    let flight = "{name: flight, algorithm: concurrency, requests_per_unit: 1}";
    let upstream = Upstream::start().await;
    let harness = hourly(&upstream, &format!("{HOURLY}, {DAILY}, {flight}"));
    assert_eq!(harness.get_as("7").await.status, 200);
    until("its slot", || remaining(&harness, 2) == 1).await;
    for gone in 1..=3 {
        // Each takes the turn of the one before; otherwise it would be refused.
        let waiting = waits(&harness, "7").await;
        assert_eq!((remaining(&harness, 1), remaining(&harness, 2)), (998, 0));
        let refused = harness.get_as("7").await;
        assert_eq!(refused.json()["code"], "concurrency_limited");
        waiting.abort();
        until("its end", || harness.count("gone") == gone).await;
        until("its turn", || harness.gateway.read().waiting == 0).await;
        until("its slot", || remaining(&harness, 2) == 1).await;
        assert_eq!(remaining(&harness, 1), 999);
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn no_request_waits_longer_than_its_client_or_its_route_allows() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.categories.timeout_field = Some("x-timeout-ms".parse().unwrap());
    waiting_at_most(HOUR * 3 / 2)(&mut settings);
    let rules = format!(
        "- {{key: user, limits: [{HOURLY}]}}\n- {{key: user, value: '8', limits: [{PACED}]}}"
    );
    let harness = Harness::limited(settings.clone(), &rules);
    // Waiting for its turn, and in a line.
    for (user, retry) in [("7", "1800"), ("8", "3600")] {
        assert_eq!(harness.get_as(user).await.status, 200);
        let hurried = Request::get("/").header("x-user", user).header("x-timeout-ms", "1800000");
        let refused = harness.send(hurried).await;
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, retry));
    }
    // A client with enough time takes the turn that was left.
    waits(&harness, "7").await.abort();

    settings.upstreams[0].timeouts.total = Some(HOUR / 2);
    let harness = Harness::limited(settings, &rules);
    for (user, retry) in [("7", "1800"), ("8", "3600")] {
        assert_eq!(harness.get_as(user).await.status, 200);
        assert_eq!(harness.get_as(user).await.header("retry-after"), retry);
    }
}

#[tokio::test]
async fn clients_that_disconnect_in_a_line_are_counted_as_gone() {
    let upstream = Upstream::start().await;
    let harness = hourly(&upstream, PACED);
    assert_eq!(harness.get_as("7").await.status, 200);
    let waiting = waits(&harness, "7").await;
    waiting.abort();
    until("its end", || harness.count("gone") == 1).await;
    until("its place", || harness.gateway.read().waiting == 0).await;
}

#[tokio::test]
async fn requests_in_lines_and_waiting_for_turns_share_one_bound() {
    let upstream = Upstream::start().await;
    let mut settings = by_user(to(&[upstream.url()]));
    settings.delay = DelaySettings { waiting_max: 2, line_max: 100, wait_max: HOUR * 100 };
    let rules = format!(
        "- {{key: user, limits: [{HOURLY}]}}\n- {{key: user, value: '8', limits: [{PACED}]}}"
    );
    let harness = Harness::limited(settings, &rules);
    for user in ["7", "8"] {
        assert_eq!(harness.get_as(user).await.status, 200);
    }
    let _waiting = [waits(&harness, "7").await, waits(&harness, "8").await];
    for user in ["7", "8"] {
        assert_eq!(harness.get_as(user).await.status, 429);
    }
    assert_eq!(harness.gateway.read().waiting, 2);
}
