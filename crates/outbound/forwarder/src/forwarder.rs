//! A forwarder: the lanes of several record types, in one process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tidegate_capacity::{
    BootClock, Cost, LeaseStore, MemberStatus, MemberTerms, Target, TargetLimit, TargetMember,
};
use tidegate_delivery::Processor;
use tidegate_queue::{
    EnqueueOutcome, JobSelection, JobStats, NewRecord, Queue, QueueError, QueueStats, QueueStore,
    WallClock,
};

use crate::forecast::{ForecastView, Outlook};
use crate::lane::{AcceptError, Lane, LaneMode, LaneParts, LaneTasks, SharedClock};
use crate::settings::TypeSettings;

/// What a forwarder works with.
#[derive(Clone)]
pub struct ForwarderParts {
    /// Where records are kept.
    pub queues: Arc<dyn QueueStore>,
    /// Where leases are kept.
    pub leases: LeaseStore,
    /// The name of this process among the members of a target.
    pub name: String,
    /// The time of day, by which the queue counts.
    pub clock: SharedClock,
    /// The clock of leases, which no one can set.
    pub lease_clock: SharedClock,
    /// Spreads retries.
    pub seed: u64,
}

impl ForwarderParts {
    /// With the system's clocks.
    pub fn new(queues: Arc<dyn QueueStore>, leases: LeaseStore, name: impl Into<String>) -> Self {
        let clock: SharedClock = Arc::new(WallClock::new());
        let seed = clock.now().as_nanos();
        let lease_clock: SharedClock = Arc::new(BootClock);
        ForwarderParts { queues, leases, name: name.into(), clock, lease_clock, seed }
    }
}

impl fmt::Debug for ForwarderParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwarderParts").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Drains the queues of several record types, each at the pace that its target allows.
///
/// ```
/// use std::sync::Arc;
/// use tidegate_capacity::{Dimension, MemoryCapacityStore, Target, TargetLimit, TargetLimits};
/// use tidegate_delivery::{Attempt, AttemptOutcome, AttemptResult, Processor, ProcessorFuture};
/// use tidegate_forwarder::{Forwarder, ForwarderParts, LeaseStore, TypeSettings};
/// use tidegate_queue::{NewRecord, Payload, SqliteStore, WallClock};
///
/// struct Printer;
/// impl Processor for Printer {
///     fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a> {
///         Box::pin(async move { batch.iter().map(|_| AttemptResult::new(AttemptOutcome::Delivered)).collect() })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queues = Arc::new(SqliteStore::in_memory(Arc::new(WallClock::new()))?);
/// let leases = LeaseStore::new(MemoryCapacityStore::default());
/// let forwarder = Forwarder::new(ForwarderParts::new(queues, leases, "example"));
/// let limits = TargetLimits::new(vec![TargetLimit::per_second(Dimension::Operations, 100)])?;
/// forwarder.add(&Target::new("service", limits), TypeSettings::new("orders"), Arc::new(Printer)).await?;
/// forwarder.enqueue("orders", vec![NewRecord::new(Payload::from_body("order 1"))]).await?;
/// forwarder.stop(std::time::Duration::from_secs(5)).await;
/// # Ok(())
/// # }
/// ```
pub struct Forwarder {
    parts: ForwarderParts,
    lanes: parking_lot::RwLock<BTreeMap<String, Arc<Lane>>>,
    tasks: parking_lot::Mutex<Vec<LaneTasks>>,
}

impl Forwarder {
    /// The most record types of a forwarder.
    pub const TYPES_MAX: usize = 256;

    /// A forwarder without record types.
    pub fn new(parts: ForwarderParts) -> Self {
        Forwarder {
            parts,
            lanes: parking_lot::RwLock::default(),
            tasks: parking_lot::Mutex::default(),
        }
    }

    /// Opens the queue of a record type and starts to drain it. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the queue cannot be opened, the type exists already, or there are too many.
    pub async fn add(
        &self,
        target: &Target,
        settings: TypeSettings,
        processor: Arc<dyn Processor>,
    ) -> Result<(), QueueError> {
        let record_type = settings.record_type.clone();
        let known = |lanes: &BTreeMap<String, Arc<Lane>>| lanes.contains_key(&record_type);
        if known(&self.lanes.read()) || self.lanes.read().len() >= Self::TYPES_MAX {
            let text =
                format!("the record type `{record_type}` is there already, or there are too many");
            return Err(QueueError::InvalidSettings(text));
        }
        let queue = self.parts.queues.open_queue(&record_type, settings.queue.clone()).await?;
        let terms = MemberTerms {
            name: format!("{}/{record_type}", self.parts.name),
            pool: settings.pool.clone(),
            weight: settings.weight,
            reserve: settings.reserve,
            lease: settings.slot_lease,
            store_lost: settings.store_lost,
        };
        let leases = self.parts.leases.clone();
        let clock = Arc::clone(&self.parts.lease_clock);
        let member = TargetMember::join_with_clock(leases, target.clone(), terms, clock);
        let types = self.lanes.read().len() as u64;
        let lane = Lane::new(LaneParts {
            settings,
            target: target.name.clone(),
            queue,
            member,
            processor,
            clock: Arc::clone(&self.parts.clock),
            seed: self.parts.seed.wrapping_add(types << 32),
        });
        self.tasks.lock().push(lane.start());
        self.lanes.write().insert(record_type, lane);
        Ok(())
    }

    fn lane(&self, record_type: &str) -> Result<Arc<Lane>, AcceptError> {
        let found = self.lanes.read().get(record_type).cloned();
        found.ok_or_else(|| AcceptError::UnknownType(record_type.to_owned()))
    }

    /// Stores records durably.
    ///
    /// # Errors
    /// When the type is unknown or draining, or its queue refuses the batch; then nothing of it is stored.
    pub async fn enqueue(
        &self,
        record_type: &str,
        batch: Vec<NewRecord>,
    ) -> Result<Vec<EnqueueOutcome>, AcceptError> {
        self.lane(record_type)?.enqueue(batch).await
    }

    /// The record types, in order.
    pub fn types(&self) -> Vec<String> {
        self.lanes.read().keys().cloned().collect()
    }

    /// The queue of a record type, for dead letters.
    pub fn queue(&self, record_type: &str) -> Option<Arc<dyn Queue>> {
        Some(Arc::clone(&self.lane(record_type).ok()?.queue))
    }

    /// The targets of the record types, each once.
    pub fn targets(&self) -> Vec<String> {
        let mut targets: Vec<String> =
            self.lanes.read().values().map(|lane| lane.target.clone()).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// The state of each target, as this process sees it.
    pub fn target_status(&self) -> Vec<TargetStatus> {
        let mut found: BTreeMap<String, TargetStatus> = BTreeMap::new();
        for lane in self.lanes() {
            let status = lane.reading().status;
            let entry = found
                .entry(lane.target.clone())
                .or_insert_with(|| TargetStatus::of(&lane.target, &status));
            entry.slots_held = entry.slots_held.saturating_add(status.slots);
            entry.types.push(lane.settings.record_type.clone());
        }
        found.into_values().collect()
    }

    /// The lease store.
    pub const fn leases(&self) -> &LeaseStore {
        &self.parts.leases
    }

    /// The present instant of the queue's clock.
    pub fn now(&self) -> tidegate_queue::Timestamp {
        self.parts.clock.now()
    }

    /// Pauses, resumes or drains a type. Returns whether there is one.
    pub fn set_mode(&self, record_type: &str, mode: LaneMode) -> bool {
        let lane = self.lane(record_type);
        if let Ok(lane) = &lane {
            lane.set_mode(mode);
        }
        lane.is_ok()
    }

    /// Looks for records at once, after a redrive.
    pub fn wake(&self, record_type: &str) {
        if let Ok(lane) = self.lane(record_type) {
            lane.wake();
        }
    }

    /// The state of a record type; `None` if there is no such type.
    ///
    /// # Errors
    /// When its queue fails.
    pub async fn status(&self, record_type: &str) -> Result<Option<TypeStatus>, QueueError> {
        let Ok(lane) = self.lane(record_type) else { return Ok(None) };
        let stats = lane.stats().await?;
        Ok(Some(TypeStatus::of(&lane, &stats)))
    }

    /// The progress of a job, over all its record types.
    ///
    /// # Errors
    /// When a queue fails, or does not count jobs.
    pub async fn job(
        &self,
        job: &str,
        tenant: Option<&str>,
    ) -> Result<Option<JobProgress>, QueueError> {
        let lanes: Vec<Arc<Lane>> = self.lanes.read().values().cloned().collect();
        let mut progress: Option<JobProgress> = None;
        for lane in lanes {
            let selection = JobSelection {
                job: Some(job.to_owned()),
                tenant: tenant.map(str::to_owned),
                limit: 1,
            };
            if let Some(stats) = lane.queue.jobs(selection).await?.pop() {
                let part = JobProgress::of(&lane, &stats);
                progress = Some(match progress {
                    Some(sum) => sum.with(part),
                    None => part,
                });
            }
        }
        Ok(progress)
    }

    /// When a full queue will have room for a rejected batch.
    pub fn room_in(&self, record_type: &str, full: &tidegate_queue::Fullness) -> Option<Duration> {
        let lane = self.lane(record_type).ok()?;
        let records = full.records_to_drain().max(u64::from(full.bytes_to_drain() > 0));
        // Dead letters leave only by hand.
        let live = full.records.saturating_sub(full.dead_records);
        if records > live {
            return None;
        }
        let part = |total: u64| total.saturating_mul(records).div_ceil(live.max(1));
        let bytes = full.bytes_to_drain().max(part(full.bytes));
        let left = Cost { operations: records, bytes, units: part(full.cost) };
        lane.reading().outlook_for(left).expected()
    }

    /// The forecast for records of one type that were just enqueued: all that wait now leave first.
    pub fn forecast(&self, record_type: &str, more: Cost) -> Option<ForecastView> {
        let reading = self.lane(record_type).ok()?.reading();
        let left =
            Cost { operations: reading.left.operations.max(more.operations), ..reading.left };
        let left =
            Cost { bytes: left.bytes.max(more.bytes), units: left.units.max(more.units), ..left };
        Some(reading.outlook_for(left).view(reading.cause))
    }

    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.read().values().cloned().collect()
    }

    /// Stops all types: returns unsent records, waits up to `grace` for attempts in flight, gives the slots back.
    pub async fn stop(&self, grace: Duration) {
        self.lanes.write().clear();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let stops = tasks.into_iter().map(|tasks| tokio::spawn(tasks.stop(grace)));
        let stops: Vec<_> = stops.collect();
        for stop in stops {
            let Ok(lane) = stop.await else { continue };
            if let Some(lane) = Arc::into_inner(lane)
                && let Err(error) = lane.member.leave().await
            {
                tracing::warn!(%error, "slots were not given back and expire by themselves");
            }
        }
    }
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").field("types", &self.types()).finish_non_exhaustive()
    }
}

/// The state of a target, as one process sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetStatus {
    /// Its name.
    pub target: String,
    /// Its limits, as all processes keep them now.
    pub limits: Vec<TargetLimit>,
    /// The slots that its capacity is divided into.
    pub slots: u16,
    /// The slots that this process holds.
    pub slots_held: u16,
    /// Its members, of all processes.
    pub members: usize,
    /// The part of its limits that is used.
    pub utilisation: f64,
    /// The part of the share in use: below 1 while it throttles, 0 while it is closed.
    pub brake: f64,
    /// How long it stays closed, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_for: Option<f64>,
    /// The record types of this process that are sent to it.
    pub types: Vec<String>,
}

impl TargetStatus {
    fn of(target: &str, status: &MemberStatus) -> Self {
        TargetStatus {
            target: target.to_owned(),
            limits: status.limits.limits().to_vec(),
            slots: status.limits.slots(),
            slots_held: 0,
            members: status.members,
            utilisation: f64::from(status.utilisation_ppm) / 1e6,
            brake: f64::from(status.brake_ppm) / 1e6,
            closed_for: status.closed_for.map(|left| left.as_secs_f64()),
            types: Vec::new(),
        }
    }
}

/// The state of a record type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeStatus {
    /// The record type.
    pub record_type: String,
    /// Its target.
    pub target: String,
    /// `running`, `paused` or `draining`.
    pub mode: &'static str,
    /// Records that wait or are in flight.
    pub waiting: u64,
    /// The cost of them.
    pub waiting_cost: u64,
    /// Payload bytes of them.
    pub waiting_bytes: u64,
    /// Dead letters.
    pub dead: u64,
    /// Attempts in flight from this process.
    pub in_flight: u32,
    /// The adaptive limit on attempts in flight.
    pub in_flight_limit: u32,
    /// Records that leave in a second.
    pub rate: f64,
    /// Counts since the start of this process.
    pub counts: CountsView,
    /// The slots that this process holds, and all slots.
    pub slots: [u16; 2],
    /// The members of the target.
    pub members: usize,
    /// The part of the share in use: below 1 while the target throttles, 0 while it is closed.
    pub brake: f64,
    /// How long the target stays closed, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_for: Option<f64>,
    /// Why the last heartbeat of the leases failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_error: Option<String>,
    /// When the queue will be empty.
    pub forecast: ForecastView,
}

/// Counts since the start of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountsView {
    /// Records enqueued.
    pub enqueued: u64,
    /// Attempts made.
    pub attempts: u64,
    /// Attempts after a failure.
    pub retries: u64,
    /// Records delivered.
    pub delivered: u64,
    /// Throttled answers.
    pub throttled: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Attempts whose answer was lost.
    pub ambiguous: u64,
    /// Records that the target or a processor rejected.
    pub rejected: u64,
    /// Records that became dead letters here.
    pub dead: u64,
    /// Claims that ended before they were settled.
    pub stale: u64,
    /// Failed calls of the queue.
    pub queue_errors: u64,
}

impl CountsView {
    pub(crate) fn of(lane: &Lane) -> Self {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &lane.counts;
        CountsView {
            enqueued: read(&counts.enqueued),
            attempts: read(&counts.attempts),
            retries: read(&counts.retries),
            delivered: read(&counts.delivered),
            throttled: read(&counts.throttled),
            failed: read(&counts.failed),
            ambiguous: read(&counts.ambiguous),
            rejected: read(&counts.rejected),
            dead: read(&counts.dead),
            stale: read(&counts.stale),
            queue_errors: read(&counts.queue_errors),
        }
    }
}

impl TypeStatus {
    fn of(lane: &Lane, stats: &QueueStats) -> Self {
        let reading = lane.reading();
        let live = stats.live();
        TypeStatus {
            record_type: lane.settings.record_type.clone(),
            target: lane.target.clone(),
            mode: lane.mode().as_str(),
            waiting: live.records,
            waiting_cost: live.cost,
            waiting_bytes: live.bytes,
            dead: stats.dead_records,
            in_flight: lane.in_flight(),
            in_flight_limit: reading.concurrency,
            rate: reading.rate,
            counts: CountsView::of(lane),
            slots: [reading.status.slots, reading.status.limits.slots()],
            members: reading.status.members,
            brake: f64::from(reading.status.brake_ppm) / 1e6,
            closed_for: reading.status.closed_for.map(|left| left.as_secs_f64()),
            lease_error: reading.status.last_error.clone(),
            forecast: reading.outlook.view(reading.cause),
        }
    }
}

/// The progress of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobProgress {
    /// Its name.
    pub job: String,
    /// Records that were enqueued.
    pub accepted: u64,
    /// Records that were delivered.
    pub delivered: u64,
    /// Records that wait or are in flight.
    pub waiting: u64,
    /// The cost of them.
    pub waiting_cost: u64,
    /// Dead letters.
    pub dead: u64,
    /// Dead letters that were deleted.
    pub purged: u64,
    /// Whether nothing of it waits.
    pub finished: bool,
    /// When it will be done. Everything that waits in its queues now leaves first.
    pub forecast: ForecastView,
}

impl JobProgress {
    fn of(lane: &Lane, stats: &JobStats) -> Self {
        let reading = lane.reading();
        let forecast = match stats.live.records {
            0 => Outlook::Done,
            _ => reading.outlook_for(Cost {
                operations: reading.left.operations.max(stats.live.records),
                bytes: reading.left.bytes.max(stats.live.bytes),
                units: reading.left.units.max(stats.live.cost),
            }),
        };
        JobProgress {
            job: stats.job.clone(),
            accepted: stats.accepted,
            delivered: stats.delivered(),
            waiting: stats.live.records,
            waiting_cost: stats.live.cost,
            dead: stats.dead,
            purged: stats.purged,
            finished: stats.live.records == 0,
            forecast: forecast.view(reading.cause),
        }
    }

    /// Both parts; the later forecast counts.
    fn with(self, other: JobProgress) -> Self {
        let later = |one: &ForecastView, other: &ForecastView| match (one.state, other.state) {
            ("done", _) => true,
            (_, "done") => false,
            _ => match (one.seconds, other.seconds) {
                (Some(one), Some(other)) => other > one,
                (one, _) => one.is_some(),
            },
        };
        let forecast = match later(&self.forecast, &other.forecast) {
            true => other.forecast,
            false => self.forecast,
        };
        JobProgress {
            job: self.job,
            accepted: self.accepted.saturating_add(other.accepted),
            delivered: self.delivered.saturating_add(other.delivered),
            waiting: self.waiting.saturating_add(other.waiting),
            waiting_cost: self.waiting_cost.saturating_add(other.waiting_cost),
            dead: self.dead.saturating_add(other.dead),
            purged: self.purged.saturating_add(other.purged),
            finished: self.finished && other.finished,
            forecast,
        }
    }
}
