//! The lane of one record type: claims records, waits for their turn, makes attempts, settles claims.
//!
//! Four tasks share the state of a lane. One claims the records of the next moments, one sends them one by one at the
//! pace of the target, one settles finished claims in batches, and one looks after the rest: it extends leases, reports
//! the backlog and measures. Attempts are tasks of their own, so that a slow answer holds up nothing.
//!
//! Delivery is at least once. A claim that is not settled, because the process ends or the queue cannot be reached, is
//! delivered again when its lease ends.

mod attempt;
mod buffer;
mod claim;
mod measure;
mod send;
mod settle;
mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Timestamp};
use tidegate_capacity::{Cost, LeaseStore, MemberStatus, TargetMember};
use tidegate_delivery::Processor;
use tidegate_queue::{
    EnqueueOutcome, NewRecord, Queue, QueueError, QueueStats, Receipt, Record, Settlement,
};
use tidegate_words::words;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::health::TargetHealth;
use crate::retry::RetryBudget;
use crate::settings::TypeSettings;
use buffer::ClaimBuffer;
use measure::Measurements;

pub(crate) use measure::LaneReading;

/// The clocks of forwarders: chosen at run time.
pub type SharedClock = Arc<dyn Clock>;
/// A member of a target.
pub(crate) type Member = TargetMember<LeaseStore, SharedClock>;

words! {
    /// Whether a lane sends and accepts records.
    #[derive(Default)]
    pub enum LaneMode {
        /// It sends and accepts records.
        #[default]
        Running = "running",
        /// It accepts records and sends none.
        Paused = "paused",
        /// It sends what it has and accepts nothing.
        Draining = "draining",
    }
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct LaneCounts {
    pub(crate) enqueued: AtomicU64,
    pub(crate) attempts: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) ambiguous: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) dead: AtomicU64,
    /// Claims that ended before they were settled, or were settled too late.
    pub(crate) stale: AtomicU64,
    /// Calls of the queue that failed.
    pub(crate) queue_errors: AtomicU64,
}

pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// The state that the tasks of a lane share.
pub(crate) struct Lane {
    pub(crate) settings: TypeSettings,
    pub(crate) target: String,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) member: Member,
    processor: Arc<dyn Processor>,
    clock: SharedClock,
    pub(crate) counts: LaneCounts,
    mode: watch::Sender<LaneMode>,
    stopping: watch::Sender<bool>,
    buffer: Mutex<ClaimBuffer>,
    /// Claims with their end, to be extended: records in the buffer and in flight.
    claims: Mutex<Vec<HeldClaim>>,
    /// Settlements that wait for the next batch. Each claim has at most one.
    settlements: Mutex<Vec<(Receipt, Settlement)>>,
    pub(crate) health: Mutex<TargetHealth>,
    budget: Mutex<RetryBudget>,
    measurements: Mutex<Measurements>,
    in_flight: AtomicU32,
    random: AtomicU64,
    /// Records may have arrived, or a claim ended.
    work: Notify,
    /// Records may have arrived.
    arrived: Notify,
    /// A record can perhaps be sent: the buffer, the number in flight or the mode changed. Only the sender waits for it.
    sendable: Notify,
    /// A settlement waits.
    finished: Notify,
}

/// A claimed record whose lease is kept.
#[derive(Clone, Debug)]
struct HeldClaim {
    receipt: Receipt,
    ends: Timestamp,
}

/// The parts of a lane.
pub(crate) struct LaneParts {
    pub(crate) settings: TypeSettings,
    pub(crate) target: String,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) member: Member,
    pub(crate) processor: Arc<dyn Processor>,
    pub(crate) clock: SharedClock,
    pub(crate) seed: u64,
}

/// Why records were not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// The type is draining.
    #[error("the record type `{0}` is draining and accepts nothing")]
    Draining(String),
    /// A record costs more than the target allows within a lease.
    #[error(
        "record {index} costs more than the target allows within one lease, so that it could never be sent"
    )]
    CostTooHigh {
        /// Its index in the batch.
        index: usize,
    },
    /// There is no such type.
    #[error("there is no record type `{0}`")]
    UnknownType(String),
    /// The queue refused.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl Lane {
    pub(crate) fn new(parts: LaneParts) -> Arc<Self> {
        let measurements = Measurements::new(parts.settings.in_flight_max);
        Arc::new(Lane {
            settings: parts.settings,
            target: parts.target,
            queue: parts.queue,
            member: parts.member,
            processor: parts.processor,
            clock: parts.clock,
            counts: LaneCounts::default(),
            mode: watch::Sender::new(LaneMode::Running),
            stopping: watch::Sender::new(false),
            buffer: Mutex::default(),
            claims: Mutex::default(),
            settlements: Mutex::default(),
            health: Mutex::default(),
            budget: Mutex::default(),
            measurements: Mutex::new(measurements),
            in_flight: AtomicU32::new(0),
            random: AtomicU64::new(parts.seed),
            work: Notify::new(),
            arrived: Notify::new(),
            sendable: Notify::new(),
            finished: Notify::new(),
        })
    }

    /// Starts its tasks.
    pub(crate) fn start(self: &Arc<Self>) -> LaneTasks {
        let mut tasks = JoinSet::new();
        tasks.spawn(claim::run(Arc::clone(self)));
        tasks.spawn(send::run(Arc::clone(self)));
        tasks.spawn(upkeep::run(Arc::clone(self)));
        let mut settling = JoinSet::new();
        settling.spawn(settle::run(Arc::clone(self)));
        LaneTasks { lane: Arc::clone(self), tasks, settling }
    }

    /// Stores records durably.
    pub(crate) async fn enqueue(
        &self,
        batch: Vec<NewRecord>,
    ) -> Result<Vec<EnqueueOutcome>, AcceptError> {
        if *self.mode.borrow() == LaneMode::Draining {
            return Err(AcceptError::Draining(self.settings.record_type.clone()));
        }
        let too_high = |record: &NewRecord| !self.member.can_pay(new_cost(record));
        if let Some(index) = batch.iter().position(too_high) {
            return Err(AcceptError::CostTooHigh { index });
        }
        let outcomes = self.queue.enqueue(batch).await?;
        let accepted =
            outcomes.iter().filter(|outcome| matches!(outcome, EnqueueOutcome::Accepted(_)));
        add(&self.counts.enqueued, accepted.count() as u64);
        self.wake();
        Ok(outcomes)
    }

    /// Looks for records at once.
    pub(crate) fn wake(&self) {
        self.work.notify_one();
        self.arrived.notify_one();
    }

    pub(crate) fn mode(&self) -> LaneMode {
        *self.mode.borrow()
    }

    pub(crate) fn set_mode(&self, mode: LaneMode) {
        self.mode.send_replace(mode);
        self.wake();
        self.sendable.notify_one();
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    fn sends(&self) -> bool {
        *self.mode.borrow() != LaneMode::Paused
    }

    /// Waits for one of the lane's events, at most this long. Returns at once when the lane stops.
    async fn wait(&self, event: &Notify, most: Duration) {
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => {}
            _ = timeout(most, event.notified()) => {}
        }
    }

    /// Waits this long, or until the lane stops.
    async fn pause(&self, length: Duration) {
        let mut stopping = self.stopping.subscribe();
        // Both ends lead to another look.
        let _ = timeout(length, stopping.wait_for(|stopping| *stopping)).await;
    }

    /// Waits for slots, at most this long, or until the lane stops.
    async fn wait_for_slots(&self, most: Duration) {
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => {}
            _ = timeout(most, self.member.holds_slots()) => {}
        }
    }

    /// The next number of splitmix64: spreads retries.
    fn next_random(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let state = self.random.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn settle_later(&self, receipt: Receipt, settlement: Settlement) {
        let record = receipt.record();
        self.claims.lock().retain(|claim| claim.receipt.record() != record);
        self.settlements.lock().push((receipt, settlement));
        self.finished.notify_one();
    }

    fn leave_flight(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.sendable.notify_one();
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn reading(&self) -> LaneReading {
        self.measurements.lock().reading(self.member.status(), self.in_flight())
    }

    pub(crate) fn status(&self) -> MemberStatus {
        self.member.status()
    }

    pub(crate) async fn stats(&self) -> Result<QueueStats, QueueError> {
        self.queue.stats().await
    }
}

/// The cost of a record: one operation, its payload, its units.
pub(crate) fn cost_of(record: &Record) -> Cost {
    Cost { operations: 1, bytes: record.payload.encoded_len() as u64, units: record.cost }
}

fn new_cost(record: &NewRecord) -> Cost {
    Cost { operations: 1, bytes: record.payload.encoded_len() as u64, units: record.cost }
}

/// The running tasks of a lane.
pub(crate) struct LaneTasks {
    lane: Arc<Lane>,
    tasks: JoinSet<()>,
    settling: JoinSet<()>,
}

impl LaneTasks {
    /// Claims nothing more, returns unsent records to the queue, and waits up to `grace` for attempts in flight.
    pub(crate) async fn stop(mut self, grace: Duration) -> Arc<Lane> {
        self.lane.stopping.send_replace(true);
        let ended = timeout(grace, async { while self.tasks.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            // Aborted attempts settle as ambiguous when they are dropped.
            self.tasks.shutdown().await;
        }
        // A claim may have ended after the sender.
        let unsent = self.lane.buffer.lock().take(usize::MAX);
        self.lane.give_back(unsent);
        self.settling.shutdown().await;
        settle::flush(&self.lane).await;
        Arc::clone(&self.lane)
    }
}
