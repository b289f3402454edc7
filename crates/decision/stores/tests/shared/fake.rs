//! A remote for tests: one memory store, on virtual time, with lines that can be slow, cut, silent or refused.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Timestamp};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CountReport, CounterStore, CurrentRoute, FailureKind,
    Fingerprint, Key, MemoryConfig, MemoryStore, NodeId, Remains, Remote, ReportAnswer,
    ReportRecord, Route, StoreError, Verb,
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
    counters: Mutex<MemoryStore>,
    /// The records of reports.
    records: Mutex<HashMap<Fingerprint, HashMap<NodeId, ReportRecord>>>,
    /// Every report that was charged, so that a replica can be some of them behind.
    journal: Mutex<Vec<JournalEntry>>,
    /// How often the server was replaced by one with other data.
    replaced: AtomicU64,
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

/// A report that was charged.
#[derive(Clone, Debug)]
struct JournalEntry {
    written: Timestamp,
    node: NodeId,
    report: CountReport,
    units: u64,
    charged_at: Timestamp,
}

fn no_counters() -> MemoryStore {
    let config = MemoryConfig { seed: Some(1), ..MemoryConfig::default() };
    MemoryStore::new(config).expect("the default budget is enough")
}

impl Server {
    pub(crate) fn new(clock: VirtualClock) -> Arc<Self> {
        Arc::new(Server {
            counters: Mutex::new(no_counters()),
            records: Mutex::default(),
            journal: Mutex::default(),
            replaced: AtomicU64::new(1),
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
        self.counters.lock().apply_now(&batch, &mut answers);
        answers
    }

    /// Replaces the server by a replica that lacks the reports of the last `lag`, or by an empty one.
    pub(crate) fn fail_over(&self, lag: Option<Duration>) {
        self.replaced.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.now();
        let mut journal = self.journal.lock();
        journal.retain(|entry| lag.is_some_and(|lag| now.since(entry.written) >= lag.into()));
        *self.counters.lock() = no_counters();
        self.records.lock().clear();
        for entry in journal.iter() {
            self.write(entry);
        }
    }

    fn write(&self, entry: &JournalEntry) {
        let JournalEntry { node, report, units, charged_at, .. } = entry;
        let checks = [Check::new(report.key, &report.limit, *units)];
        let batch = Batch::new(Verb::Charge, Charge::Always, *charged_at, &checks);
        self.counters.lock().apply_now(&batch, &mut Answers::new());
        let mut records = self.records.lock();
        let record = ReportRecord { epoch: report.epoch, total: report.total };
        records.entry(report.key.fingerprint).or_default().insert(*node, record);
    }

    fn peek(&self, report: &CountReport) -> tidegate_algorithms::Decision {
        let checks = [Check::new(report.key, &report.limit, 0)];
        let batch = Batch::new(Verb::Peek, Charge::Always, self.clock.now(), &checks);
        let mut answers = Answers::new();
        self.counters.lock().apply_now(&batch, &mut answers);
        answers[0].decision
    }

    /// Charges a report by the rule of the script.
    fn report(&self, node: NodeId, report: &CountReport) -> ReportAnswer {
        let (now, key) = (self.clock.now(), report.key.fingerprint);
        let record = self.records.lock().get(&key).and_then(|nodes| nodes.get(&node).copied());
        let due = report.due(record, Remains::RecordsOrNothing);
        // A peek would settle a bucket at this instant, and the charge may be older.
        let is_bucket = report.limit.algorithm().bucket_terms().is_some();
        let (age, room) =
            if is_bucket { (due.age.get(), u64::MAX) } else { (0, self.peek(report).remaining) };
        let is_news =
            record.is_none_or(|old| (report.epoch, report.total) > (old.epoch, old.total));
        if is_news {
            let charged_at = Timestamp::from_nanos(now.as_nanos() - age);
            let (report, units) = (report.clone(), due.units);
            let entry = JournalEntry { written: now, node, report, units, charged_at };
            self.write(&entry);
            self.journal.lock().push(entry);
        }
        let over = due.units.saturating_sub(room);
        ReportAnswer { decision: self.peek(report), charged: due.units, over }
    }

    /// Charges reports, as one call.
    fn report_all(&self, node: NodeId, reports: &[&CountReport]) -> Vec<ReportAnswer> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.checks.fetch_add(reports.len() as u64, Ordering::Relaxed);
        reports.iter().map(|report| self.report(node, report)).collect()
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
    /// Whether the remote says that it answers, however late.
    answering: Arc<AtomicBool>,
}

impl Line {
    pub(crate) fn new(server: &Arc<Server>, clock: VirtualClock) -> Self {
        Line {
            server: Arc::clone(server),
            clock,
            condition: Arc::new(Mutex::new(Condition::Well)),
            latency: Arc::default(),
            answering: Arc::default(),
        }
    }

    pub(crate) fn set(&self, condition: Condition) {
        *self.condition.lock() = condition;
    }

    /// Makes the remote say that it still answers.
    pub(crate) fn keep_answering(&self) {
        self.answering.store(true, Ordering::Relaxed);
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

    fn is_answering(&self, _: Route) -> bool {
        self.answering.load(Ordering::Relaxed)
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

    fn connections_opened(&self) -> u64 {
        self.server.replaced.load(Ordering::Relaxed)
    }

    async fn report_counts(
        &self,
        node: NodeId,
        reports: &[&CountReport],
        _now: Timestamp,
        within: Duration,
        results: &mut Vec<Result<ReportAnswer, StoreError>>,
    ) {
        let lost = reports.iter().map(|report| self.server.has_lost(self.route(report.key)));
        let call = async {
            lost.collect::<Result<Vec<()>, StoreError>>()?;
            self.call(|server| server.report_all(node, reports)).await
        };
        let late = Err(StoreError::Timeout { waited: within });
        match timeout(within, call).await.unwrap_or(late) {
            Ok(answers) => results.extend(answers.into_iter().map(Ok)),
            Err(error) => results.extend(reports.iter().map(|_| Err(error.clone()))),
        }
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
