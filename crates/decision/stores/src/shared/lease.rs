//! Leased limits: decided locally, from slices that were charged ahead.
//!
//! A slice is charged at the remote before any of its units is used, so the sum over all nodes never exceeds the limit,
//! even if a node crashes: its unused units are lost. The price is a slightly tighter limit; see
//! [`super::lease_terms`].
//!
//! A key that is used rarely is not leased: each check is one call, as for an exact limit. A check that has to call
//! takes a slice if the recent rate of the key says that the slice saves further calls. Background work renews the
//! slices of busy keys when few units remain or the last slice is about to expire, and returns unused units, many keys
//! in one batch. A request for a busy key waits only if its slice is used up sooner than expected. The size of a slice
//! follows the demand, and shrinks when little remains at the remote.

mod demand;
mod expiry_queue;
mod key_lease;
mod slices;

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_algorithms::{Decision, Nanos, Timestamp};

use super::lease_terms::LeaseTerms;
use super::sharded_map::ShardedMap;
use super::transfer::Transfer;
use crate::batch::{Check, Key};
use crate::fingerprint::Fingerprint;
use expiry_queue::ExpiryQueue;
use key_lease::{GrantContext, KeyLease};
pub(crate) use key_lease::{ReturnOptions, SpendOutcome, TakePlan};
pub(crate) use slices::CLOCK_SLACK;

/// The usual wait of a request for the remote, beyond some round trips.
const WAIT: Nanos = Nanos::from_millis(10);
/// The smoothed round trip falls by this fraction of the difference, and rises at once: a renewal that is asked for too
/// late makes requests wait, one that is too early makes them a little more frequent.
const SMOOTHED: u64 = 8;

/// The slices of this node, for all leased keys.
#[derive(Debug)]
pub(crate) struct Leases {
    by_key: ShardedMap<KeyLease>,
    expiries: ExpiryQueue,
    /// Incremented when the clock was set back; slices of an earlier era are void.
    era: AtomicU64,
    /// The longest pause before an empty remote is called again.
    pause_max: Nanos,
    /// How long the remote takes to answer, in nanoseconds, smoothed.
    round_trip: AtomicU64,
    renewed: AtomicU64,
    returned: AtomicU64,
    lost: AtomicU64,
}

/// When a slice was asked for and when it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantTimes {
    pub(crate) sent: Timestamp,
    pub(crate) replied: Timestamp,
}

/// Counts of leased units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Keys of which this node holds slices.
    pub keys: usize,
    /// Units that are held and not used yet.
    pub held: u64,
    /// Slices that were taken.
    pub renewed: u64,
    /// Units that were returned unused.
    pub returned: u64,
    /// Units that expired unused.
    pub lost: u64,
}

impl Leases {
    /// Leases of about `keys_max` keys.
    pub(crate) fn new(keys_max: usize, pause_max: Nanos) -> Self {
        Leases {
            by_key: ShardedMap::new(keys_max),
            // Removed keys stay in the queue until their time has come.
            expiries: ExpiryQueue::new(keys_max.saturating_mul(2)),
            era: AtomicU64::new(0),
            pause_max,
            round_trip: AtomicU64::new(0),
            renewed: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Pays a check from units that do not expire within `lasting`: a request that goes on to wait must not use units
    /// that expire meanwhile.
    #[inline]
    pub(crate) fn spend(&self, check: &Check<'_>, now: Timestamp, lasting: Nanos) -> SpendOutcome {
        let key = check.key.fingerprint;
        let mut shard = self.by_key.lock(key);
        let shard = &mut *shard;
        let Some(lease) = shard.values.get_mut(&key) else { return SpendOutcome::Short };
        if lease.era != self.era() || lease.limit != *check.limit {
            return SpendOutcome::Short;
        }
        self.count_lost(lease.drop_expired(now));
        if lease.units_at(now.after(lasting)) < check.cost && check.cost <= lease.units() {
            return SpendOutcome::Short;
        }
        let spend = lease.spend(check.cost, now);
        if let SpendOutcome::Paid { low: true, .. } = spend {
            lease.marked = true;
            shard.marked.push(key);
        }
        spend
    }

    /// Puts back the units of a check whose request another check refused.
    pub(crate) fn put_back(&self, check: &Check<'_>, expires: Timestamp) {
        let put_back = |lease: &mut KeyLease| lease.put_back(check.cost, expires);
        if self.by_key.with(check.key.fingerprint, put_back) != Some(true) {
            self.count_lost(check.cost);
        }
    }

    /// How many units to take for a check that cannot be paid.
    pub(crate) fn take_for_check(&self, check: &Check<'_>, now: Timestamp) -> TakePlan {
        let plan = self.by_key.with(check.key.fingerprint, |lease| {
            let is_current = lease.limit == *check.limit && lease.era == self.era();
            is_current.then(|| lease.take_for_check(check.cost, now))
        });
        // Nothing is known about a new key, which may never be used again.
        plan.flatten().unwrap_or(TakePlan::exact(check.cost))
    }

    /// Notes how long the remote took to answer.
    pub(crate) fn note_round_trip(&self, took: Nanos) {
        let (known, took) = (self.round_trip.load(Ordering::Relaxed), took.get());
        let smoothed = if took > known { took } else { known - (known - took) / SMOOTHED };
        self.round_trip.store(smoothed, Ordering::Relaxed);
    }

    /// How long a request usually waits for the remote, at most.
    pub(crate) fn usual_wait(&self) -> Nanos {
        let trips = self.round_trip.load(Ordering::Relaxed).saturating_mul(4);
        Nanos::new(WAIT.get().saturating_add(trips))
    }

    #[inline]
    fn era(&self) -> u64 {
        self.era.load(Ordering::Relaxed)
    }

    fn grant_context(&self, nodes: usize) -> GrantContext {
        let round_trip = Nanos::new(self.round_trip.load(Ordering::Relaxed));
        GrantContext { nodes: nodes as u64, pause_max: self.pause_max, round_trip }
    }

    /// Adds the slice that the remote granted for a check, and pays the check if that suffices. Also returns when the
    /// units expire that pay it, or `None` if the check is paid by the remote's own decision or not at all.
    pub(crate) fn grant_and_spend(
        &self,
        check: &Check<'_>,
        terms: &LeaseTerms,
        granted: &Decision,
        GrantTimes { sent, replied }: GrantTimes,
        nodes: usize,
    ) -> (Decision, Option<Timestamp>) {
        let key = check.key.fingerprint;
        self.renewed.fetch_add(u64::from(granted.taken > 0), Ordering::Relaxed);
        let mut shard = self.by_key.lock(key);
        let era = self.era();
        let fresh = || KeyLease::new(check.key, check.limit.clone(), terms.clone(), era, sent);
        // If the map is full, the rest of the slice is lost.
        let mut unstored = None;
        let (lease, is_stored) = match shard.get_or_insert(key, fresh) {
            Some(lease) => (lease, true),
            None => (unstored.insert(fresh()), false),
        };
        if lease.limit != *check.limit || lease.era != era {
            self.count_lost(lease.units());
            *lease = fresh();
        }
        self.count_lost(lease.drop_expired(sent));
        lease.grant(granted, sent, self.grant_context(nodes));
        let mut lost = lease.drop_expired(replied);
        let (decision, expires) = match lease.spend(check.cost, replied) {
            SpendOutcome::Paid { decision, expires, .. } => (decision, Some(expires)),
            // Its units have expired on the way, or their window ends, but the remote has charged the check itself.
            SpendOutcome::Refused(_) | SpendOutcome::Short if granted.taken >= check.cost => {
                lost = lost.saturating_sub(check.cost);
                (lease.admission(check.cost, replied), None)
            }
            SpendOutcome::Refused(decision) => (decision, None),
            SpendOutcome::Short => (lease.refusal(check.cost, replied), None),
        };
        self.count_lost(lost);
        if is_stored {
            self.queue_expiry(lease, replied);
        }
        self.count_lost(unstored.map_or(0, |lease| lease.units()));
        (decision, expires)
    }

    /// Notes that the remote did not answer for a key.
    pub(crate) fn on_no_answer(&self, key: Fingerprint) {
        self.by_key.with(key, KeyLease::on_no_answer);
    }

    /// The units that are held of a key; a peek counts them as remaining.
    pub(crate) fn units(&self, check: &Check<'_>, now: Timestamp) -> u64 {
        let units = self.by_key.with(check.key.fingerprint, |lease| {
            self.count_lost(lease.drop_expired(now));
            lease.units()
        });
        units.unwrap_or(0)
    }

    /// Removes a key that was reset; its units are void.
    pub(crate) fn forget(&self, key: Fingerprint) {
        if let Some(lease) = self.by_key.lock(key).values.remove(&key) {
            self.count_lost(lease.units());
        }
    }

    /// The transfers that renew the leases that are due, for up to `keys_max` keys.
    pub(crate) fn due(&self, keys_max: usize, now: Timestamp) -> Vec<Transfer> {
        self.mark_expiring(keys_max, now);
        let mut transfers = Vec::new();
        for mut shard in self.by_key.shards_in_rotation() {
            let shard = &mut *shard;
            let some = shard.marked.len().min(keys_max.saturating_sub(transfers.len()));
            for key in shard.marked.drain(..some) {
                let Some(lease) = shard.values.get_mut(&key) else { continue };
                let units = lease.take_ahead(now);
                transfers.extend(lease.transfer(units));
            }
        }
        transfers
    }

    /// Marks keys whose last slice is about to expire, if they are in use.
    fn mark_expiring(&self, keys_max: usize, now: Timestamp) {
        for key in self.expiries.due(keys_max, now) {
            let mut shard = self.by_key.lock(key);
            let shard = &mut *shard;
            let Some(lease) = shard.values.get_mut(&key) else { continue };
            lease.is_queued = false;
            if lease.check_at().is_some_and(|at| at > now) {
                self.queue_expiry(lease, now);
            } else if lease.is_wanted(now) {
                lease.marked = true;
                shard.marked.push(key);
            }
        }
    }

    /// Queues a key to be checked before its last slice expires, unless it is used too rarely to be renewed.
    fn queue_expiry(&self, lease: &mut KeyLease, now: Timestamp) {
        if lease.is_queued || !lease.pays_ahead(now) {
            return;
        }
        if let Some(at) = lease.check_at() {
            lease.is_queued = self.expiries.push(lease.key.fingerprint, at);
        }
    }

    /// Adds the slice that the remote granted for a transfer that was sent at `now`.
    pub(crate) fn on_renewed(
        &self,
        transfer: &Transfer,
        granted: &Decision,
        now: Timestamp,
        nodes: usize,
    ) {
        let key = transfer.key.fingerprint;
        let mut shard = self.by_key.lock(key);
        let era = self.era();
        match shard.values.get_mut(&key) {
            Some(lease) if lease.terms.tightened == transfer.limit && lease.era == era => {
                self.renewed.fetch_add(u64::from(granted.taken > 0), Ordering::Relaxed);
                self.count_lost(lease.drop_expired(now));
                lease.grant(granted, now, self.grant_context(nodes));
                self.queue_expiry(lease, now);
            }
            _ => self.count_lost(granted.taken),
        }
    }

    /// Takes the units to return, from every `turns`th shard starting at number `turn`, of keys that the remote can
    /// be called for.
    pub(crate) fn take_returnable(
        &self,
        now: Timestamp,
        options: ReturnOptions,
        turn: usize,
        turns: usize,
        is_reachable: impl Fn(Key) -> bool,
    ) -> Vec<Transfer> {
        let era = self.era();
        let mut transfers = Vec::new();
        for mut shard in self.by_key.shards_of_turn(turn, turns) {
            shard.values.retain(|_, lease| {
                self.count_lost(lease.drop_expired(now));
                if lease.era != era {
                    self.count_lost(lease.units());
                    return false;
                }
                if lease.units() > 0 && !is_reachable(lease.key) {
                    return true;
                }
                let (units, lost) = lease.take_returnable(now, options);
                self.count_lost(lost);
                transfers.extend(lease.transfer(units));
                !lease.is_idle(now)
            });
            let shard = &mut *shard;
            shard.marked.retain(|key| shard.values.contains_key(key));
        }
        transfers
    }

    /// Counts units that were returned.
    pub(crate) fn count_returned(&self, units: u64) {
        self.returned.fetch_add(units, Ordering::Relaxed);
    }

    /// Counts units that expired unused.
    pub(crate) fn count_lost(&self, units: u64) {
        if units > 0 {
            self.lost.fetch_add(units, Ordering::Relaxed);
        }
    }

    /// Voids all slices: the clock was set back, so their age is unknown.
    pub(crate) fn invalidate(&self) {
        self.era.fetch_add(1, Ordering::Relaxed);
        self.expiries.clear();
    }

    /// The counts; visits every shard.
    pub(crate) fn counts(&self) -> LeaseCounts {
        let mut counts = LeaseCounts {
            renewed: self.renewed.load(Ordering::Relaxed),
            returned: self.returned.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            ..LeaseCounts::default()
        };
        for shard in self.by_key.shards() {
            counts.keys += shard.values.len();
            let held = shard.values.values().map(KeyLease::units);
            counts.held = held.fold(counts.held, u64::saturating_add);
        }
        counts
    }
}
