//! A member's side of its leases, without I/O: what it holds, until when, and when it must look again.
//!
//! The end of a lease is computed on the member's own clock, from the instant *before* the document was read, less a
//! guard. The store counts from a later instant, so the member always stops first, whatever the clocks of others say.
//!
//! A heartbeat has two steps, because the write may fail or its reply be lost. [`LeaseHolder::prepare`] gives up slots
//! at once: if the write succeeds unseen, another member may own them already. [`LeaseHolder::confirm`] takes new slots
//! and the new end of the lease only when the store has confirmed the write.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_algorithms::{Nanos, Timestamp};

use crate::beats::BeatSchedule;
use crate::document::{CapacityDocument, Grant, Heartbeat, SlotLease, TooManyMembers};
use crate::limits::{Cost, TargetLimit, TargetLimits};
use crate::pacing::Pace;
use crate::quota::{self, QuotaBudget, QuotaDemand, QuotaLedger};
use crate::shares::Pool;

/// What a member does when the store is lost: its lease has ended, and so have those of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoreLost {
    /// It sends nothing until the store is back.
    #[default]
    Stop,
    /// It sends its part of the capacity: one of as many equal parts as there were members. Keeps the limits only if all
    /// members lost the store and none joined.
    SafeShare,
    /// It sends at the pace of its reserve. Keeps the limits on the same terms, if the reserves together fit.
    Floor,
}

/// How a member takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberTerms {
    /// Its name, unique among the members of the target.
    pub name: String,
    /// The name of its pool.
    pub pool: String,
    /// Its weight within the pool.
    pub weight: u32,
    /// The slots that it keeps also while it is idle.
    pub reserve: u16,
    /// How long a lease lasts without a heartbeat.
    pub lease: Duration,
    /// What it does without a store; the same for all members.
    pub store_lost: StoreLost,
}

impl MemberTerms {
    /// The length of a lease unless the operator chooses another.
    pub const LEASE_DEFAULT: Duration = Duration::from_secs(15);

    /// A member of the default pool.
    pub fn named(name: impl Into<String>) -> Self {
        MemberTerms {
            name: name.into(),
            pool: CapacityDocument::DEFAULT_POOL.to_owned(),
            weight: 1,
            reserve: 0,
            lease: Self::LEASE_DEFAULT,
            store_lost: StoreLost::default(),
        }
    }
}

/// A document as a store returned it.
#[derive(Clone, Debug)]
pub struct DocumentReading {
    /// The document; `None` if the store has none.
    pub document: Option<CapacityDocument>,
    /// The store's clock in milliseconds, if it has one.
    pub store_time_ms: Option<u64>,
}

/// What a target looks like if the store has no document of it.
#[derive(Clone, Debug)]
pub struct NewTarget {
    /// Its limits.
    pub limits: TargetLimits,
    /// Its pools.
    pub pools: Vec<Pool>,
    /// A random number that names this creation.
    pub incarnation: u64,
    /// A number that no earlier document of the target has reached, such as the seconds since 1970.
    pub epoch: u64,
    /// Whether holders of a lost document may exist. False only if the store cannot outlive or lose to them: the memory
    /// of this process.
    pub may_have_holders: bool,
}

/// A heartbeat that waits for the store's confirmation.
#[derive(Debug)]
pub struct PreparedHeartbeat {
    /// The document to write if the one that was read is unchanged.
    pub document: CapacityDocument,
    grant: Grant,
    /// The units of the chunk of each quota.
    chunks: Vec<u64>,
    read_at: Timestamp,
}

/// After so many heartbeats without a change a satisfied member looks rarely.
const CALM_BEATS: u32 = 4;

/// The leases of one member.
#[derive(Debug)]
pub struct LeaseHolder {
    terms: MemberTerms,
    wants: u16,
    slots: Vec<SlotLease>,
    deadline: Timestamp,
    guard: Nanos,
    grant: Option<Grant>,
    /// What it may spend of each quota.
    budgets: Vec<QuotaBudget>,
    /// What it asks of each quota.
    quota_demands: Vec<QuotaDemand>,
    /// What the last confirmed document counted, in case the store loses it.
    quotas_known: Vec<QuotaLedger>,
    /// Confirmed heartbeats since its slots or the number of members changed.
    calm_beats: u32,
    /// The first and the last failure since the last confirmed heartbeat.
    failures: Option<(Timestamp, Timestamp)>,
    observer: Observer,
}

/// What a member may use now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsableShare {
    /// The number of slots.
    pub slots: u16,
    /// Until when.
    pub ends: Timestamp,
    /// One of the slots, for services that know epochs. After the store was lost its epoch is an old one.
    pub lease: Option<SlotLease>,
}

impl LeaseHolder {
    /// The shortest guard before the end of a lease.
    pub const GUARD_MIN: Nanos = Nanos::from_millis(250);

    /// A member that holds nothing yet.
    pub fn new(terms: MemberTerms) -> Self {
        LeaseHolder {
            terms,
            wants: 0,
            slots: Vec::new(),
            deadline: Timestamp::EPOCH,
            guard: Self::GUARD_MIN,
            grant: None,
            budgets: Vec::new(),
            quota_demands: Vec::new(),
            quotas_known: Vec::new(),
            calm_beats: 0,
            failures: None,
            observer: Observer::default(),
        }
    }

    /// Sets the slots that it can use now; the next heartbeat asks for them.
    pub const fn set_wants(&mut self, wants: u16) {
        self.wants = wants;
    }

    /// The slots that it may use at `now`.
    pub fn slots(&self, now: Timestamp) -> &[SlotLease] {
        if now < self.deadline { &self.slots } else { &[] }
    }

    /// What it may use at `now`: its slots while the lease lasts; after the store was lost, what its terms say.
    pub fn usable(&self, now: Timestamp) -> UsableShare {
        if now < self.deadline {
            let slots = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
            return UsableShare { slots, ends: self.deadline, lease: self.slots.first().copied() };
        }
        let none = UsableShare { slots: 0, ends: self.deadline, lease: None };
        match &self.grant {
            Some(grant) if self.has_lost_store(now) => {
                let lease = grant.slots.first().copied();
                let lease = lease.unwrap_or(SlotLease { slot: 0, epoch: 0 });
                let slots = self.slots_without_store(grant);
                UsableShare { slots, ends: Timestamp::MAX, lease: Some(lease) }
            }
            _ => none,
        }
    }

    fn slots_without_store(&self, grant: &Grant) -> u16 {
        let all = grant.limits.slots();
        match self.terms.store_lost {
            StoreLost::Stop => 0,
            StoreLost::SafeShare => all / u16::try_from(grant.members.max(1)).unwrap_or(u16::MAX),
            StoreLost::Floor => self.terms.reserve.min(all),
        }
    }

    /// Whether heartbeats have failed for a whole lease: then the leases of all members have ended, if all lost the
    /// store at the same time. A member that was frozen meanwhile tries a heartbeat first.
    fn has_lost_store(&self, now: Timestamp) -> bool {
        let lease = Nanos::from(self.terms.lease);
        self.failures.is_some_and(|(first, last)| {
            last >= first.after(lease) && now < last.after(lease) && now >= self.deadline
        })
    }

    /// A heartbeat failed at `now`, or its answer was lost.
    pub fn fail(&mut self, now: Timestamp) {
        let (first, _) = self.failures.unwrap_or((now, now));
        self.failures = Some((first, now));
    }

    /// The end of its lease, on its own clock.
    pub const fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Asks for chunks of the quotas in the next heartbeat: for what waits, and at least for the next record.
    pub fn set_quota_demand(&mut self, backlog: Cost, next: Cost, now: Timestamp) {
        let Some(grant) = &self.grant else { return };
        let demand = |(index, limit): (usize, &TargetLimit)| {
            let available = self.budgets.get(index).map_or(0, |budget| budget.available(now));
            let (backlog, next) = (backlog.of(limit.dimension), next.of(limit.dimension));
            // Ahead of time, so that sending does not wait for the store.
            let is_low = available < quota::chunk_units(limit) / 2 || available < next;
            QuotaDemand {
                wants: if is_low { backlog.saturating_sub(available) } else { 0 },
                needs: next.saturating_sub(available),
            }
        };
        self.quota_demands = grant.limits.quotas().enumerate().map(demand).collect();
    }

    /// Whether the chunks that it holds pay for a record.
    pub fn covers(&self, cost: Cost, now: Timestamp) -> bool {
        let Some(grant) = &self.grant else { return true };
        grant.limits.quotas().enumerate().all(|(index, limit)| {
            let available = self.budgets.get(index).map_or(0, |budget| budget.available(now));
            cost.of(limit.dimension) <= available
        })
    }

    /// Spends chunks on a record that leaves, or on what it cost beyond its count.
    pub fn spend(&mut self, cost: Cost, now: Timestamp) {
        let Some(grant) = &self.grant else { return };
        for (limit, budget) in grant.limits.quotas().zip(&mut self.budgets) {
            budget.spend(cost.of(limit.dimension), now);
        }
    }

    /// What the last confirmed heartbeat returned.
    pub const fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// Makes a heartbeat out of a document that was read between `read_at` and `now`. Slots above the fair share are given
    /// up here, whether or not the write succeeds.
    ///
    /// # Errors
    /// When the target has too many members.
    pub fn prepare(
        &mut self,
        reading: DocumentReading,
        fallback: &NewTarget,
        reports: BrakeReport,
        read_at: Timestamp,
        now: Timestamp,
    ) -> Result<PreparedHeartbeat, TooManyMembers> {
        let lease = Nanos::from(self.terms.lease);
        let mut document = reading.document.unwrap_or_else(|| {
            let settling = fallback.may_have_holders;
            let (limits, pools) = (fallback.limits.clone(), fallback.pools.clone());
            CapacityDocument::new(limits, pools, fallback.incarnation, fallback.epoch, settling)
        });
        // The others may use their parts of the capacity until they have heard from the store too.
        let used_without_store =
            self.terms.store_lost != StoreLost::Stop && self.has_lost_store(now);
        if used_without_store && !document.is_settling() {
            document.settle_again(fallback.incarnation);
        }
        if self.grant.as_ref().is_some_and(|grant| grant.incarnation != document.incarnation()) {
            document.restore_chunks(&self.quotas_known);
        }
        self.observer.observe(&document, now);
        let unseen_for = lease.get().saturating_add(self.guard.get());
        if document.is_settling() && self.observer.incarnation_age(now).get() >= unseen_for {
            document.settle();
        }
        let own = document.number_of(&self.terms.name);
        let observer = &self.observer;
        document.drop_expired(|number, expires_ms| match reading.store_time_ms {
            _ if Some(number) == own => false,
            Some(store_time) if expires_ms > 0 => expires_ms <= store_time,
            _ => observer.silence(number, now).get() >= unseen_for,
        });
        let heartbeat = Heartbeat {
            member: self.terms.name.clone(),
            pool: self.terms.pool.clone(),
            weight: self.terms.weight,
            wants: self.wants,
            reserve: self.terms.reserve,
            holds: self.slots(now).to_vec(),
            incarnation: self.grant.as_ref().map(|grant| grant.incarnation),
            brake_ppm: reports.level_ppm,
            hold_ms: reports.hold_ms,
            expires_ms: reading
                .store_time_ms
                .map_or(0, |time| time.saturating_add(lease.get() / 1_000_000)),
        };
        let grant = document.heartbeat(&heartbeat)?;
        self.slots.retain(|lease| grant.slots.contains(lease));
        let chunks = self.take_chunks(&mut document, reading.store_time_ms, now);
        Ok(PreparedHeartbeat { document, grant, chunks, read_at })
    }

    fn take_chunks(
        &self,
        document: &mut CapacityDocument,
        store_time_ms: Option<u64>,
        now: Timestamp,
    ) -> Vec<u64> {
        let counts_for: Vec<u64> = document
            .limits()
            .quotas()
            .map(|limit| quota::term(limit).get().saturating_add(limit.window().get()))
            .collect();
        document.drop_passed_chunks(|index, chunk| match store_time_ms {
            Some(store_time) if chunk.ends_ms() > 0 => chunk.ends_ms() <= store_time,
            _ => {
                let seen_for = self.observer.chunk_age(chunk.number(), now).get();
                counts_for
                    .get(index)
                    .is_some_and(|span| seen_for >= span.saturating_add(self.guard.get()))
            }
        });
        document.take_chunks(&self.quota_demands, store_time_ms)
    }

    /// Takes the slots and the new end of the lease: the store has confirmed the write at `now`.
    pub fn confirm(&mut self, prepared: PreparedHeartbeat, now: Timestamp) {
        // Twice the longest exchange, so that a write that was sent just before the end is answered before it.
        let exchange = now.since(prepared.read_at).get();
        let lease = Nanos::from(self.terms.lease).get();
        self.guard = Nanos::new(exchange.saturating_mul(2).min(lease / 2)).max(self.guard);
        let held = lease.saturating_sub(self.guard.get());
        self.deadline = prepared.read_at.after(Nanos::new(held));
        let known = self.grant.as_ref();
        let is_calm = known.is_some_and(|grant| {
            grant.slots == prepared.grant.slots && grant.members == prepared.grant.members
        });
        self.calm_beats = if is_calm { self.calm_beats.saturating_add(1) } else { 0 };
        self.slots.clone_from(&prepared.grant.slots);
        self.quotas_known = prepared.document.quotas().to_vec();
        if self.grant.as_ref().is_none_or(|grant| grant.limits != prepared.grant.limits) {
            // Chunks of other limits are void; they stay counted.
            self.budgets = vec![QuotaBudget::default(); prepared.chunks.len()];
        }
        let budgets = self.budgets.iter_mut().zip(&prepared.chunks);
        for ((budget, units), limit) in budgets.zip(prepared.grant.limits.quotas()) {
            let term = quota::term(limit).get().saturating_sub(self.guard.get());
            budget.add(*units, prepared.read_at.after(Nanos::new(term)));
        }
        self.quota_demands.clear();
        self.grant = Some(prepared.grant);
        self.failures = None;
    }

    /// Stops using all slots, before they are given back.
    pub(crate) fn forget(&mut self) {
        self.slots.clear();
        self.deadline = Timestamp::EPOCH;
    }

    /// The slots that it asked for in its last heartbeat.
    pub const fn wants(&self) -> u16 {
        self.wants
    }

    /// How urgently it waits for slots.
    pub fn hunger(&self) -> Hunger {
        let held = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        match &self.grant {
            None => Hunger::Unanswered,
            Some(grant) if held < grant.fair_share => Hunger::BelowShare,
            Some(_) if held < self.wants => Hunger::Hungry,
            // Where members come and go, more of them are expected.
            Some(_) if self.calm_beats < CALM_BEATS => Hunger::Watchful,
            Some(_) => Hunger::Satisfied,
        }
    }

    /// How long to wait between two heartbeats.
    ///
    /// A member with its fair share that wants no more looks rarely; one that waits for slots of others looks often.
    pub fn period(&self) -> Nanos {
        let members = self.grant.as_ref().map_or(1, |grant| grant.members);
        BeatSchedule::period(self.hunger(), members, self.terms.lease.into())
    }
}

/// How urgently a member waits for slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hunger {
    /// No heartbeat was confirmed yet.
    Unanswered,
    /// It holds less than its fair share, and gets the rest when others give it back.
    BelowShare,
    /// It holds its fair share and could use more.
    Hungry,
    /// It holds what it wants, but its slots or the members changed a moment ago.
    Watchful,
    /// It holds what it wants.
    Satisfied,
}

/// What a member reports about its target in a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrakeReport {
    /// The level of its own brake.
    pub level_ppm: u32,
    /// A hold that the target asked for since the last heartbeat.
    pub hold_ms: Option<u64>,
}

impl BrakeReport {
    /// Nothing was throttled.
    pub const NONE: BrakeReport = BrakeReport { level_ppm: Pace::WHOLE, hold_ms: None };
}

/// Since when this member has seen each other member unchanged: expiry for stores without a clock.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    incarnation: Option<(u64, Timestamp)>,
    members: HashMap<u64, (u64, Timestamp)>,
    /// Since when it has seen each chunk of a quota.
    chunks: HashMap<u64, Timestamp>,
}

impl Observer {
    fn observe(&mut self, document: &CapacityDocument, now: Timestamp) {
        if self.incarnation.is_none_or(|(seen, _)| seen != document.incarnation()) {
            self.incarnation = Some((document.incarnation(), now));
            self.members.clear();
        }
        let mut seen = HashMap::with_capacity(self.members.len());
        for (number, beat) in document.beats() {
            let since = match self.members.get(&number) {
                Some(&(same, since)) if same == beat => since,
                _ => now,
            };
            seen.insert(number, (beat, since));
        }
        self.members = seen;
        let numbers = document.quotas().iter().flat_map(|ledger| ledger.chunks());
        let since = |number| self.chunks.get(&number).copied().unwrap_or(now);
        self.chunks = numbers.map(|chunk| (chunk.number(), since(chunk.number()))).collect();
    }

    fn chunk_age(&self, number: u64, now: Timestamp) -> Nanos {
        self.chunks.get(&number).map_or(Nanos::ZERO, |since| now.since(*since))
    }

    fn incarnation_age(&self, now: Timestamp) -> Nanos {
        self.incarnation.map_or(Nanos::ZERO, |(_, since)| now.since(since))
    }

    fn silence(&self, number: u64, now: Timestamp) -> Nanos {
        self.members.get(&number).map_or(Nanos::ZERO, |(_, since)| now.since(*since))
    }
}
