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
async fn run(service: &Arc<LimitedService>, processes: u64, calls: u32, seed: u64) -> Duration {
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for process in 0..processes {
        let layer = PacingLayer::new(PacingSettings::batch()).seed(seed * 100 + process);
        let client = client(Arc::clone(service), &layer);
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

/// Runs on several seeds: the median and the worst of calls sent for each thousand served, and of the time in
/// thousandths of the ideal.
async fn measure(
    service: impl Fn() -> Arc<LimitedService>,
    processes: u64,
    calls: u32,
) -> ([u64; 2], [u64; 2]) {
    let served = u64::from(calls) * processes;
    let (mut sent, mut took) = (Vec::new(), Vec::new());
    for seed in 0..3 {
        let service = service();
        let time = run(&service, processes, calls, seed).await;
        sent.push(service.calls.load(Ordering::Relaxed) * 1_000 / served);
        took.push(u64::try_from(time.as_millis()).unwrap_or(u64::MAX) * 100 / (served - 100));
    }
    let summary = |mut values: Vec<u64>| {
        values.sort_unstable();
        [values[1], values[2]]
    };
    let (sent, took) = (summary(sent), summary(took));
    println!(
        "{processes} × {calls}: calls ÷ served {sent:?}, time ÷ ideal {took:?} (median, worst; thousandths)"
    );
    (sent, took)
}

#[tokio::test(start_paused = true)]
async fn one_process_that_reads_its_quota_is_almost_never_refused() {
    let bucket = || LimitedService::new(per_second(100, 100), "q=100;w=1");
    let window = || {
        let limit = FixedWindow::new(100, Window::Every(Period::SECOND));
        LimitedService::new(Limit::new(limit), "q=100;w=1")
    };
    for (sent, took) in [measure(bucket, 1, 6_000).await, measure(window, 1, 6_000).await] {
        assert!(sent[1] <= 1_005 && took[1] <= 1_050, "{sent:?} {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn processes_that_do_not_know_each_other_find_their_shares() {
    let service = || LimitedService::new(per_second(100, 100), "q=100;w=1");
    for (processes, calls, sent_max) in [(4, 1_500, 1_060), (4, 6_000, 1_030), (10, 600, 1_200)] {
        let (sent, _) = measure(service, processes, calls).await;
        assert!(sent[0] <= sent_max, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_not_stated_is_found() {
    let service = || {
        let mut service = LimitedService::new(per_second(100, 100), "");
        if let Some(service) = Arc::get_mut(&mut service) {
            service.states_limits = false;
        }
        service
    };
    let (sent, _) = measure(service, 1, 6_000).await;
    assert!(sent[0] <= 1_100, "{sent:?}");
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
