//! The parts of a scene: a throttled service, workers as processes, and what is asked of the log in the end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_capacity::{Dimension, TargetLimit};
use tidegate_queue::{NewRecord, Payload, Queue, QueueSettings, open_store};
use tidegate_test_servers::eventually;
use tidegate_test_servers::process::Process;
use tidegate_throttled_service::{
    ArrivalLog, ArrivalTime, Latency, LimitKind, ServiceLimit, ThrottledService,
    ThrottledServiceSettings,
};
use tokio::runtime::Runtime;

use crate::worker::{RECORD_TYPE, WorkerArguments};

/// How often the log is searched for what is missing.
const LOOK: Duration = Duration::from_millis(200);

/// The numbers of a scene.
#[derive(Clone, Debug)]
pub struct FleetPlan {
    /// The service's limit of operations in a second.
    pub amount: u64,
    /// The slots of the target.
    pub slots: u16,
    /// The lease on slots and claims.
    pub lease: Duration,
    /// The most requests in flight of a worker.
    pub in_flight: u32,
    /// How many of a million accepted requests get 500.
    pub error_ppm: u32,
    /// Whether the service throttles at its limit; otherwise only the log is judged.
    pub throttles: bool,
}

impl Default for FleetPlan {
    /// 200 a second in 20 slots, leases of two seconds.
    fn default() -> Self {
        FleetPlan {
            amount: 200,
            slots: 20,
            lease: Duration::from_secs(2),
            in_flight: 16,
            error_ppm: 0,
            throttles: false,
        }
    }
}

/// A service, workers and the records that were acknowledged.
#[derive(Debug)]
pub struct Fleet {
    program: PathBuf,
    plan: FleetPlan,
    /// The service that judges.
    pub service: ThrottledService,
    /// The directory of the scene.
    pub files: TempDir,
    /// For calls of queues and lease stores.
    pub runtime: Runtime,
    acknowledged: BTreeSet<String>,
    started: usize,
}

/// A worker process.
#[derive(Debug)]
pub struct WorkerHandle {
    /// The process.
    pub process: Process,
    log: PathBuf,
}

impl Fleet {
    /// Starts the service.
    pub fn new(program: &Path, plan: FleetPlan, seed: u64) -> Self {
        // Most scenes judge by the times of departure only: throttled answers of a service on a busy machine would blur
        // that.
        let amount = if plan.throttles { plan.amount } else { 1_000_000 };
        let limit = TargetLimit::per_second(Dimension::Operations, amount);
        let limits = vec![ServiceLimit { limit, kind: LimitKind::FixedWindow }];
        let mut settings = ThrottledServiceSettings::new(limits);
        let network = Latency { median: Duration::from_millis(5), spread: 0.5 };
        (settings.delay_before, settings.delay_after) = (network, network);
        (settings.error_ppm, settings.seed) = (plan.error_ppm, seed);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        Fleet {
            program: program.to_owned(),
            plan,
            service: ThrottledService::start(settings).unwrap(),
            files: tempfile::tempdir().unwrap(),
            runtime,
            acknowledged: BTreeSet::new(),
            started: 0,
        }
    }

    /// The arguments of the next worker, with a name of its own.
    pub fn arguments(&mut self, queue: &str, leases: &str) -> WorkerArguments {
        self.started += 1;
        WorkerArguments {
            name: format!("worker-{}", self.started),
            queue: queue.to_owned(),
            leases: leases.to_owned(),
            service: self.service.address(),
            amount: self.plan.amount,
            slots: self.plan.slots,
            lease_ms: u64::try_from(self.plan.lease.as_millis()).unwrap_or(u64::MAX),
            in_flight: self.plan.in_flight,
            produce: 0,
            clock_offset: 0,
            seconds_max: 900,
        }
    }

    /// Starts a worker.
    pub fn start(&self, arguments: &WorkerArguments) -> WorkerHandle {
        let log = self.files.path().join(format!("{}.log", arguments.name));
        let process = Process::start(&mut arguments.command(&self.program), &log);
        WorkerHandle { process, log }
    }

    /// Starts another worker with a name of its own.
    pub fn start_worker(&mut self, queue: &str, leases: &str) -> WorkerHandle {
        let arguments = self.arguments(queue, leases);
        self.start(&arguments)
    }

    /// Opens a queue.
    pub fn open_queue(&self, url: &str) -> Arc<dyn Queue> {
        self.runtime.block_on(async {
            let store = open_store(url).await.unwrap();
            store.open_queue(RECORD_TYPE, QueueSettings::default()).await.unwrap()
        })
    }

    /// Stores records, which the scene then expects to be delivered.
    pub fn enqueue(&mut self, queue: &Arc<dyn Queue>, records: usize) {
        let record = NewRecord::new(Payload::from_body(vec![b'x'; 100]));
        let mut left = records;
        while left > 0 {
            let count = left.min(500);
            let stored = self.runtime.block_on(queue.enqueue(vec![record.clone(); count])).unwrap();
            self.acknowledged.extend(stored.iter().map(|one| one.id().to_string()));
            left -= count;
        }
    }

    /// Expects the records that a worker has acknowledged to be delivered.
    pub fn expect_stored_by(&mut self, worker: &WorkerHandle) {
        self.acknowledged.extend(worker.stored());
    }

    /// The number of records that were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// How many requests arrived.
    pub fn arrivals(&self) -> usize {
        self.service.arrivals()
    }

    /// Waits until more requests have arrived.
    #[track_caller]
    pub fn wait_for_arrivals(&self, more: usize) {
        let before = self.arrivals();
        eventually("more arrivals", || (self.arrivals() >= before + more).then_some(()));
    }

    /// Waits until every acknowledged record is delivered, however long that takes at the limit.
    #[track_caller]
    pub fn wait_until_delivered(&self) -> ArrivalLog {
        let mut missing = usize::MAX;
        loop {
            // Progress within the patience of `eventually` is enough.
            missing = eventually("progress of the delivery", || {
                // Each look copies the log.
                thread::park_timeout(LOOK);
                let left = self.missing();
                (left == 0 || left < missing).then_some(left)
            });
            if missing == 0 {
                return self.service.log();
            }
        }
    }

    fn missing(&self) -> usize {
        let log = self.service.log();
        log.missing(self.acknowledged.iter().map(String::as_str)).len()
    }

    /// Checks that no second holds more departures than this, and that no slot had two users.
    #[track_caller]
    pub fn check_bound(&self, log: &ArrivalLog, most: u64) {
        let second = Duration::from_secs(1);
        let busiest = log.busiest(Dimension::Operations, second, ArrivalTime::Departed);
        assert!(busiest <= most, "{busiest} departures in a second, limit {most}");
        assert!(log.arrivals().iter().all(|arrival| arrival.departed.is_some()));
        assert_eq!(log.stale_departures(), 0, "a slot was used after its next owner used it");
    }
}

impl WorkerHandle {
    /// What it has written so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The ids that it printed after they were durable. A line that was cut has no full stop.
    pub fn stored(&self) -> Vec<String> {
        let output = self.output();
        let whole =
            output.lines().filter_map(|line| line.strip_prefix("stored ")?.strip_suffix('.'));
        whole.flat_map(|ids| ids.split_whitespace().map(str::to_owned)).collect()
    }

    /// How many batches were refused.
    pub fn refused(&self) -> usize {
        self.output().lines().filter(|line| line.starts_with("refused: ")).count()
    }

    /// Waits until it has written this.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        eventually(text, || self.output().contains(text).then_some(()));
    }

    /// Asks it to stop, and waits until it has.
    #[track_caller]
    pub fn stop(&mut self) {
        self.process.terminate();
        eventually("that the worker stops", || self.process.has_ended().then_some(()));
    }
}
