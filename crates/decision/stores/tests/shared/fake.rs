//! A remote for tests: one memory store, on virtual time, with lines that can be slow, cut, silent or refused.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Timestamp};
use tidegate_stores::{
    Answers, Batch, CounterStore, CurrentRoute, FailureKind, Key, MemoryConfig, MemoryStore,
    NodeId, Remote, Route, StoreError,
};
use tokio::time::{Instant, sleep, timeout};

/// When every test begins.
const BASE: u64 = 1_700_000_000_000_000_000;

/// The deadline of a batch that does not set its own.
const OWN_DEADLINE: Duration = Duration::from_millis(10);

/// Tokio's clock as a wall clock with an offset.
#[derive(Clone, Debug)]
pub(crate) struct VirtualClock {
    origin: Instant,
    off: Arc<AtomicI64>,
}

impl VirtualClock {
    pub(crate) fn off_by(origin: Instant, millis: i64) -> Self {
        VirtualClock { origin, off: Arc::new(AtomicI64::new(millis * 1_000_000)) }
    }

    pub(crate) fn step(&self, millis: i64) {
        self.off.fetch_add(millis * 1_000_000, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.origin.elapsed().as_nanos()).expect("a test takes less");
        let off = self.off.load(Ordering::Relaxed);
        Timestamp::from_nanos((BASE + passed).saturating_add_signed(off))
    }
}

/// The behaviour of a server or a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Well,
    /// Fails without running the call.
    Refusing,
    /// Never runs the call, and never answers.
    Silent,
    /// Runs the call, and never answers.
    Deaf,
}

/// The server: counters, a clock, a register.
#[derive(Debug)]
pub(crate) struct Server {
    counters: MemoryStore,
    pub(crate) clock: VirtualClock,
    condition: Mutex<Condition>,
    pub(crate) calls: AtomicU64,
    pub(crate) checks: AtomicU64,
    nodes: Mutex<HashMap<NodeId, Timestamp>>,
    /// The number of routes.
    routes: AtomicU16,
    /// The route that does not answer.
    lost: Mutex<Option<Route>>,
}

impl Server {
    pub(crate) fn new(clock: VirtualClock) -> Arc<Self> {
        let config = MemoryConfig { seed: Some(1), ..MemoryConfig::default() };
        Arc::new(Server {
            counters: MemoryStore::new(config).expect("the default budget is enough"),
            clock,
            condition: Mutex::new(Condition::Well),
            calls: AtomicU64::new(0),
            checks: AtomicU64::new(0),
            nodes: Mutex::new(HashMap::new()),
            routes: AtomicU16::new(1),
            lost: Mutex::new(None),
        })
    }

    pub(crate) fn set(&self, condition: Condition) {
        *self.condition.lock() = condition;
    }

    /// Spreads keys over this many routes from now on.
    pub(crate) fn spread(&self, routes: u16) {
        self.routes.store(routes, Ordering::Relaxed);
    }

    /// Makes one route unreachable, or none.
    pub(crate) fn lose(&self, route: Option<Route>) {
        *self.lost.lock() = route;
    }

    /// The route of a key.
    pub(crate) fn route(&self, key: Key) -> Route {
        let mut hasher = DefaultHasher::new();
        key.fingerprint.hash(&mut hasher);
        let routes = u64::from(self.routes.load(Ordering::Relaxed));
        Route(u16::try_from(hasher.finish() % routes).expect("no more than routes"))
    }

    fn has_lost(&self, route: Route) -> Result<(), StoreError> {
        if *self.lost.lock() != Some(route) {
            return Ok(());
        }
        Err(StoreError::Unavailable { kind: FailureKind::Refused, reason: "lost".to_owned() })
    }

    /// Decides without latency, by the server's own clock.
    pub(crate) fn apply_now(&self, batch: &Batch<'_>) -> Answers {
        let mut answers = Answers::new();
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.checks.fetch_add(batch.checks.len() as u64, Ordering::Relaxed);
        let batch = Batch { now: self.clock.now(), ..*batch };
        self.counters.apply_now(&batch, &mut answers);
        answers
    }
}

/// One node's connection to a server. Its clones are the same connection.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    server: Arc<Server>,
    /// The node's clock, to compute how far the server's is ahead.
    clock: VirtualClock,
    condition: Arc<Mutex<Condition>>,
    latency: Arc<Mutex<Duration>>,
}

impl Line {
    pub(crate) fn new(server: &Arc<Server>, clock: VirtualClock) -> Self {
        Line {
            server: Arc::clone(server),
            clock,
            condition: Arc::new(Mutex::new(Condition::Well)),
            latency: Arc::default(),
        }
    }

    pub(crate) fn set(&self, condition: Condition) {
        *self.condition.lock() = condition;
    }

    pub(crate) fn slow(&self, latency: Duration) {
        *self.latency.lock() = latency;
    }

    /// Calls the server, with the latency and condition of the connection.
    async fn call<T>(&self, act: impl FnOnce(&Server) -> T) -> Result<T, StoreError> {
        let half = *self.latency.lock() / 2;
        if !half.is_zero() {
            sleep(half).await;
        }
        let conditions = [*self.condition.lock(), *self.server.condition.lock()];
        if conditions.contains(&Condition::Refusing) {
            return Err(StoreError::Unavailable {
                kind: FailureKind::Refused,
                reason: "refused".to_owned(),
            });
        }
        if conditions.contains(&Condition::Silent) {
            std::future::pending::<()>().await;
        }
        let result = act(&self.server);
        if conditions.contains(&Condition::Deaf) {
            std::future::pending::<()>().await;
        }
        if !half.is_zero() {
            sleep(half).await;
        }
        Ok(result)
    }
}

impl CounterStore for Line {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        self.apply_with_route(batch, answers, &CurrentRoute::default()).await
    }

    fn give_back(&self, batch: &Batch<'_>) {
        if *self.condition.lock() == Condition::Well {
            self.server.apply_now(batch);
        }
    }
}

impl Line {
    async fn decide(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        // The default deadline of a real client.
        let within = batch.within.unwrap_or(OWN_DEADLINE);
        let late = |_| StoreError::Timeout { waited: within };
        let call = timeout(within, self.call(|server| server.apply_now(batch)));
        answers.extend(call.await.map_err(late)??);
        Ok(())
    }
}

impl Remote for Line {
    fn remote_time(&self, local: Timestamp) -> Timestamp {
        let ahead =
            self.server.clock.off.load(Ordering::Relaxed) - self.clock.off.load(Ordering::Relaxed);
        Timestamp::from_nanos(local.as_nanos().saturating_add_signed(ahead))
    }

    fn route(&self, key: Key) -> Route {
        self.server.route(key)
    }

    async fn apply_with_route(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
        current: &CurrentRoute,
    ) -> Result<(), StoreError> {
        for check in batch.checks {
            current.set(self.route(check.key));
            self.server.has_lost(current.get())?;
        }
        self.decide(batch, answers).await
    }

    async fn register(
        &self,
        node: NodeId,
        lasting: Duration,
        _now: Timestamp,
        _within: Duration,
    ) -> Result<usize, StoreError> {
        self.server.has_lost(self.register_route())?;
        let lives = move |server: &Server| {
            let now = server.clock.now();
            let mut nodes = server.nodes.lock();
            nodes.insert(node, now.after(lasting.into()));
            nodes.retain(|_, until| *until > now);
            nodes.len()
        };
        self.call(lives).await
    }

    async fn unregister(
        &self,
        node: NodeId,
        _now: Timestamp,
        _within: Duration,
    ) -> Result<(), StoreError> {
        self.call(|server| server.nodes.lock().remove(&node)).await?;
        Ok(())
    }
}
