//! Retries, holds, deadlines and drops of single calls, on paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use tidegate_client::{
    Deadline, Outcome, PacingError, PacingEvent, PacingLayer, PacingSettings, ReplayBody, Scope,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};

type Call = Request<ReplayBody<Full<Bytes>>>;
/// What a scripted service answers to its calls, in order; the last answer repeats.
type Answers = Vec<Result<Response<()>, &'static str>>;

struct Script {
    answers: Mutex<Answers>,
    calls: AtomicU32,
    bodies: Mutex<Vec<Bytes>>,
}

fn script(mut answers: Answers) -> Arc<Script> {
    answers.reverse();
    Arc::new(Script {
        answers: Mutex::new(answers),
        calls: AtomicU32::new(0),
        bodies: Mutex::default(),
    })
}

impl Script {
    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    fn client(
        self: &Arc<Self>,
        layer: &PacingLayer,
    ) -> impl Service<
        Request<Full<Bytes>>,
        Response = Response<()>,
        Error = PacingError<&'static str>,
        Future: Send,
    > + Clone
    + Send
    + 'static {
        let script = Arc::clone(self);
        layer.layer(service_fn(move |call: Call| {
            let script = Arc::clone(&script);
            async move {
                script.calls.fetch_add(1, Ordering::Relaxed);
                let body = call.into_body().collect().await.unwrap().to_bytes();
                script.bodies.lock().push(body);
                let mut answers = script.answers.lock();
                let answer =
                    if answers.len() > 1 { answers.pop() } else { answers.last().map(copy) };
                answer.expect("a script has an answer")
            }
        }))
    }
}

fn copy(answer: &Result<Response<()>, &'static str>) -> Result<Response<()>, &'static str> {
    let answer = answer.as_ref().map_err(|error| *error)?;
    let mut copy = Response::new(());
    *copy.status_mut() = answer.status();
    *copy.headers_mut() = answer.headers().clone();
    Ok(copy)
}

fn answer(status: u16, fields: &[(&'static str, &str)]) -> Result<Response<()>, &'static str> {
    let mut answer = Response::builder().status(status);
    for (name, value) in fields {
        answer = answer.header(*name, *value);
    }
    Ok(answer.body(()).expect("valid fields"))
}

fn request(method: &str, body: &'static str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri("http://api.test/")
        .body(Full::from(body))
        .expect("a valid request")
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_repeated_after_the_stated_time_and_never_before() {
    let service = script(vec![answer(429, &[("retry-after", "3")]), answer(200, &[])]);
    let started = Instant::now();
    let got = service.client(&PacingLayer::default()).oneshot(request("GET", "")).await.unwrap();
    assert_eq!((got.status(), Outcome::of(&got)), (StatusCode::OK, Outcome::Answered));
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(3) && took <= Duration::from_millis(5_010), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_is_sent_again_whole() {
    let service = script(vec![answer(503, &[]), answer(200, &[])]);
    let mut call = request("POST", "order");
    call.headers_mut().insert("idempotency-key", "1".parse().unwrap());
    let _ = service.client(&PacingLayer::default()).oneshot(call).await.unwrap();
    assert_eq!(*service.bodies.lock(), ["order", "order"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_might_be_done_twice_is_not_repeated() {
    let service = script(vec![answer(503, &[])]);
    let got =
        service.client(&PacingLayer::default()).oneshot(request("POST", "order")).await.unwrap();
    assert_eq!(Outcome::of(&got), Outcome::Short { retry_after: None });
    assert_eq!(service.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_forbids_retries_is_not_asked_again() {
    let service =
        script(vec![answer(200, &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1")])]);
    let got = service.client(&PacingLayer::default()).oneshot(request("GET", "")).await.unwrap();
    assert_eq!(Outcome::of(&got), Outcome::Short { retry_after: None });
    assert_eq!(service.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_repeated_and_its_error_returned_at_last() {
    let service = script(vec![Err("reset")]);
    let got = service.client(&PacingLayer::default()).oneshot(request("GET", "")).await;
    assert_eq!(got.unwrap_err(), PacingError::Inner("reset"));
    assert_eq!(service.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_asked_to_wait_is_closed_for_every_call() {
    let service = script(vec![answer(429, &[("retry-after", "30")]), answer(200, &[])]);
    let settings = PacingSettings { attempts_max: 1, ..PacingSettings::default() };
    let client = service.client(&PacingLayer::new(settings));
    let started = Instant::now();
    let _ = client.clone().oneshot(request("GET", "")).await.unwrap();
    let mut others = JoinSet::new();
    for _ in 0..20 {
        others.spawn(client.clone().oneshot(request("GET", "")));
    }
    assert!(others.join_all().await.iter().all(Result::is_ok));
    assert!(started.elapsed() >= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_settings_fails_at_once_and_says_how_long() {
    let service = script(vec![answer(429, &[("retry-after", "3600")])]);
    let client = service.client(&PacingLayer::new(PacingSettings::interactive()));
    let got = client.clone().oneshot(request("GET", "")).await.unwrap();
    assert_eq!(
        Outcome::of(&got),
        Outcome::Refused { retry_after: Some(Duration::from_secs(3_600)) }
    );
    let started = Instant::now();
    let error = client.oneshot(request("GET", "")).await.unwrap_err();
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(matches!(error, PacingError::Held { .. }), "{error}");
    assert!(error.retry_after().unwrap() >= Duration::from_secs(3_600));
    assert_eq!(service.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_that_would_end_after_the_deadline() {
    let service = script(vec![answer(429, &[("retry-after", "5")])]);
    let client = service.client(&PacingLayer::default());
    let mut call = request("GET", "");
    call.extensions_mut().insert(Deadline(Instant::now() + Duration::from_secs(2)));
    let started = Instant::now();
    let got = client.clone().oneshot(call).await.unwrap();
    assert_eq!(Outcome::of(&got), Outcome::Refused { retry_after: Some(Duration::from_secs(5)) });
    let mut call = request("GET", "");
    call.extensions_mut().insert(Deadline(Instant::now() + Duration::from_secs(2)));
    let error = client.oneshot(call).await.unwrap_err();
    assert!(matches!(error, PacingError::Deadline { .. }), "{error}");
    assert_eq!((service.calls(), started.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_met_with_few_calls() {
    let works = Arc::new(AtomicBool::new(true));
    let calls = Arc::new(AtomicU32::new(0));
    let service = {
        let (works, calls) = (Arc::clone(&works), Arc::clone(&calls));
        service_fn(move |_: Call| {
            calls.fetch_add(1, Ordering::Relaxed);
            let status = if works.load(Ordering::Relaxed) { 200 } else { 503 };
            async move { answer(status, &[]) }
        })
    };
    let client = PacingLayer::default().layer(service);
    let offer = async |seconds: u32| {
        let mut offered = JoinSet::new();
        for _ in 0..seconds * 100 {
            offered.spawn(client.clone().oneshot(request("GET", "")));
            sleep(Duration::from_millis(10)).await;
        }
        let results = offered.join_all().await;
        let served = results.iter().filter(
            |result| matches!(result, Ok(answer) if Outcome::of(answer) == Outcome::Answered),
        );
        served.count()
    };
    offer(30).await;
    works.store(false, Ordering::Relaxed);
    calls.store(0, Ordering::Relaxed);
    offer(60).await;
    let sent = calls.swap(0, Ordering::Relaxed);
    println!("{sent} calls sent of 6000 offered");
    assert!(sent <= 6_000 * 11 / 10, "{sent}");
    offer(60).await;
    let sent = calls.load(Ordering::Relaxed);
    println!("{sent} calls sent of 6000 offered in the second minute");
    assert!(sent <= 6_000 * 2 / 10, "{sent}");
    works.store(true, Ordering::Relaxed);
    offer(60).await;
    let served = offer(10).await;
    assert!(served >= 950, "{served} of 1000 a minute after the recovery");
}

#[tokio::test(start_paused = true)]
async fn the_number_in_flight_is_learned_from_refusals() {
    let (in_flight, refused) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let service = {
        let (in_flight, refused) = (Arc::clone(&in_flight), Arc::clone(&refused));
        service_fn(move |_: Call| {
            let (in_flight, refused) = (Arc::clone(&in_flight), Arc::clone(&refused));
            async move {
                let over = in_flight.fetch_add(1, Ordering::Relaxed) >= 20;
                sleep(Duration::from_millis(if over { 1 } else { 50 })).await;
                in_flight.fetch_sub(1, Ordering::Relaxed);
                refused.fetch_add(u32::from(over), Ordering::Relaxed);
                let left = if over { "0" } else { "1" };
                answer(
                    if over { 429 } else { 200 },
                    &[
                        ("ratelimit-policy", "\"slots\";qu=\"concurrent-requests\""),
                        ("ratelimit", &format!("\"slots\";r={left}")),
                    ],
                )
            }
        })
    };
    let settings = PacingSettings { attempts_max: 1, ..PacingSettings::default() };
    let client = PacingLayer::new(settings).layer(service);
    let mut workers = JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        workers.spawn(async move {
            for _ in 0..50 {
                let _ = client.clone().oneshot(request("GET", "")).await;
            }
        });
    }
    workers.join_all().await;
    let refused = refused.load(Ordering::Relaxed);
    println!("{refused} of 5000 refused");
    assert!(refused <= 600, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn callers_that_go_away_free_their_place() {
    let service = script(vec![
        answer(200, &[("ratelimit-policy", "\"a\";q=10;w=1"), ("ratelimit", "\"a\";r=0;t=1")]),
        answer(200, &[("ratelimit-policy", "\"a\";q=10;w=1"), ("ratelimit", "\"a\";r=9;t=1")]),
    ]);
    let client = service.client(&PacingLayer::default());
    let _ = client.clone().oneshot(request("GET", "")).await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..1_000 {
        waiting.spawn(client.clone().oneshot(request("GET", "")));
    }
    sleep(Duration::from_millis(100)).await;
    drop(waiting);
    let started = Instant::now();
    let _ = client.oneshot(request("GET", "")).await.unwrap();
    assert!(started.elapsed() <= Duration::from_millis(1_100), "{:?}", started.elapsed());
    assert_eq!(service.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn scopes_are_held_apart_and_events_name_the_target() {
    let service = script(vec![answer(429, &[("retry-after", "3600")]), answer(200, &[])]);
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let layer =
        PacingLayer::new(PacingSettings { attempts_max: 1, ..PacingSettings::interactive() })
            .scope(|parts| {
                Scope::new([parts.headers.get("x-api-key").map(http::HeaderValue::as_bytes)])
            })
            .observer(move |target: &str, event| seen.lock().push((target.to_owned(), event)));
    let client = service.client(&layer);
    let with_key = |key: &'static str| {
        let mut call = request("GET", "");
        call.headers_mut().insert("x-api-key", key.parse().unwrap());
        call
    };
    let _ = client.clone().oneshot(with_key("a")).await.unwrap();
    assert!(client.clone().oneshot(with_key("a")).await.is_err());
    assert!(client.clone().oneshot(with_key("b")).await.is_ok());
    let events = events.lock();
    assert!(events.iter().all(|(target, _)| target == "api.test"));
    let kinds: Vec<_> = events.iter().map(|(_, event)| *event).collect();
    assert!(
        matches!(
            kinds[..],
            [PacingEvent::Sent, PacingEvent::Held(_), PacingEvent::NotSent, PacingEvent::Sent,]
        ),
        "{kinds:?}"
    );
}
