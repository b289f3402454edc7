//! Forwarders that share a target and a queue.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;
use tidegate_capacity::{
    CapacityStore, CapacityStoreError, MemoryCapacityStore, StoredDocument, Target, TargetLimit,
    TargetLimits,
};
use tidegate_delivery::{Attempt, HttpProcessor, HttpSettings, Processor, ProcessorFuture};
use tidegate_forwarder::{Forwarder, ForwarderParts, LeaseStore, TypeSettings};
use tidegate_queue::{NewRecord, Payload, QueueSettings, QueueStore, SqliteStore};
use tidegate_throttled_service::{
    Latency, LimitKind, ServiceLimit, ThrottledService, ThrottledServiceSettings,
};

const TYPE: &str = "records";
const BATCH: usize = 1_000;

/// Half of a network's round trip of 20 ms.
pub(super) const NETWORK: Latency = Latency { median: Duration::from_millis(10), spread: 0.5 };

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct FleetPlan {
    pub(super) members: usize,
    pub(super) limit: TargetLimit,
    pub(super) kind: LimitKind,
    pub(super) latency: Latency,
    pub(super) records: usize,
    /// The units of each record.
    pub(super) units: u64,
}

/// Running forwarders, their queue and the service that judges them.
pub(super) struct Fleet {
    pub(super) service: ThrottledService,
    pub(super) forwarders: Vec<Forwarder>,
    pub(super) calls: Arc<StoreCalls>,
    store: Arc<SqliteStore>,
    leases: LeaseStore,
    target: Target,
    /// The most requests in flight of each forwarder.
    pub(super) in_flight_max: u32,
    /// Where they send to.
    address: SocketAddr,
    _directory: TempDir,
}

/// The calls of a lease store.
#[derive(Debug, Default)]
pub(super) struct StoreCalls {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) failed_writes: AtomicU64,
}

/// Writes into each request when its turn came.
struct StampingProcessor(HttpProcessor);

impl Processor for StampingProcessor {
    fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a> {
        Box::pin(async move {
            let stamp = |attempt: &Attempt| {
                let mut stamped = attempt.clone();
                let nanos = attempt.departed.as_nanos().to_string();
                stamped.record.payload.headers.push(("departed-ns".to_owned(), nanos.into()));
                stamped
            };
            let stamped: Vec<Attempt> = batch.iter().map(stamp).collect();
            self.0.process(&stamped).await
        })
    }
}

/// A lease store in memory that counts.
struct CountingStore {
    inner: MemoryCapacityStore,
    calls: Arc<StoreCalls>,
}

impl CapacityStore for CountingStore {
    async fn read(&self, target: &str) -> Result<StoredDocument, CapacityStoreError> {
        self.calls.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read(target).await
    }

    async fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> Result<bool, CapacityStoreError> {
        self.calls.writes.fetch_add(1, Ordering::Relaxed);
        let replaced = self.inner.replace(target, read, bytes).await?;
        if !replaced {
            self.calls.failed_writes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(replaced)
    }

    fn outlived_by_members(&self) -> bool {
        self.inner.outlived_by_members()
    }
}

impl Fleet {
    /// Enqueues the records, and starts nothing yet.
    pub(super) async fn prepare(plan: FleetPlan) -> anyhow::Result<Self> {
        let limits = vec![ServiceLimit { limit: plan.limit, kind: plan.kind }];
        let mut settings = ThrottledServiceSettings::new(limits);
        (settings.delay_before, settings.delay_after) = (plan.latency, plan.latency);
        let service = ThrottledService::start(settings)?;
        let address = service.address();
        Self::of(plan, service, address).await
    }

    /// For a service of another process; the fleet's own one gets nothing.
    pub(super) async fn prepare_for(plan: FleetPlan, address: SocketAddr) -> anyhow::Result<Self> {
        let limits = vec![ServiceLimit { limit: plan.limit, kind: plan.kind }];
        let unused = ThrottledService::start(ThrottledServiceSettings::new(limits))?;
        Self::of(plan, unused, address).await
    }

    async fn of(
        plan: FleetPlan,
        service: ThrottledService,
        address: SocketAddr,
    ) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("no temporary directory")?;
        let store = Arc::new(SqliteStore::open(&directory.path().join("data"))?);
        let queue = store.open_queue(TYPE, QueueSettings::default()).await?;
        let payload =
            Payload::from_body(vec![b'x'; 200]).with_header("x-units", plan.units.to_string());
        let record = NewRecord { cost: plan.units, ..NewRecord::new(payload) };
        let mut left = plan.records;
        while left > 0 {
            let batch = left.min(BATCH);
            queue.enqueue(vec![record.clone(); batch]).await?;
            left -= batch;
        }
        let calls = Arc::new(StoreCalls::default());
        let counting =
            CountingStore { inner: MemoryCapacityStore::default(), calls: Arc::clone(&calls) };
        let target = Target::new("service", TargetLimits::new(vec![plan.limit])?);
        let mut fleet = Fleet {
            service,
            forwarders: Vec::new(),
            calls,
            store,
            leases: LeaseStore::new(counting),
            target,
            in_flight_max: TypeSettings::new(TYPE).in_flight_max,
            address,
            _directory: directory,
        };
        for member in 0..plan.members {
            fleet.make_forwarder(member);
        }
        Ok(fleet)
    }

    fn make_forwarder(&mut self, member: usize) {
        let queues: Arc<dyn QueueStore> = Arc::clone(&self.store) as _;
        let parts = ForwarderParts::new(queues, self.leases.clone(), format!("member-{member}"));
        self.forwarders.push(Forwarder::new(parts));
    }

    /// Starts every forwarder.
    pub(super) async fn start(&self) -> anyhow::Result<()> {
        for forwarder in &self.forwarders {
            let url = format!("http://{}/", self.address).parse()?;
            let mut settings = HttpSettings::post(url);
            settings.destinations.networks = vec!["127.0.0.0/8".parse()?];
            let processor = Arc::new(StampingProcessor(HttpProcessor::new(settings)?));
            let in_flight_max = self.in_flight_max;
            let types = TypeSettings { in_flight_max, ..TypeSettings::new(TYPE) };
            forwarder.add(&self.target, types, processor).await?;
        }
        Ok(())
    }

    /// Waits until the queue is empty.
    pub(super) async fn drain(&self) -> anyhow::Result<()> {
        while self.waiting().await? > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Records that are not delivered.
    pub(super) async fn waiting(&self) -> anyhow::Result<u64> {
        let first = self.forwarders.first().context("a fleet has a forwarder")?;
        let queue = first.queue(TYPE).context("its queue is open")?;
        Ok(queue.stats().await?.live().records)
    }

    /// The first forwarder's expectation of the time until the queue is empty.
    pub(super) async fn expected_seconds(&self) -> anyhow::Result<Option<f64>> {
        let first = self.forwarders.first().context("a fleet has a forwarder")?;
        Ok(first.status(TYPE).await?.and_then(|status| status.forecast.seconds))
    }

    /// The first forwarder's interval for that time.
    pub(super) async fn expected_between(&self) -> anyhow::Result<Option<[f64; 2]>> {
        let first = self.forwarders.first().context("a fleet has a forwarder")?;
        Ok(first.status(TYPE).await?.and_then(|status| status.forecast.between))
    }

    /// Stops all forwarders; unsent records stay in the queue until it is deleted.
    pub(super) async fn stop(self) {
        for forwarder in &self.forwarders {
            forwarder.stop(Duration::from_secs(2)).await;
        }
    }
}
