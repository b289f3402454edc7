//! The layer in front of a simulated service, on paused time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use tidegate_algorithms::{
    CheckInput, Decision, FixedWindow, Limit, Period, Retry, State, Timestamp, TokenBucket, Window,
};
use tidegate_client::{Outcome, PacingError, PacingLayer, PacingSettings, ReplayBody};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};

type Call = Request<ReplayBody<Full<Bytes>>>;

/// A service that enforces one limit and says what is left, as Tidegate does.
struct LimitedService {
    limit: Limit,
    policy: String,
    state: Mutex<State>,
    origin: Instant,
    calls: AtomicU64,
    refused: AtomicU64,
    states_limits: bool,
}

impl LimitedService {
    fn new(limit: Limit, policy: &str) -> Arc<Self> {
        Arc::new(LimitedService {
            limit,
            policy: policy.to_owned(),
            state: Mutex::new(State::Unused),
            origin: Instant::now(),
            calls: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            states_limits: true,
        })
    }

    fn decide(&self) -> Decision {
        let now = Timestamp::from_secs(1_800_000_000).after(self.origin.elapsed().into());
        self.limit.check(&mut self.state.lock(), CheckInput::new(1, now))
    }

    async fn answer(&self) -> Response<()> {
        sleep(Duration::from_millis(20)).await;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let decision = self.decide();
        let mut answer = Response::builder();
        if !decision.is_admitted() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            answer = answer.status(StatusCode::TOO_MANY_REQUESTS);
        }
        if self.states_limits {
            let reset = match decision.retry {
                Retry::After(wait) => wait.as_secs_ceil(),
                Retry::Now | Retry::Never => decision.reset_after.as_secs_ceil(),
            };
            answer = answer
                .header("ratelimit-policy", format!("\"rate\";{}", self.policy))
                .header("ratelimit", format!("\"rate\";r={};t={reset}", decision.remaining));
            if let Retry::After(wait) = decision.retry {
                answer = answer.header("retry-after", wait.as_secs_ceil().max(1));
            }
        }
        sleep(Duration::from_millis(20)).await;
        answer.body(()).expect("valid fields")
    }
}

fn client(
    service: Arc<LimitedService>,
    layer: &PacingLayer,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<()>,
    Error = PacingError<Infallible>,
    Future: Send,
> + Clone
+ Send
+ 'static {
    layer.layer(service_fn(move |_: Call| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.answer().await) }
    }))
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://api.test{path}")).body(Full::default()).expect("a valid request")
}

/// Makes `calls` calls from fifty workers of each of `processes` layers. Returns how long it took.
async fn run(service: &Arc<LimitedService>, processes: usize, calls: u32) -> Duration {
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..processes {
        let client = client(Arc::clone(service), &PacingLayer::new(PacingSettings::batch()));
        let left = Arc::new(AtomicU32::new(calls));
        for _ in 0..50 {
            let (client, left) = (client.clone(), Arc::clone(&left));
            workers.spawn(async move {
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    // Work that was refused is not done: it goes back.
                    while !matches!(
                        client.clone().oneshot(get("/")).await.map(|answer| Outcome::of(&answer)),
                        Ok(Outcome::Answered)
                    ) {}
                }
            });
        }
    }
    workers.join_all().await;
    started.elapsed()
}

fn per_second(quota: u64, burst: u64) -> Limit {
    Limit::new(TokenBucket::new(quota, Period::SECOND, burst))
}

#[tokio::test(start_paused = true)]
async fn one_process_that_reads_its_quota_is_almost_never_refused() {
    let fixed = Window::Every(Period::SECOND);
    let services = [
        LimitedService::new(per_second(100, 100), "q=100;w=1"),
        LimitedService::new(Limit::new(FixedWindow::new(100, fixed)), "q=100;w=1"),
    ];
    for service in services {
        let took = run(&service, 1, 6_000).await;
        let calls = service.calls.load(Ordering::Relaxed);
        println!(
            "{:?}: {calls} calls, {} refused, {took:?}",
            service.limit,
            service.refused.load(Ordering::Relaxed)
        );
        assert!(calls <= 6_030, "at most 1.005 calls for each served one: {calls}");
        assert!(took <= Duration::from_millis(59_000 * 105 / 100), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn processes_that_do_not_know_each_other_find_their_shares() {
    for (processes, calls, sends_max) in [(4, 1_500, 1_060), (4, 6_000, 1_030), (10, 600, 1_150)] {
        let service = LimitedService::new(per_second(100, 100), "q=100;w=1");
        let took = run(&service, processes, calls).await;
        let sent = service.calls.load(Ordering::Relaxed);
        let served = u64::from(calls) * processes as u64;
        println!("{processes} processes: {sent} calls for {served}, {took:?}");
        assert!(sent * 1_000 <= served * sends_max, "{sent} calls for {served}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_not_stated_is_found() {
    let mut service = LimitedService::new(per_second(100, 100), "");
    Arc::get_mut(&mut service).unwrap().states_limits = false;
    run(&service, 1, 6_000).await;
    let sent = service.calls.load(Ordering::Relaxed);
    println!("{sent} calls for 6000");
    assert!(sent <= 6_300, "{sent}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_spare_quota_never_waits() {
    let service = LimitedService::new(per_second(1_000, 1_000), "q=1000;w=1");
    let client = client(Arc::clone(&service), &PacingLayer::default());
    let started = Instant::now();
    for _ in 0..100 {
        let _ = client.clone().oneshot(get("/")).await.unwrap();
    }
    assert_eq!(started.elapsed(), Duration::from_millis(100 * 40));
}
