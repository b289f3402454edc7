//! A forwarder under test: a paused clock, a queue that holds the clock while it works, a target in memory.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_capacity::{Dimension, MemoryCapacityStore, Pool, Target, TargetLimit, TargetLimits};
use tidegate_delivery::{Attempt, AttemptOutcome, AttemptResult, Processor, ProcessorFuture};
use tidegate_forwarder::{
    CountsView, Forwarder, ForwarderParts, LeaseStore, SharedClock, TypeSettings,
};
use tidegate_queue::{
    Capability, Claim, ClaimBudget, Clock, DeadLetter, DeadLetterSelection, EnqueueOutcome,
    JobSelection, JobStats, Nanos, NewRecord, Payload, Queue, QueueFuture, QueueSettings,
    QueueStats, QueueStore, Receipt, RecordId, SettleOutcome, Settlement, SqliteStore, Timestamp,
};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// Tokio's clock, which tests pause. The queue's thread reads it too, so that it enters the runtime.
struct PausedClock(Instant, Handle);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        let _entered = self.1.enter();
        Timestamp::from_secs(1_000_000).after(Nanos::from(self.0.elapsed()))
    }
}

/// Runs each call on a blocking thread: tokio's paused clock stands still meanwhile, as the queue's thread is not
/// tokio's.
struct HeldClock<T>(T);

async fn hold_clock<T: Send + 'static>(call: impl FnOnce(Handle) -> T + Send + 'static) -> T {
    let handle = Handle::current();
    spawn_blocking(move || call(handle)).await.unwrap()
}

impl QueueStore for HeldClock<Arc<SqliteStore>> {
    fn capabilities(&self) -> &'static [Capability] {
        self.0.capabilities()
    }

    fn open_queue(
        &self,
        record_type: &str,
        settings: QueueSettings,
    ) -> QueueFuture<'_, Arc<dyn Queue>> {
        let (store, record_type) = (Arc::clone(&self.0), record_type.to_owned());
        Box::pin(async move {
            let open =
                move |handle: Handle| handle.block_on(store.open_queue(&record_type, settings));
            let queue = hold_clock(open).await?;
            Ok(Arc::new(HeldClock(queue)) as Arc<dyn Queue>)
        })
    }
}

macro_rules! held {
    ($self:ident.$call:ident($($argument:ident),*)) => {{
        let queue = Arc::clone(&$self.0);
        Box::pin(hold_clock(move |handle| handle.block_on(queue.$call($($argument),*))))
    }};
}

impl Queue for HeldClock<Arc<dyn Queue>> {
    fn capabilities(&self) -> &'static [Capability] {
        self.0.capabilities()
    }
    fn enqueue(&self, batch: Vec<NewRecord>) -> QueueFuture<'_, Vec<EnqueueOutcome>> {
        held!(self.enqueue(batch))
    }
    fn claim(&self, budget: ClaimBudget) -> QueueFuture<'_, Claim> {
        held!(self.claim(budget))
    }
    fn settle(&self, all: Vec<(Receipt, Settlement)>) -> QueueFuture<'_, Vec<SettleOutcome>> {
        held!(self.settle(all))
    }
    fn stats(&self) -> QueueFuture<'_, QueueStats> {
        held!(self.stats())
    }
    fn list_dead_letters(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> QueueFuture<'_, Vec<DeadLetter>> {
        held!(self.list_dead_letters(after, limit))
    }
    fn show_dead_letter(&self, id: RecordId) -> QueueFuture<'_, Option<DeadLetter>> {
        held!(self.show_dead_letter(id))
    }
    fn redrive(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64> {
        held!(self.redrive(selection, limit))
    }
    fn purge(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64> {
        held!(self.purge(selection, limit))
    }
    fn jobs(&self, selection: JobSelection) -> QueueFuture<'_, Vec<JobStats>> {
        held!(self.jobs(selection))
    }
}

/// One arrival at the target.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Duration,
    pub(crate) body: String,
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    pub(crate) units: u64,
}

type Answer = dyn Fn(&Arrival) -> AttemptOutcome + Send + Sync;

/// A target in memory: logs each arrival and answers after a while.
pub(crate) struct TestTarget {
    began: Instant,
    latency: Duration,
    answer: Box<Answer>,
    arrivals: Mutex<Vec<Arrival>>,
}

impl Processor for TestTarget {
    fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a> {
        Box::pin(async move {
            let arrivals: Vec<Arrival> =
                batch.iter().map(|attempt| self.arrival(attempt)).collect();
            self.arrivals.lock().extend(arrivals.iter().cloned());
            sleep(self.latency).await;
            arrivals.iter().map(|arrival| AttemptResult::new((self.answer)(arrival))).collect()
        })
    }
}

impl TestTarget {
    fn arrival(&self, attempt: &Attempt) -> Arrival {
        let record = &attempt.record;
        Arrival {
            at: self.began.elapsed(),
            body: String::from_utf8(record.payload.body.to_vec()).unwrap(),
            number: attempt.number,
            bytes: record.payload.encoded_len() as u64,
            units: record.cost,
        }
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().clone()
    }
}

/// The largest sum of `of` in any window.
pub(crate) fn most_in(arrivals: &[Arrival], window: Duration, of: impl Fn(&Arrival) -> u64) -> u64 {
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for arrival in arrivals {
        sum += of(arrival);
        while arrivals[first].at + window <= arrival.at {
            sum -= of(&arrivals[first]);
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

/// A forwarder with its target.
pub(crate) struct Bench {
    pub(crate) forwarder: Arc<Forwarder>,
    pub(crate) target: Arc<TestTarget>,
    pub(crate) began: Instant,
}

pub(crate) fn limits(limits: Vec<TargetLimit>, slots: u16) -> Target {
    Target::new("service", TargetLimits::with_slots(limits, slots).unwrap())
}

pub(crate) fn operations(amount: u64) -> Target {
    limits(vec![TargetLimit::per_second(Dimension::Operations, amount)], 100)
}

/// A pool that never has more than these slots.
pub(crate) fn pool(name: &str, slots_max: u16) -> Pool {
    Pool { name: name.to_owned(), weight: 1, slots_min: 0, slots_max }
}

/// A target that answers after 20 ms.
pub(crate) fn answering(
    answer: impl Fn(&Arrival) -> AttemptOutcome + Send + Sync + 'static,
) -> Arc<TestTarget> {
    Arc::new(TestTarget {
        began: Instant::now(),
        latency: Duration::from_millis(20),
        answer: Box::new(answer),
        arrivals: Mutex::default(),
    })
}

pub(crate) fn delivering() -> Arc<TestTarget> {
    answering(|_| AttemptOutcome::Delivered)
}

impl Bench {
    pub(crate) async fn start(
        target: &Target,
        settings: TypeSettings,
        answers: Arc<TestTarget>,
    ) -> Self {
        let clock: SharedClock = Arc::new(PausedClock(Instant::now(), Handle::current()));
        let store = SqliteStore::in_memory(Arc::clone(&clock)).unwrap();
        let leases = LeaseStore::new(MemoryCapacityStore::default());
        let parts = ForwarderParts {
            queues: Arc::new(HeldClock(Arc::new(store))),
            leases,
            name: "bench".to_owned(),
            lease_clock: Arc::clone(&clock),
            clock,
            seed: 1,
        };
        let forwarder = Arc::new(Forwarder::new(parts));
        forwarder.add(target, settings, Arc::clone(&answers) as Arc<dyn Processor>).await.unwrap();
        Bench { forwarder, target: answers, began: Instant::now() }
    }

    pub(crate) async fn enqueue(&self, records: Vec<NewRecord>) {
        self.forwarder.enqueue("orders", records).await.unwrap();
    }

    pub(crate) async fn waiting(&self) -> u64 {
        self.forwarder.status("orders").await.unwrap().unwrap().waiting
    }

    pub(crate) async fn counts(&self) -> CountsView {
        self.forwarder.status("orders").await.unwrap().unwrap().counts
    }

    /// Waits until the queue is empty. Returns when the last record arrived.
    pub(crate) async fn drain(&self, within: Duration) -> Duration {
        let end = self.began.elapsed() + within;
        while self.waiting().await > 0 {
            assert!(self.began.elapsed() < end, "{:?}", self.counts().await);
            sleep(Duration::from_millis(100)).await;
        }
        self.target.arrivals().last().map(|arrival| arrival.at).unwrap_or_default()
    }
}

pub(crate) fn orders() -> TypeSettings {
    TypeSettings::new("orders")
}

/// Records of this cost, named by their number.
pub(crate) fn records(count: usize, cost: u64) -> Vec<NewRecord> {
    let record = |number: usize| NewRecord {
        cost,
        ..NewRecord::new(Payload::from_body(number.to_string()))
    };
    (0..count).map(record).collect()
}
