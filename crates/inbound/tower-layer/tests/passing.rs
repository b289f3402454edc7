//! What happens to requests that pass: turns, slots, costs, readiness.

mod support;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use support::{TestEngine, check, get, hello, layer, send, user_limits};
use tidegate_tower_layer::RateLimitLayer;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};

const ONE_IN_FLIGHT: &str = "{name: flight, algorithm: concurrency, requests_per_unit: 1}";

/// Whether user 7 holds the only slot. Asks for no slot itself.
fn is_held(engine: &TestEngine) -> bool {
    check(engine, 0).tightest().expect("one limit").decision.remaining == 0
}

/// Chunks, then perhaps an error; never says that it is at its end.
struct Chunks {
    chunks: Vec<Result<&'static str, &'static str>>,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.chunks.is_empty() {
            return Poll::Ready(None);
        }
        let chunk = self.chunks.remove(0);
        Poll::Ready(Some(chunk.map(|text| Frame::data(Bytes::from_static(text.as_bytes())))))
    }
}

async fn chunked(
    engine: &Arc<TestEngine>,
    chunks: &[Result<&'static str, &'static str>],
) -> Pin<Box<dyn Body<Data = Bytes, Error = &'static str>>> {
    let chunks = chunks.to_vec();
    let inner = tower::service_fn(move |_request: Request<()>| {
        let chunks = chunks.clone();
        async { Ok::<_, Infallible>(Response::new(Chunks { chunks })) }
    });
    let Ok(answer) = layer(engine).layer(inner).oneshot(get("/")).await;
    assert_eq!(answer.status(), 200);
    Box::pin(answer.into_body())
}

#[tokio::test]
async fn a_slot_is_held_until_the_body_has_ended() {
    let engine = user_limits(ONE_IN_FLIGHT);
    let mut body = chunked(&engine, &[Ok("a"), Ok("b")]).await;
    assert!(is_held(&engine));
    assert_eq!(send(&layer(&engine).layer(hello()), get("/")).await.status, 429);
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap();
    assert!(is_held(&engine));
    assert!(body.frame().await.is_none());
    assert!(!is_held(&engine));
    drop(body);
    assert_eq!(send(&layer(&engine).layer(hello()), get("/")).await.status, 200);
}

#[tokio::test]
async fn a_slot_is_held_for_three_times_its_time_to_live_and_is_free_afterwards() {
    let engine = user_limits(&ONE_IN_FLIGHT.replace('}', ", time_to_live: 10s}"));
    let body = chunked(&engine, &[Ok("a"), Ok("b")]).await;
    for _ in 0..3 {
        engine.clock().advance(Duration::from_secs(10));
        assert_eq!(send(&layer(&engine).layer(hello()), get("/")).await.status, 429);
    }
    drop(body);
    assert_eq!(send(&layer(&engine).layer(hello()), get("/")).await.status, 200);
}

#[tokio::test]
async fn a_slot_comes_back_when_the_body_is_dropped() {
    let engine = user_limits(ONE_IN_FLIGHT);
    let mut body = chunked(&engine, &[Ok("a"), Ok("b")]).await;
    body.frame().await.unwrap().unwrap();
    assert!(is_held(&engine));
    drop(body);
    assert!(!is_held(&engine));
}

#[tokio::test]
async fn a_slot_comes_back_when_the_body_fails() {
    let engine = user_limits(ONE_IN_FLIGHT);
    let mut body = chunked(&engine, &[Err("broken pipe")]).await;
    assert_eq!(body.frame().await.unwrap().unwrap_err(), "broken pipe");
    assert!(!is_held(&engine));
}

#[tokio::test]
async fn a_slot_comes_back_with_the_last_chunk_of_a_body_that_knows_its_end() {
    let engine = user_limits(ONE_IN_FLIGHT);
    let Ok(answer) = layer(&engine).layer(hello()).oneshot(get("/")).await;
    let mut body = answer.into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(is_held(&engine));
    body.frame().await.unwrap().unwrap();
    assert!(body.is_end_stream() && !is_held(&engine));
}

#[tokio::test]
async fn an_empty_answer_holds_nothing() {
    let engine = user_limits(ONE_IN_FLIGHT);
    let inner = tower::service_fn(|_request: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let Ok(answer) = layer(&engine).layer(inner).oneshot(get("/")).await;
    assert!(answer.body().is_end_stream() && !is_held(&engine));
}

#[tokio::test]
async fn a_slot_comes_back_when_the_service_fails() {
    let engine = user_limits(ONE_IN_FLIGHT);
    let seen = Arc::clone(&engine);
    let inner = tower::service_fn(move |_request: Request<()>| {
        let held = is_held(&seen);
        async move { if held { Err("no such shelf") } else { Ok(Response::new(String::new())) } }
    });
    let answer = layer(&engine).layer(inner).oneshot(get("/")).await;
    assert_eq!(answer.unwrap_err(), "no such shelf");
    assert!(!is_held(&engine));
}

#[tokio::test]
async fn a_slot_comes_back_when_the_service_panics() {
    let engine = user_limits(ONE_IN_FLIGHT);
    let inner = tower::service_fn(|request: Request<()>| async move {
        assert_ne!(request.uri().path(), "/", "the shelf fell");
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let task = tokio::spawn(layer(&engine).layer(inner).oneshot(get("/")));
    assert!(task.await.unwrap_err().is_panic());
    assert!(!is_held(&engine));
}

#[tokio::test]
async fn a_slot_comes_back_when_the_client_goes_away() {
    let engine = user_limits(ONE_IN_FLIGHT);
    let inner = tower::service_fn(|_request: Request<()>| {
        std::future::pending::<Result<Response<String>, Infallible>>()
    });
    let mut answer = Box::pin(layer(&engine).layer(inner).oneshot(get("/")));
    assert!(answer.as_mut().poll(&mut context()).is_pending());
    assert!(is_held(&engine));
    drop(answer);
    assert!(!is_held(&engine));
}

fn context() -> Context<'static> {
    Context::from_waker(std::task::Waker::noop())
}

/// Answers with the instant at which it was called.
fn timed(
    since: Instant,
) -> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    tower::service_fn(move |_request: Request<()>| {
        let at = since.elapsed().as_millis().to_string();
        async move { Ok(Response::new(at)) }
    })
}

const TEN_A_SECOND: &str =
    "{name: drip, algorithm: leaky_bucket, unit: second, requests_per_unit: 10, queue: 3}";

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_lets_requests_through_at_a_constant_pace() {
    let service = layer(&user_limits(TEN_A_SECOND)).layer(timed(Instant::now()));
    let all = tokio::join!(
        send(&service, get("/")),
        send(&service, get("/")),
        send(&service, get("/")),
        send(&service, get("/")),
        send(&service, get("/")),
    );
    let passed = [&all.0, &all.1, &all.2, &all.3].map(|answer| answer.body.as_str());
    assert_eq!(passed, ["0", "100", "200", "300"]);
    assert_eq!(all.4.status, 429);
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_for_a_turn_when_waiting_is_off() {
    let layer = layer(&user_limits(TEN_A_SECOND)).wait_for_turn(false);
    let service = layer.layer(timed(Instant::now()));
    for _ in 0..4 {
        assert_eq!(send(&service, get("/")).await.body, "0");
    }
    assert_eq!(send(&service, get("/")).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn a_request_cancelled_while_it_waits_never_reaches_the_service() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let inner = tower::service_fn(move |_request: Request<()>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Infallible>(Response::new(String::new())) }
    });
    let both = format!("{TEN_A_SECOND}, {{algorithm: concurrency, requests_per_unit: 2}}");
    let engine = user_limits(&both);
    let service = layer(&engine).layer(inner);
    send(&service, get("/")).await;
    let waiting = service.clone().oneshot(get("/"));
    let waited = tokio::time::timeout(Duration::from_millis(50), waiting).await;
    assert!(waited.is_err(), "its turn is after 100 ms");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let slots = check(&engine, 0).rulings()[1].decision.remaining;
    assert_eq!(slots, 2, "the slot of the one that gave up came back");
}

#[tokio::test]
async fn an_exempt_path_is_neither_limited_nor_counted() {
    let service = layer(&user_limits("{unit: day, requests_per_unit: 1}")).layer(hello());
    for _ in 0..3 {
        let answer = send(&service, get("/health")).await;
        assert_eq!((answer.status, answer.fields().len()), (200, 0));
    }
    assert_eq!(send(&service, get("/")).await.status, 200);
    assert_eq!(send(&service, get("/")).await.status, 429);
    assert_eq!(send(&service, get("/health")).await.status, 200);
}

#[tokio::test]
async fn a_cost_counts_as_that_many_requests() {
    let service = layer(&user_limits("{unit: day, requests_per_unit: 10}")).layer(hello());
    let costing = |cost: &str| Request::get("/").header("x-cost", cost).body(()).unwrap();
    let answer = send(&service, costing("7")).await;
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("3"));
    assert_eq!(send(&service, costing("4")).await.status, 429);
    assert_eq!(send(&service, costing("3")).await.status, 200);
}

#[tokio::test]
async fn a_limit_in_shadow_refuses_no_request_and_shows_nothing() {
    let engine = user_limits("{unit: day, requests_per_unit: 0, mode: shadow}");
    let answer = send(&layer(&engine).layer(hello()), get("/")).await;
    assert_eq!((answer.status, answer.fields().len()), (200, 0));
}

#[tokio::test]
async fn while_switched_off_everything_passes_bare() {
    let engine = user_limits("{unit: day, requests_per_unit: 0}");
    engine.switch_off(true);
    let answer = send(&layer(&engine).layer(hello()), get("/")).await;
    assert_eq!((answer.status, answer.fields().len()), (200, 0));
}

#[tokio::test]
async fn one_limit_by_key_needs_no_rule_file() {
    let by_path = |request: &http::request::Parts| match request.uri.path() {
        "/free" => None,
        path => Some(path.to_owned()),
    };
    let layer = RateLimitLayer::by_key(
        "algorithm: token_bucket, unit: year, requests_per_unit: 1",
        by_path,
    )
    .unwrap();
    let service = layer.layer(hello());
    for (path, status) in [("/a", 200), ("/b", 200), ("/a", 429), ("/free", 200), ("/free", 200)] {
        assert_eq!(send(&service, get(path)).await.status, status, "{path}");
    }
    let refused = send(&service, get("/b")).await;
    assert_eq!(refused.field("ratelimit-policy"), Some("\"caller\";q=1;w=31536000"));
}

#[test]
fn a_limit_that_is_none_is_explained() {
    let error = RateLimitLayer::by_key("unit: fortnight", |_| None).unwrap_err();
    assert!(error.to_string().contains("`fortnight` is not a unit of time"), "{error}");
}

/// Is ready for one request at a time, and panics when called unready.
#[derive(Debug)]
struct OneAtATime {
    ready: bool,
    asked: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl Clone for OneAtATime {
    /// A clone has to become ready by itself.
    fn clone(&self) -> Self {
        let (asked, calls) = (Arc::clone(&self.asked), Arc::clone(&self.calls));
        OneAtATime { ready: false, asked, calls }
    }
}

impl Service<Request<()>> for OneAtATime {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Not yet when asked for the first time.
        if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called before it was ready");
        self.calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(String::new())))
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_made_ready_is_the_one_that_is_called() {
    let calls = Arc::new(AtomicUsize::new(0));
    let inner = OneAtATime { ready: false, asked: Arc::default(), calls: Arc::clone(&calls) };
    let mut service = layer(&user_limits(TEN_A_SECOND)).layer(inner);
    assert!(service.poll_ready(&mut context()).is_pending());
    // At once, after a wait, after a longer wait.
    let mut answers = Vec::new();
    for _ in 0..3 {
        let ready = service.ready().await.unwrap();
        answers.push(ready.call(get("/")));
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}
