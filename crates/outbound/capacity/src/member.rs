//! A running member of a target: it keeps its leases and tells callers when to send.
//!
//! One task sends heartbeats. Callers wait in line for [`TargetMember::turn`], which returns when every limit allows the
//! record and its slot is leased for long enough. The answer of the target goes back through
//! [`SendPermit::finish`], so that real costs and throttled answers change the pace of all members.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tokio::sync::{Mutex as QueueMutex, Notify};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::beats::BeatSchedule;
use crate::boot_clock::{BootClock, seconds_since_1970};
use crate::brake::{Brake, TargetAnswer};
use crate::document::{CapacityDocument, DocumentError, SlotLease, TooManyMembers};
use crate::holder::{
    BrakeReport, DocumentReading, LeaseHolder, MemberTerms, NewTarget, PreparedHeartbeat,
};
use crate::limits::{Cost, Dimension, TargetLimits};
use crate::pacing::{Departure, Pace, TargetPacer};
use crate::shares::Pool;
use crate::store::{CapacityStore, CapacityStoreError, StoredDocument};

/// A throttled service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name, the same for all members.
    pub name: String,
    /// Its limits, for the member that comes first; afterwards the stored ones count.
    pub limits: TargetLimits,
    /// Its pools, likewise.
    pub pools: Vec<Pool>,
    /// The part of the limits to use, in parts per million.
    pub utilisation_ppm: u32,
    /// The longest time that it may ask to wait.
    pub hold_max: Duration,
}

impl Target {
    /// A target without pools, used to 98 %.
    pub fn new(name: impl Into<String>, limits: TargetLimits) -> Self {
        Target {
            name: name.into(),
            limits,
            pools: Vec::new(),
            utilisation_ppm: Pace::UTILISATION_DEFAULT,
            hold_max: Brake::HOLD_MAX_DEFAULT.into(),
        }
    }
}

/// A heartbeat that failed. The member goes on until its lease ends, and tries again.
#[derive(Debug, thiserror::Error)]
pub enum HeartbeatError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] CapacityStoreError),
    /// The document is damaged, or of another version.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The target has no room for another member.
    #[error(transparent)]
    Full(#[from] TooManyMembers),
    /// Other members changed the document each time in between.
    #[error("other members changed the lease document {ATTEMPTS_MAX} times in between")]
    Contended,
}

/// A record that no lease can pay for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record costs more than the target allows within one lease")]
pub struct CostTooHigh;

/// How often one heartbeat tries to replace the document.
const ATTEMPTS_MAX: u32 = 8;
/// How often a waiting caller looks at the brake, which opens slowly after a hold.
const LOOK_AGAIN: Nanos = Nanos::from_millis(100);

/// A member of a target. It leaves when it is dropped: then its leases expire; [`TargetMember::leave`] frees them at once.
#[derive(Debug)]
pub struct TargetMember<S: CapacityStore, C: Clock = BootClock> {
    shared: Arc<Inner<S, C>>,
    beats: JoinHandle<()>,
}

#[derive(Debug)]
struct Inner<S, C> {
    store: S,
    clock: C,
    target: Target,
    terms: MemberTerms,
    state: Mutex<MemberState>,
    /// One caller at a time computes its departure; the others wait in order.
    line: QueueMutex<()>,
    /// The share, its level or the limits changed.
    changed: Notify,
    /// The demand changed.
    demand: Notify,
}

#[derive(Debug)]
struct MemberState {
    holder: LeaseHolder,
    pacer: TargetPacer,
    brake: Brake,
    limits: TargetLimits,
    revision: u64,
    backlog: Cost,
    /// The next record, while no chunk of a quota pays for it.
    missing: Option<Cost>,
    /// The level of the brake at the last heartbeat.
    reported_ppm: u32,
    /// A hold that the other members do not know of yet.
    hold_ms: Option<u64>,
    hold_seen: u64,
    random: u64,
    last_error: Option<HeartbeatError>,
}

impl<S: CapacityStore> TargetMember<S> {
    /// Joins a target, on a clock that no one can set. Must be called within a tokio runtime.
    pub fn join(store: S, target: Target, terms: MemberTerms) -> Self {
        Self::join_with_clock(store, target, terms, BootClock)
    }
}

impl<S: CapacityStore, C: Clock> TargetMember<S, C> {
    /// Joins a target, with its own clock. Must be called within a tokio runtime.
    pub fn join_with_clock(store: S, target: Target, terms: MemberTerms, clock: C) -> Self {
        let limits = target.limits.clone();
        let state = MemberState {
            holder: LeaseHolder::new(terms.clone()),
            pacer: TargetPacer::new(&limits),
            brake: Brake::new(target.hold_max.into()),
            limits,
            revision: 0,
            backlog: Cost::NONE,
            missing: None,
            reported_ppm: Pace::WHOLE,
            hold_ms: None,
            hold_seen: 0,
            random: seed(&terms.name, clock.now()),
            last_error: None,
        };
        let shared = Arc::new(Inner {
            store,
            clock,
            target,
            terms,
            state: Mutex::new(state),
            line: QueueMutex::new(()),
            changed: Notify::new(),
            demand: Notify::new(),
        });
        let beats = tokio::spawn(keep_leases(Arc::clone(&shared)));
        TargetMember { shared, beats }
    }

    /// Sets the cost of the records that wait. The member asks for the slots that send them within a second.
    pub fn set_backlog(&self, backlog: Cost) {
        let mut state = self.shared.state.lock();
        state.backlog = backlog;
        let now = self.shared.clock.now();
        let (wants, announced) = (state.wants(now), state.holder.wants());
        let holds = u16::try_from(state.holder.slots(now).len()).unwrap_or(u16::MAX);
        drop(state);
        // A member that waits for slots already looks for them regularly.
        let is_newly_hungry = wants > holds && announced <= holds;
        let has_no_work = backlog == Cost::NONE;
        let releases = has_no_work && wants < announced && holds > self.shared.terms.reserve;
        if is_newly_hungry || releases {
            self.shared.demand.notify_one();
        }
    }

    /// Waits until a record of this cost may leave. The caller sends it at once and finishes the permit with the answer.
    ///
    /// # Errors
    /// When the cost exceeds what all slots allow within a lease.
    pub async fn turn(&self, cost: Cost) -> Result<SendPermit<S, C>, CostTooHigh> {
        let shared = &self.shared;
        let _first_in_line = shared.line.lock().await;
        loop {
            let changed = shared.changed.notified();
            let now = shared.clock.now();
            let wait = {
                let mut state = shared.state.lock();
                if !state.limits.fits_lease(cost, shared.terms.lease) {
                    return Err(CostTooHigh);
                }
                state.update_pace(&shared.target, now);
                let asked = state.missing.is_some();
                let step = state.depart(cost, now);
                if state.missing.is_some() && !asked {
                    shared.demand.notify_one();
                }
                match step {
                    DepartureStep::Leave { lease, ends } => {
                        let shared = Arc::clone(shared);
                        return Ok(SendPermit { shared, cost, lease, departed: now, ends });
                    }
                    DepartureStep::Wait(wait) => wait,
                }
            };
            // The end of the wait and the news of a change both lead to another look.
            let _ = timeout(wait.into(), changed).await;
        }
    }

    /// Whether all slots together could pay for a record within a lease.
    pub fn can_pay(&self, cost: Cost) -> bool {
        self.shared.state.lock().limits.fits_lease(cost, self.shared.terms.lease)
    }

    /// What it may send now, and what binds it.
    pub fn status(&self) -> MemberStatus {
        let shared = &self.shared;
        let now = shared.clock.now();
        let state = shared.state.lock();
        let grant = state.holder.grant();
        let slots = state.holder.usable(now).slots;
        MemberStatus {
            limits: state.limits.clone(),
            revision: state.revision,
            slots,
            fair_share: grant.map_or(0, |grant| grant.fair_share),
            members: grant.map_or(0, |grant| grant.members),
            utilisation_ppm: shared.target.utilisation_ppm.min(Pace::WHOLE),
            brake_ppm: state.brake.level_ppm(now),
            closed_for: state.brake.closed_until(now).map(|until| until.since(now).into()),
            lease_left: state.holder.deadline().since(now).into(),
            last_error: state.last_error.as_ref().map(ToString::to_string),
        }
    }

    /// The slots that it holds now.
    pub fn slots(&self) -> Vec<SlotLease> {
        self.shared.state.lock().holder.slots(self.shared.clock.now()).to_vec()
    }

    /// The part of the share in use, in parts per million: below a million while the target throttles, zero while it is
    /// closed.
    pub fn brake_ppm(&self) -> u32 {
        self.shared.state.lock().brake.level_ppm(self.shared.clock.now())
    }

    /// Why the last heartbeat failed, in words; `None` when it succeeded.
    pub fn last_error(&self) -> Option<String> {
        self.shared.state.lock().last_error.as_ref().map(ToString::to_string)
    }

    /// Waits until it holds at least one slot.
    pub async fn holds_slots(&self) {
        loop {
            let changed = self.shared.changed.notified();
            if !self.slots().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Gives all slots back. Records that were sent last may still count against the limit, so this waits until their
    /// time has passed.
    ///
    /// # Errors
    /// When the store fails; the leases expire by themselves.
    pub async fn leave(self) -> Result<(), HeartbeatError> {
        self.beats.abort();
        let shared = &self.shared;
        while !shared.state.lock().pacer.is_idle(shared.clock.now()) {
            sleep(LOOK_AGAIN.into()).await;
        }
        shared.state.lock().holder.forget();
        for _ in 0..ATTEMPTS_MAX {
            let read = shared.store.read(&shared.target.name).await?;
            let Some(bytes) = &read.bytes else { return Ok(()) };
            let mut document = CapacityDocument::decode(bytes)?;
            document.leave(&shared.terms.name);
            if shared.store.replace(&shared.target.name, &read, document.encode()?).await? {
                return Ok(());
            }
        }
        Err(HeartbeatError::Contended)
    }
}

impl<S: CapacityStore, C: Clock> Drop for TargetMember<S, C> {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

/// The share of a member, and what binds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The limits in force.
    pub limits: TargetLimits,
    /// How often they were changed.
    pub revision: u64,
    /// The slots that it holds.
    pub slots: u16,
    /// The slots that it should have.
    pub fair_share: u16,
    /// The members of the target.
    pub members: usize,
    /// The part of the limits to use, in parts per million.
    pub utilisation_ppm: u32,
    /// The part of the share in use, in parts per million; zero while the target is closed.
    pub brake_ppm: u32,
    /// How long the target stays closed, if it is.
    pub closed_for: Option<Duration>,
    /// How long its lease lasts without another heartbeat.
    pub lease_left: Duration,
    /// Why the last heartbeat failed, in words.
    pub last_error: Option<String>,
}

impl MemberStatus {
    /// What the slots allow within a span at the present level, in each dimension; `u64::MAX` where nothing limits it.
    pub fn allowance(&self, span: Duration) -> Cost {
        self.allowance_of(self.slots, self.brake_ppm, span)
    }

    /// What these slots allow within a span at this level of the brake.
    pub fn allowance_of(&self, slots: u16, brake_ppm: u32, span: Duration) -> Cost {
        let level = u128::from(self.utilisation_ppm) * u128::from(brake_ppm);
        let of = |dimension| {
            let of_dimension =
                self.limits.limits().iter().filter(|limit| limit.dimension == dimension);
            let allowed = of_dimension.map(|limit| {
                // Amounts have 44 bits, so that this fits: 44 + 40 + 10 + 64 bits only with spans of centuries.
                let share = u128::from(limit.amount) * u128::from(slots) * level
                    / u128::from(self.limits.slots())
                    / (u128::from(Pace::WHOLE) * u128::from(Pace::WHOLE) / 1_000);
                let amount = share.saturating_mul(span.as_micros())
                    / (u128::from(limit.window_ms) * 1_000_000);
                u64::try_from(amount).unwrap_or(u64::MAX)
            });
            allowed.min().unwrap_or(u64::MAX)
        };
        Cost {
            operations: of(Dimension::Operations),
            bytes: of(Dimension::Bytes),
            units: of(Dimension::Units),
        }
    }
}

/// The right to send one record now.
#[derive(Debug)]
#[must_use = "finish it with the answer, so that the pace follows the target"]
pub struct SendPermit<S, C> {
    shared: Arc<Inner<S, C>>,
    cost: Cost,
    lease: SlotLease,
    departed: Timestamp,
    /// The end of the lease that it was granted under.
    ends: Timestamp,
}

impl<S: CapacityStore, C: Clock> SendPermit<S, C> {
    /// The instant of the member's clock at which the record was counted. What a process waits for a processor
    /// afterwards is not in it.
    pub const fn departed(&self) -> Timestamp {
        self.departed
    }

    /// One of the slots that the record is sent under, for services that reject older epochs.
    pub const fn lease(&self) -> SlotLease {
        self.lease
    }

    /// Whether the lease still lasts. Ask just before the request is written: a process that was frozen since its turn
    /// must not send under slots that another one may have.
    pub fn is_leased(&self) -> bool {
        self.shared.clock.now() < self.ends
    }

    /// Tells what became of the record, and its real cost if the answer has it.
    pub fn finish(self, answer: TargetAnswer, real_cost: Option<Cost>) {
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        if let Some(real) = real_cost {
            state.pacer.correct(self.cost, real, now);
            state.holder.spend(real.beyond(self.cost), now);
        }
        let hold = state.brake.record(answer, now);
        if let Some(hold) = hold {
            state.hold_ms = Some(hold.get() / 1_000_000);
            self.shared.demand.notify_one();
        }
        let share = state.share_per_second(self.cost);
        let probes = state.holder.grant().is_none_or(|grant| grant.probes);
        state.brake.tick(share, probes, now);
    }
}

/// Sends heartbeats until the member leaves.
async fn keep_leases<S: CapacityStore, C: Clock>(shared: Arc<Inner<S, C>>) {
    let mut schedule = BeatSchedule::new(shared.clock.now());
    loop {
        let outcome = heartbeat(&shared).await;
        let now = shared.clock.now();
        let (next, urgent) = {
            let mut state = shared.state.lock();
            let lost = match &outcome {
                Ok(HeartbeatRaces { lost }) => *lost > 0,
                Err(error) => matches!(error, HeartbeatError::Contended),
            };
            if outcome.is_err() {
                state.holder.fail(now);
            }
            state.last_error = outcome.err();
            let (period, random) = (state.holder.period(), state.next_random());
            (schedule.next(now, period, lost, random), schedule.urgent_from(now))
        };
        shared.changed.notify_waiters();
        sleep(urgent.min(next).since(now).into()).await;
        // A change of the demand ends the pause early.
        let rest = Duration::from(next.since(urgent));
        if timeout(rest, shared.demand.notified()).await.is_ok() {
            schedule.note_urgent(shared.clock.now());
        }
    }
}

/// How often other members' writes came between the read and the write of a heartbeat.
struct HeartbeatRaces {
    lost: u32,
}

async fn heartbeat<S: CapacityStore, C: Clock>(
    shared: &Inner<S, C>,
) -> Result<HeartbeatRaces, HeartbeatError> {
    let target = &shared.target.name;
    for lost in 0..ATTEMPTS_MAX {
        let read_at = shared.clock.now();
        let read = shared.store.read(target).await?;
        let (report, prepared) = shared.state.lock().prepare(shared, &read, read_at)?;
        let bytes = prepared.document.encode()?;
        if shared.store.replace(target, &read, bytes).await? {
            shared.state.lock().confirm(shared, prepared, report);
            return Ok(HeartbeatRaces { lost });
        }
        let jitter = shared.state.lock().random_ppm();
        sleep(Duration::from_micros(u64::from(jitter / 100 * (lost + 1)))).await;
    }
    Err(HeartbeatError::Contended)
}

/// What a caller does next.
enum DepartureStep {
    Leave { lease: SlotLease, ends: Timestamp },
    Wait(Nanos),
}

impl MemberState {
    /// The slots that send the backlog within a second. Slots are given back only when the records sent under them no
    /// longer count.
    fn wants(&self, now: Timestamp) -> u16 {
        let wants = u64::from(self.limits.slots_for(self.backlog));
        // Under the brake a slot sends less.
        let level = match self.brake.level_ppm(now) {
            0 => Pace::WHOLE,
            level => level,
        };
        let wants = (wants * u64::from(Pace::WHOLE)).div_ceil(u64::from(level));
        let wants = u16::try_from(wants).unwrap_or(u16::MAX).min(self.limits.slots());
        if self.pacer.is_idle(now) { wants } else { wants.max(1) }
    }

    fn prepare<S: CapacityStore, C: Clock>(
        &mut self,
        shared: &Inner<S, C>,
        read: &StoredDocument,
        read_at: Timestamp,
    ) -> Result<(BrakeReport, PreparedHeartbeat), HeartbeatError> {
        let document = read.bytes.as_deref().map(CapacityDocument::decode).transpose()?;
        let now = shared.clock.now();
        self.holder.set_wants(self.wants(now));
        let next = self.missing.unwrap_or(Cost::NONE);
        self.holder.set_quota_demand(self.backlog, next, now);
        let fallback = NewTarget {
            limits: shared.target.limits.clone(),
            pools: shared.target.pools.clone(),
            incarnation: self.next_random() >> 16,
            epoch: seconds_since_1970(),
            may_have_holders: shared.store.outlived_by_members(),
        };
        self.reported_ppm = self.brake.own_level_ppm();
        let probes = self.holder.grant().is_some_and(|grant| grant.probes);
        // A level that was only taken over is no news: it may be older than the prober's.
        let is_news = probes || self.brake.has_fallen();
        let level_ppm = if is_news { self.reported_ppm } else { Pace::WHOLE };
        let report = BrakeReport { level_ppm, hold_ms: self.hold_ms };
        let reading = DocumentReading { document, store_time_ms: read.time_ms };
        let prepared = self.holder.prepare(reading, &fallback, report, read_at, now)?;
        self.update_pace(&shared.target, now);
        Ok((report, prepared))
    }

    fn confirm<S: CapacityStore, C: Clock>(
        &mut self,
        shared: &Inner<S, C>,
        prepared: PreparedHeartbeat,
        report: BrakeReport,
    ) {
        let now = shared.clock.now();
        self.holder.confirm(prepared, now);
        if self.hold_ms == report.hold_ms {
            self.hold_ms = None;
        }
        let Some(grant) = self.holder.grant().cloned() else { return };
        if !grant.probes || grant.brake_ppm < self.reported_ppm {
            self.brake.follow(grant.brake_ppm, self.reported_ppm);
        }
        if let Some(hold) = grant.hold.filter(|hold| hold.number > self.hold_seen) {
            self.hold_seen = hold.number;
            if report.hold_ms.is_none() {
                let _ = self.brake.hold(Nanos::from_millis(hold.length_ms), now);
            }
        }
        self.revision = grant.revision;
        // A document that was lost and made again may repeat a revision.
        if grant.limits != self.limits {
            let pace = self.pace(&shared.target, now);
            self.pacer.set_limits(&grant.limits, pace, now);
            self.limits = grant.limits;
        }
        self.update_pace(&shared.target, now);
    }

    fn pace(&self, target: &Target, now: Timestamp) -> Pace {
        let level = u64::from(target.utilisation_ppm.min(Pace::WHOLE))
            * u64::from(self.brake.level_ppm(now));
        Pace {
            slots: self.holder.usable(now).slots,
            level_ppm: u32::try_from(level / u64::from(Pace::WHOLE)).unwrap_or(0),
        }
    }

    fn update_pace(&mut self, target: &Target, now: Timestamp) {
        let pace = self.pace(target, now);
        self.pacer.set_pace(pace, now);
    }

    fn depart(&mut self, cost: Cost, now: Timestamp) -> DepartureStep {
        let closed = self.brake.closed_until(now).map(|until| until.since(now));
        let usable = self.holder.usable(now);
        match self.pacer.earliest(cost, now, usable.ends) {
            Departure::At(at) if at <= now && !self.holder.covers(cost, now) => {
                self.missing = Some(cost);
                DepartureStep::Wait(LOOK_AGAIN)
            }
            Departure::At(at) if at <= now => match usable.lease {
                Some(lease) => {
                    self.missing = None;
                    self.holder.spend(cost, now);
                    self.pacer.depart(cost, now);
                    DepartureStep::Leave { lease, ends: usable.ends }
                }
                None => DepartureStep::Wait(LOOK_AGAIN),
            },
            Departure::At(at) => DepartureStep::Wait(at.since(now).min(LOOK_AGAIN)),
            Departure::AfterLease | Departure::NoShare => {
                DepartureStep::Wait(closed.unwrap_or(LOOK_AGAIN))
            }
        }
    }

    /// How many records of this cost the whole share allows in a second.
    fn share_per_second(&self, cost: Cost) -> f64 {
        let slots = self.holder.grant().map_or(0, |grant| grant.slots.len());
        self.limits.records_per_second(cost) * slots as f64 / f64::from(self.limits.slots())
    }

    fn random_ppm(&mut self) -> u32 {
        u32::try_from(self.next_random() % u64::from(Pace::WHOLE)).unwrap_or(0)
    }

    /// Splitmix64: spreads heartbeats, and names incarnations.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Different for members of different names, and for each start.
fn seed(name: &str, now: Timestamp) -> u64 {
    let hash = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(now.as_nanos() ^ u64::from(std::process::id()) << 40, hash)
}
