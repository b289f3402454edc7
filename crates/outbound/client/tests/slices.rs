//! Several processes that share a limit by slices, on paused time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use tidegate_algorithms::{
    CheckInput, Decision, FixedWindow, Limit, Period, Retry, State, Timestamp, TokenBucket, Window,
};
use tidegate_client::{
    ExchangeFuture, Outcome, PacingEvent, PacingLayer, PacingSettings, ReplayBody, SliceAnswer,
    SliceError, SliceExchange, SliceSource,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

/// How long a message takes.
const LATENCY: Duration = Duration::from_millis(5);

/// One limit: the service enforces it, and the decision service gives its units away.
struct SharedLimit {
    limit: Limit,
    state: Mutex<State>,
    origin: Instant,
    asked: AtomicU64,
    answers: AtomicBool,
}

impl SharedLimit {
    fn new(limit: Limit) -> Arc<Self> {
        Arc::new(SharedLimit {
            limit,
            state: Mutex::new(State::Unused),
            origin: Instant::now(),
            asked: AtomicU64::new(0),
            answers: AtomicBool::new(true),
        })
    }

    fn check(&self, cost: u64) -> Decision {
        let now = Timestamp::from_secs(1_800_000_000).after(self.origin.elapsed().into());
        self.limit.check(&mut self.state.lock(), CheckInput::new(cost, now))
    }

    fn take(&self, units: u64) -> SliceAnswer {
        let left = self.check(0).remaining.min(units);
        if left == 0 {
            let Retry::After(retry_after) = self.check(1).retry else { panic!("none is left") };
            return SliceAnswer::Refused { retry_after: retry_after.into() };
        }
        let taken = self.check(left);
        assert!(taken.is_admitted());
        let window = Duration::from(taken.reset_after).min(Duration::from_secs(1));
        SliceAnswer::Taken { slice: Some("slice".to_owned()), units: left, life: window }
    }
}

struct Source(Arc<SharedLimit>);

impl SliceSource for Source {
    fn exchange(&self, exchange: SliceExchange) -> ExchangeFuture<'_> {
        Box::pin(async move {
            sleep(LATENCY).await;
            self.0.asked.fetch_add(1, Ordering::Relaxed);
            if !self.0.answers.load(Ordering::Relaxed) {
                return Err(SliceError("stopped".to_owned()));
            }
            let answer = self.0.take(exchange.units);
            sleep(LATENCY).await;
            Ok(answer)
        })
    }
}

/// What a service saw.
#[derive(Default)]
struct Seen {
    calls: AtomicU64,
    refused: AtomicU64,
}

/// Makes `calls` calls from each of `processes` processes of ten workers; returns how long it took.
async fn run(
    decisions: &Arc<SharedLimit>,
    service: &Arc<SharedLimit>,
    seen: &Arc<Seen>,
    (processes, calls): (u64, u32),
) -> Duration {
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for process in 0..processes {
        let layer = PacingLayer::new(PacingSettings::batch())
            .seed(process)
            .slices(Source(Arc::clone(decisions)));
        let (service, seen) = (Arc::clone(service), Arc::clone(seen));
        let client = layer.layer(service_fn(move |_: Request<ReplayBody<Full<Bytes>>>| {
            let (service, seen) = (Arc::clone(&service), Arc::clone(&seen));
            async move {
                sleep(LATENCY).await;
                seen.calls.fetch_add(1, Ordering::Relaxed);
                let mut answer = Response::builder();
                if !service.check(1).is_admitted() {
                    seen.refused.fetch_add(1, Ordering::Relaxed);
                    answer = answer.status(StatusCode::TOO_MANY_REQUESTS);
                }
                Ok::<_, Infallible>(answer.body(()).expect("valid"))
            }
        }));
        let left = Arc::new(AtomicU32::new(calls));
        for _ in 0..10 {
            let (client, left) = (client.clone(), Arc::clone(&left));
            workers.spawn(async move {
                let next = |left: u32| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
                    let get =
                        || Request::get("http://api.test/").body(Full::default()).expect("valid");
                    while !matches!(
                        client.clone().oneshot(get()).await.map(|answer| Outcome::of(&answer)),
                        Ok(Outcome::Answered)
                    ) {}
                }
            });
        }
    }
    workers.join_all().await;
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn four_processes_use_a_limit_together_and_none_is_refused() {
    let window = FixedWindow::new(100, Window::Every(Period::SECOND));
    for limit in [Limit::new(TokenBucket::new(100, Period::SECOND, 100)), Limit::new(window)] {
        let decisions = SharedLimit::new(limit.clone());
        // The service allows what crosses the edge of a window: a call takes 5 ms to arrive.
        let service = SharedLimit::new(Limit::new(TokenBucket::new(100, Period::SECOND, 130)));
        let seen = Arc::new(Seen::default());
        let took = run(&decisions, &service, &seen, (4, 500)).await;
        let (calls, refused) =
            (seen.calls.load(Ordering::Relaxed), seen.refused.load(Ordering::Relaxed));
        let sends = calls as f64 / (calls - refused) as f64;
        let ideal = Duration::from_secs(2_000 / 100 - 1);
        let time = took.as_secs_f64() / ideal.as_secs_f64();
        let asked = decisions.asked.load(Ordering::Relaxed);
        let name = limit.algorithm().name();
        println!("{name}: sends / served {sends:.4}, time / ideal {time:.3}, {asked} exchanges");
        assert!(sends <= 1.005, "{sends}");
        assert!(time <= 1.12, "{time}");
        assert!(asked <= 700, "{asked} exchanges for 2,000 calls");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_go_on_while_the_decision_service_does_not_answer() {
    let limit = Limit::new(TokenBucket::new(1_000, Period::SECOND, 1_000));
    let (decisions, service) = (SharedLimit::new(limit.clone()), SharedLimit::new(limit));
    decisions.answers.store(false, Ordering::Relaxed);
    let seen = Arc::new(Seen::default());
    let took = run(&decisions, &service, &seen, (1, 100)).await;
    assert_eq!(seen.calls.load(Ordering::Relaxed), 100);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(decisions.asked.load(Ordering::Relaxed), 1, "asked once in a second");
}

#[tokio::test(start_paused = true)]
async fn no_unit_in_time_is_an_error_with_the_time_and_nothing_is_sent() {
    let day = Limit::new(FixedWindow::new(0, Window::Every(Period::HOUR)));
    let decisions = SharedLimit::new(day);
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let layer = PacingLayer::new(PacingSettings::interactive())
        .observer(move |_: &str, event: PacingEvent| seen.lock().push(event))
        .slices(Refusing(Arc::clone(&decisions)));
    let client = layer.layer(service_fn(|_: Request<ReplayBody<Full<Bytes>>>| async {
        Ok::<_, Infallible>(Response::new(()))
    }));
    let get = Request::get("http://api.test/").body(Full::<Bytes>::default()).expect("valid");
    let error = client.oneshot(get).await.expect_err("no unit is left");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(600)));
    assert_eq!(*events.lock(), [PacingEvent::NotSent]);
}

/// Has nothing left for ten minutes.
struct Refusing(Arc<SharedLimit>);

impl SliceSource for Refusing {
    fn exchange(&self, _: SliceExchange) -> ExchangeFuture<'_> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(SliceAnswer::Refused { retry_after: Duration::from_secs(600) }) })
    }
}
