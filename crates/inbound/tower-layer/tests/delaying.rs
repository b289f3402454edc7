//! Requests that wait in the layer: in line for a limit, or for their turn in a leaky bucket.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use parking_lot::Mutex;
use support::elsewhere::Elsewhere;
use support::{Answer, START, by_user, get, hello, send};
use tidegate_admission::DelaySettings;
use tidegate_engine::{
    Clock, CounterStore, Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Nanos, Observer,
    Options, Source, Timestamp, Verb, Verdict, compile,
};
use tidegate_tower_layer::RateLimitLayer;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, Service, ServiceExt};

/// The engine's clock, which follows tokio's.
#[derive(Debug)]
struct Following(Instant);

impl Clock for Following {
    fn now(&self) -> Timestamp {
        START.after(Nanos::from(self.0.elapsed()))
    }
}

/// An engine with a layer before a service that notes when it is called.
struct Bench<S> {
    engine: Arc<Engine<S, Following>>,
    layer: RateLimitLayer<S, Following>,
    began: Instant,
    called: Arc<Mutex<Vec<u128>>>,
}

impl Bench<MemoryStore> {
    fn new(limits: &str) -> Self {
        Bench::on(MemoryStore::new(MemoryConfig::default()).unwrap(), limits)
    }
}

impl<S: CounterStore> Bench<S> {
    fn on(store: S, limits: &str) -> Self {
        let text = format!("domain: api\ndescriptors:\n- {{key: user, limits: [{limits}]}}");
        let rules = compile(&[Source::new("rules.yaml", text)], &Options::default())
            .unwrap_or_else(|report| panic!("{report}"));
        let began = Instant::now();
        let engine = Arc::new(Engine::new(store, Following(began)).with_rules(rules));
        let layer = RateLimitLayer::new(Arc::clone(&engine), "api", by_user);
        Bench { engine, layer, began, called: Arc::default() }
    }

    fn waiting_at_most(self, wait_max: Duration) -> Self {
        self.bounded(DelaySettings { wait_max, ..DelaySettings::default() })
    }

    fn bounded(mut self, delay: DelaySettings) -> Self {
        self.layer = self.layer.delay(delay);
        self
    }

    fn service(
        &self,
    ) -> impl Service<
        Request<()>,
        Response = Response<
            impl http_body::Body<Data = Bytes, Error = impl std::fmt::Debug + use<S>> + use<S>,
        >,
        Error = Infallible,
        Future: Send,
    > + Clone
    + use<S> {
        let (began, called) = (self.began, Arc::clone(&self.called));
        self.layer.layer(tower::service_fn(move |_request: Request<()>| {
            called.lock().push(began.elapsed().as_millis());
            async { Ok(Response::new(Full::new(Bytes::from_static(b"hello")))) }
        }))
    }

    /// Sends a request, and lets it get as far as it gets.
    async fn begin(&self) -> JoinHandle<Answer> {
        let service = self.service();
        let sent = tokio::spawn(async move { send(&service, get("/")).await });
        self.settle().await;
        sent
    }

    /// Lets everybody run who can.
    async fn settle(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    async fn send(&self) -> Answer {
        send(&self.service(), get("/")).await
    }

    /// When the service was called, in milliseconds from the beginning.
    fn called(&self) -> Vec<u128> {
        self.called.lock().clone()
    }

    /// What is left of the limit at this place.
    async fn left(&self, place: usize) -> u64 {
        let entries = [Entry { key: "user", value: "7" }];
        let descriptors = [Descriptor::new(&entries)];
        let request = tidegate_engine::Request::new("api", &descriptors).with_cost(0);
        self.engine.apply(Verb::Peek, &request).await.rulings()[place].decision.remaining
    }
}

async fn all<T>(sent: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut answers = Vec::new();
    for sent in sent {
        answers.push(sent.await);
    }
    answers
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const TEN_A_SECOND: &str = "{name: paced, algorithm: token_bucket, unit: second, \
                            requests_per_unit: 10, burst: 1, when_over: delay}";
const DRIP: &str =
    "{name: drip, algorithm: leaky_bucket, unit: second, requests_per_unit: 10, queue: 100}";
const DAILY: &str = "{name: daily, unit: day, requests_per_unit: 100}";

#[tokio::test(start_paused = true)]
async fn requests_over_a_limit_leave_at_its_pace_in_their_order() {
    let bench = Bench::new(TEN_A_SECOND);
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(bench.begin().await);
    }
    for answer in all(sent).await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(bench.called(), [0, 100, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_place_in_line_that_is_given_up_is_the_next_ones() {
    let bench = Bench::new(TEN_A_SECOND);
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(bench.begin().await);
    }
    sent.remove(1).abort();
    for answer in all(sent).await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(bench.called(), [0, 100, 200]);
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_others_wait_stands_behind_them() {
    let bench = Bench::new(TEN_A_SECOND);
    let first = [bench.begin().await, bench.begin().await, bench.begin().await];
    // The first in line may ask now, and so might a newcomer.
    advance(ms(100)).await;
    let last = bench.send().await;
    assert_eq!(last.status, 200);
    assert_eq!(bench.called(), [0, 100, 200, 300]);
    for answer in all(first).await {
        assert_eq!(answer.unwrap().status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_line_and_a_wait_that_is_too_long_are_refused() {
    let bounds = DelaySettings { line_max: 1, wait_max: ms(300), ..DelaySettings::default() };
    let bench = Bench::new(TEN_A_SECOND).bounded(bounds);
    let waiting = [bench.begin().await, bench.begin().await];
    let full = bench.send().await;
    assert_eq!((full.status, full.field("retry-after")), (429, Some("1")));
    for answer in all(waiting).await {
        assert_eq!(answer.unwrap().status, 200);
    }
    let slow = Bench::new(&TEN_A_SECOND.replace("second", "minute")).bounded(bounds);
    assert_eq!(slow.send().await.status, 200);
    let refused = slow.send().await;
    assert_eq!((refused.status, refused.field("retry-after")), (429, Some("6")));
    assert!(slow.began.elapsed().is_zero(), "it was refused at once");
}

#[tokio::test(start_paused = true)]
async fn one_that_would_pass_but_finds_the_line_full_is_told_to_come_back() {
    let bounds = DelaySettings { line_max: 1, ..DelaySettings::default() };
    let bench = Bench::new("{algorithm: concurrency, requests_per_unit: 1, when_over: delay}");
    let bench = bench.bounded(bounds);
    let held = bench.service().oneshot(get("/")).await.unwrap();
    let waiting = bench.begin().await;
    drop(held);
    // The slot is free, and the one in line asks for it before long.
    let full = bench.send().await;
    assert_eq!((full.status, full.field("retry-after")), (429, Some("1")));
    assert_eq!(waiting.await.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn no_request_stands_in_line_when_waiting_is_off() {
    let mut bench = Bench::new(TEN_A_SECOND);
    bench.layer = bench.layer.wait_for_turn(false);
    assert_eq!(bench.send().await.status, 200);
    assert_eq!(bench.send().await.status, 429);
    assert_eq!(bench.called(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_too_far_off_is_refused_and_charges_nothing() {
    let limits = format!("{}, {DAILY}", DRIP.replace("10,", "1,"));
    let bench = Bench::new(&limits).waiting_at_most(Duration::from_secs(5));
    let mut sent = Vec::new();
    for _ in 0..6 {
        sent.push(bench.begin().await);
    }
    assert_eq!(bench.left(1).await, 94);
    for _ in 0..3 {
        let refused = bench.send().await;
        assert_eq!((refused.status, refused.field("retry-after")), (429, Some("1")));
        assert!(refused.field("ratelimit").unwrap().starts_with("\"drip\""), "{refused:?}");
        assert_eq!(bench.left(1).await, 94);
    }
    // The answer is true: a second later its turn is near enough.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.send().await.status, 200);
    assert_eq!(bench.called(), [0, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000]);
    for answer in all(sent).await {
        assert_eq!(answer.unwrap().status, 200);
    }
}

/// Counts who is turned away.
#[derive(Default)]
struct TurnedAway(AtomicU64);

impl Observer for TurnedAway {
    fn observe(&self, _: Verb, _: &tidegate_engine::Request<'_>, _: &Verdict) {}

    fn observe_turned_away(&self, _: &tidegate_engine::Request<'_>, verdict: &Verdict) {
        self.0.fetch_add(u64::from(!verdict.is_admitted()), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_is_told_of_those_who_may_not_wait() {
    let turned_away = Arc::new(TurnedAway::default());
    let Bench { engine, layer, .. } = Bench::new(DRIP);
    drop(layer);
    let engine = Arc::into_inner(engine).unwrap();
    let engine = Arc::new(engine.with_observer(Arc::clone(&turned_away) as Arc<dyn Observer>));
    let delay = DelaySettings { wait_max: ms(50), ..DelaySettings::default() };
    let layer = RateLimitLayer::new(engine, "api", by_user).delay(delay);
    let service = layer.layer(hello());
    let statuses = [send(&service, get("/")).await.status, send(&service, get("/")).await.status];
    assert_eq!(statuses, [200, 429]);
    assert_eq!(turned_away.0.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn the_outflow_keeps_its_pace_while_twice_as_many_come_and_few_may_wait() {
    let bench = Bench::new(DRIP).waiting_at_most(ms(300));
    let mut sent = Vec::new();
    for _ in 0..600 {
        sent.push(bench.begin().await);
        advance(ms(50)).await;
    }
    let answers = all(sent).await;
    let served = answers.iter().filter(|sent| sent.as_ref().unwrap().status == 200).count();
    let called = bench.called();
    assert_eq!(served, called.len());
    let gaps: Vec<u128> = called.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap == 100), "{called:?}");
    // Thirty seconds, and the requests that wait at the end.
    assert!((300..=304).contains(&served), "{served}");
}

#[tokio::test(start_paused = true)]
async fn who_goes_before_its_turn_gets_its_charge_back_and_leaves_its_turn_to_another() {
    let bench = Bench::new(&format!("{DRIP}, {DAILY}"));
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(bench.begin().await);
    }
    assert_eq!(bench.left(1).await, 96);
    sent.remove(1).abort();
    bench.settle().await;
    assert_eq!(bench.left(1).await, 97);
    // The next request takes its turn, and no other leaves later or earlier.
    assert_eq!(bench.send().await.status, 200);
    assert_eq!(bench.began.elapsed(), ms(100));
    for answer in all(sent).await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(bench.called(), [0, 100, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn who_goes_once_its_turn_has_come_has_spent_its_charge() {
    let bench = Bench::new(&format!("{DRIP}, {DAILY}"));
    let _first = bench.begin().await;
    let mut service = bench.service();
    std::future::poll_fn(|context| service.poll_ready(context)).await.unwrap();
    let waiting = service.call(get("/"));
    advance(ms(200)).await;
    drop(waiting);
    assert_eq!(bench.left(1).await, 98);
    let mut service = bench.service();
    std::future::poll_fn(|context| service.poll_ready(context)).await.unwrap();
    drop((service.call(get("/")), service));
    assert_eq!(bench.left(1).await, 97, "one that need not wait is called at once");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_waited_for_delays_and_gives_back_alike() {
    let store = || Elsewhere::new();
    let bench = Bench::on(store(), &format!("{DRIP}, {DAILY}"));
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(bench.begin().await);
    }
    assert_eq!(bench.left(1).await, 97);
    sent.remove(1).abort();
    bench.settle().await;
    assert_eq!(bench.left(1).await, 98);
    assert_eq!(bench.send().await.status, 200);
    assert_eq!(bench.called(), [0, 100]);

    let bench = Bench::on(store(), TEN_A_SECOND);
    for answer in all([bench.begin().await, bench.begin().await]).await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(bench.called(), [0, 100]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_need_not_wait_cost_no_more_memory_where_others_might() {
    let allocations = |limits: &str| {
        let bench = Bench::new(limits);
        let mut service = bench.service();
        let mut request = || {
            let call = service.call(get("/"));
            drop(call);
        };
        // Keys are made, and lists have grown, before it is measured.
        for _ in 0..8 {
            request();
        }
        allocation_counter::measure(request).count_total
    };
    let refusing = "{algorithm: token_bucket, unit: second, requests_per_unit: 1000}";
    let least = allocations(refusing);
    let delaying = refusing.replace('}', ", when_over: delay}");
    assert_eq!(allocations(&delaying), least);
}
