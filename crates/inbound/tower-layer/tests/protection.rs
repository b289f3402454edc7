//! Services behind the layer of overload protection: which requests are refused, with which answer, and
//! what comes back when.

mod support;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use support::{Answer, check, get, hello, layer, send, user_limits};
use tidegate_engine::{Clock, Timestamp};
use tidegate_overload::{
    Answer as Said, Category, Completion, Limiter, Mode, Pass, Protection, ProtectionSettings,
    TokioClock,
};
use tidegate_tower_layer::{ArrivingRequest, ProtectionLayer, UnservedRequest};
use tower::{Layer, Service, ServiceExt};

type Guard = Arc<Protection<TokioClock>>;
type Hello = Full<Bytes>;

/// Works on four requests at once, of which one is critical, and lets two wait.
fn guard(mode: Mode) -> Guard {
    let settings = ProtectionSettings {
        fleet_mode: Mode::Off,
        gate_mode: mode,
        worker_mode: mode,
        ..ProtectionSettings::new(4)
    };
    let clock = TokioClock::starting_at(Timestamp::from_secs(1_800_000_000));
    Arc::new(Protection::new(settings, clock))
}

/// Health checks are exempt, and payments critical.
fn arriving(request: &Parts) -> Option<ArrivingRequest> {
    match request.uri.path() {
        "/health" => None,
        "/pay" => Some(ArrivingRequest::new(Category::Critical)),
        _ => Some(ArrivingRequest::of(request)),
    }
}

fn protect(guard: &Guard) -> ProtectionLayer<TokioClock> {
    ProtectionLayer::new(Arc::clone(guard), arriving)
}

/// Requests that are inside and stay there.
async fn fill(guard: &Guard, count: u64) -> Vec<Pass<TokioClock>> {
    let mut inside = Vec::new();
    for _ in 0..count {
        let arrival = tidegate_overload::Arrival::Counted {
            category: Category::Critical,
            caller: tidegate_overload::Caller::default(),
            deadline: None,
        };
        let Ok(screened) = guard.screen(arrival) else { panic!("nothing is shed yet") };
        let Ok(pass) = guard.enter(screened).await else { panic!("there is room") };
        inside.push(pass);
    }
    assert_eq!(in_flight(guard), count);
    inside
}

fn in_flight(guard: &Guard) -> u64 {
    guard.gate().view().in_flight
}

/// How many requests succeeded, in all categories.
fn succeeded(guard: &Guard) -> u64 {
    guard.gauges().latencies.iter().map(tidegate_overload::Latency::count).sum()
}

fn problem(answer: &Answer) -> serde_json::Value {
    serde_json::from_str(&answer.body).expect("it is a problem")
}

#[tokio::test(start_paused = true)]
async fn a_full_service_answers_503_with_the_contract_of_every_door() {
    let guard = guard(Mode::ENFORCE);
    let service = protect(&guard).layer(hello());
    let _inside = fill(&guard, 4).await;
    let answer = send(&service, get("/")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.field("content-type"), Some("application/problem+json"));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    assert_eq!(answer.field("x-tidegate-shed"), Some("get"));
    let seconds: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&seconds), "{seconds}");
    assert!(answer.field("ratelimit").is_none() && answer.field("x-tidegate-saturated").is_none());
    let problem = problem(&answer);
    assert_eq!(
        (problem["code"].as_str(), &problem["status"]),
        (Some("queue_timeout"), &503.into())
    );
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    assert_eq!(problem["type"], kind);
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("Retry-After")));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_shed_gets_a_status_with_pushback() {
    let guard = guard(Mode::ENFORCE);
    let service = protect(&guard).layer(hello());
    let _inside = fill(&guard, 4).await;
    let call = Request::post("/").header("content-type", "application/grpc+proto");
    let answer = send(&service, call.body(()).unwrap()).await;
    assert_eq!((answer.status, answer.field("grpc-status")), (200, Some("14")));
    assert_eq!(answer.field("content-type"), Some("application/grpc+proto"));
    assert_eq!(answer.field("x-tidegate-shed"), Some("post"));
    let pushback: u64 = answer.field("grpc-retry-pushback-ms").unwrap().parse().unwrap();
    assert!((1_000..=3_000).contains(&pushback), "{pushback}");
    assert!(answer.field("grpc-status-details-bin").is_some() && answer.body.is_empty());
    assert!(answer.field("retry-after").is_none());
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_pass_a_full_service_and_are_not_counted() {
    let guard = guard(Mode::ENFORCE);
    let service = protect(&guard).layer(hello());
    let _inside = fill(&guard, 4).await;
    assert_eq!(send(&service, get("/health")).await.status, 200);
    assert_eq!((in_flight(&guard), succeeded(&guard)), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dark_layer_changes_no_answer_and_counts_what_it_would_refuse() {
    let guard = guard(Mode::Shadow);
    let service = protect(&guard).layer(hello());
    let _inside = fill(&guard, 10).await;
    let plain = send(&hello(), get("/")).await;
    for _ in 0..20 {
        let answer = send(&service, get("/")).await;
        assert_eq!(
            (answer.status, answer.fields(), &answer.body),
            (200, plain.fields(), &plain.body)
        );
    }
    let would = guard
        .decisions()
        .into_iter()
        .filter(|count| count.answer == Said::WouldReject && count.category == Category::Get);
    assert_eq!(would.map(|count| count.count).sum::<u64>(), 20);
}

#[tokio::test]
async fn a_place_is_held_until_the_body_has_ended() {
    let guard = guard(Mode::ENFORCE);
    let slow = tower::service_fn(|_: Request<()>| async {
        let chunks =
            ["a", "b"].map(|text| Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(text))));
        Ok::<_, Infallible>(Response::new(StreamBody::new(tokio_stream::iter(chunks))))
    });
    let service = protect(&guard).layer(slow);
    let Ok(answer) = service.clone().oneshot(get("/pay")).await;
    let mut body = answer.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!((in_flight(&guard), succeeded(&guard)), (1, 0));
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().await.is_none());
    assert_eq!((in_flight(&guard), succeeded(&guard)), (0, 1));

    let Ok(answer) = service.oneshot(get("/pay")).await;
    assert_eq!(in_flight(&guard), 1);
    drop(answer);
    assert_eq!((in_flight(&guard), succeeded(&guard)), (0, 1), "its caller had gone");
}

/// A service that answers with this status, or fails.
fn answering(
    status: Option<StatusCode>,
) -> impl Service<Request<()>, Response = Response<Hello>, Error = &'static str, Future: Send> + Clone
{
    tower::service_fn(move |_: Request<()>| async move {
        let mut answer = Response::new(Hello::default());
        *answer.status_mut() = status.ok_or("it broke")?;
        Ok(answer)
    })
}

#[tokio::test]
async fn what_failed_is_given_back_and_teaches_no_latency() {
    let guard = guard(Mode::ENFORCE);
    for status in [Some(StatusCode::INTERNAL_SERVER_ERROR), None] {
        let service = protect(&guard).layer(answering(status));
        let answer = service.oneshot(get("/pay")).await;
        assert_eq!(answer.ok().map(|answer| answer.status()), status);
        assert_eq!((in_flight(&guard), succeeded(&guard)), (0, 0));
    }
    let fine = protect(&guard).layer(answering(Some(StatusCode::NOT_FOUND)));
    assert!(fine.oneshot(get("/pay")).await.is_ok());
    assert_eq!((in_flight(&guard), succeeded(&guard)), (0, 1), "the caller's fault is no failure");
}

#[tokio::test(start_paused = true)]
async fn who_waits_enters_when_there_is_room_and_gives_its_place_up_when_it_goes() {
    let guard = guard(Mode::ENFORCE);
    let service = protect(&guard).layer(hello());
    let mut inside = fill(&guard, 4).await;
    let queued = || guard.gate().view().queued;
    let mut gone = Box::pin(service.clone().oneshot(get("/pay")));
    let mut waits = Box::pin(service.oneshot(get("/pay")));
    for request in [&mut gone, &mut waits] {
        let polled = std::future::poll_fn(|context| {
            std::task::Poll::Ready(request.as_mut().poll(context).is_ready())
        });
        assert!(!polled.await);
    }
    assert_eq!(queued(), 2);
    drop(gone);
    assert_eq!(queued(), 1);
    let first = inside.remove(0);
    first.finish(guard.clock().now(), Completion::Succeeded);
    let Ok(answer) = waits.await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn screened_before_its_limits_a_request_that_is_shed_spends_nothing() {
    let guard = guard(Mode::ENFORCE);
    let engine = user_limits("{algorithm: token_bucket, unit: hour, requests_per_unit: 3}");
    let protect = protect(&guard);
    let service = protect.screening().layer(layer(&engine).layer(protect.layer(hello())));
    let late = || Request::get("/").header("grpc-timeout", "0n").body(()).unwrap();
    for _ in 0..5 {
        let answer = send(&service, late()).await;
        assert_eq!((answer.status, problem(&answer)["code"].as_str()), (503, Some("deadline")));
    }
    for left in ["2", "1", "0"] {
        let answer = send(&service, get("/")).await;
        assert_eq!((answer.status, answer.field("x-ratelimit-remaining")), (200, Some(left)));
    }
    let over = send(&service, get("/")).await;
    assert_eq!((over.status, in_flight(&guard)), (429, 0));
    // Each was seen by the worker shedder once.
    let screened = guard.decisions().into_iter().filter(|count| count.limiter == Limiter::Worker);
    assert_eq!(screened.map(|count| count.count).sum::<u64>(), 9);
    let _inside = fill(&guard, 4).await;
    engine.clock().advance(std::time::Duration::from_secs(3_600));
    assert_eq!(send(&service, get("/")).await.status, 503);
    let spent = check(&engine, 0).tightest().map(|met| met.decision.remaining);
    assert_eq!(spent, Some(3), "what the gate refuses spends nothing either");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_for_its_turn_and_finds_no_place_gets_back_the_rest() {
    let guard = guard(Mode::ENFORCE);
    let engine = user_limits(
        "{algorithm: leaky_bucket, unit: second, requests_per_unit: 1, queue: 5}, \
         {name: daily, unit: day, requests_per_unit: 10}",
    );
    let service = layer(&engine).layer(protect(&guard).layer(hello()));
    assert_eq!(send(&service, get("/")).await.status, 200);
    let _inside = fill(&guard, 4).await;
    assert_eq!(send(&service, get("/")).await.status, 503);
    let left = check(&engine, 0).rulings()[1].decision.remaining;
    assert_eq!(left, 9, "the first paid, the second did not");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_took_nothing_of_a_request_that_is_shed_gives_nothing_back() {
    let guard = guard(Mode::ENFORCE);
    let engine = user_limits(
        "{name: hourly, unit: hour, requests_per_unit: 9}, \
         {name: dark, unit: hour, requests_per_unit: 1, mode: shadow}",
    );
    let service = layer(&engine).layer(protect(&guard).layer(hello()));
    assert_eq!(send(&service, get("/")).await.status, 200);
    let _inside = fill(&guard, 4).await;
    assert_eq!(send(&service, get("/")).await.status, 503);
    let met = check(&engine, 0);
    let left: Vec<u64> = met.rulings().iter().map(|met| met.decision.remaining).collect();
    assert_eq!(left, [8, 0]);
}

#[tokio::test]
async fn a_service_can_say_by_itself_that_it_did_not_serve() {
    let engine = user_limits("{algorithm: token_bucket, unit: hour, requests_per_unit: 3}");
    let busy = tower::service_fn(|request: Request<()>| async move {
        let mut answer = Response::new(Full::new(Bytes::new()));
        if request.uri().path() == "/busy" {
            answer.extensions_mut().insert(UnservedRequest);
        }
        Ok::<_, Infallible>(answer)
    });
    let service = layer(&engine).layer(busy);
    for (path, left) in [("/busy", 3), ("/busy", 3), ("/", 2)] {
        send(&service, get(path)).await;
        let met = check(&engine, 0);
        assert_eq!(met.tightest().map(|met| met.decision.remaining), Some(left), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_ones_own_keeps_its_words_and_gets_the_fields() {
    let guard = guard(Mode::ENFORCE);
    let is_get = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_get);
    let protect = protect(&guard).answer_refusals_with(move |request, refusal| {
        seen.store(refusal.category == Category::Get, Ordering::Relaxed);
        let mut answer = Response::new(Bytes::from(format!("not now: {}", request.uri.path())));
        *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        answer.headers_mut().insert("retry-after", 7.into());
        answer
    });
    let _inside = fill(&guard, 4).await;
    let answer = send(&protect.layer(hello()), get("/items")).await;
    assert_eq!((answer.status, answer.body.as_str()), (429, "not now: /items"));
    assert_eq!(answer.field("retry-after"), Some("7"));
    assert_eq!(answer.field("x-tidegate-shed"), Some("get"));
    assert!(is_get.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_saturated_fleet_is_told() {
    let settings = ProtectionSettings { worker_mode: Mode::Off, ..ProtectionSettings::new(10) };
    let clock = TokioClock::starting_at(Timestamp::from_secs(1_800_000_000));
    let guard = Arc::new(Protection::new(settings, clock));
    let now = guard.clock().now();
    let credits: Vec<_> =
        std::iter::from_fn(|| guard.fleet().try_enter(now, Category::Post)).collect();
    assert_eq!(credits.len(), 8, "a fifth is kept for critical requests");
    let service = protect(&guard).layer(hello());
    let answer = send(&service, get("/")).await;
    assert_eq!((answer.status, problem(&answer)["code"].as_str()), (503, Some("shed_fleet")));
    assert_eq!(answer.field("x-tidegate-saturated"), Some("fleet"));
    assert_eq!(send(&service, get("/pay")).await.status, 200);
}
