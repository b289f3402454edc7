//! Limits that are decided here, from slices taken ahead.
//!
//! A slice is charged at the remote before any unit of it is used, so the sum
//! over all nodes never exceeds the limit, whatever crashes: a node that dies
//! takes unused units with it, and nobody uses them. The price is a limit that
//! is a little tighter; [`super::terms`] says by how much.
//!
//! Renewing and giving back happen in the background, many keys at a time:
//! when few units are left, and before the last slice ends. A request waits only
//! when its slice is used up. Slices follow the demand, and shrink when little
//! is left at the remote.

mod demand;
mod ends;
mod one_key;
mod slices;

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_algorithms::{Decision, Limit, Nanos, Timestamp};

use super::keyed::Keyed;
use super::terms::Terms;
use crate::batch::{Check, Key};
use crate::fingerprint::Fingerprint;
use ends::Ends;
use one_key::Lease;
pub(crate) use one_key::{Leaving, Spend};
pub(crate) use slices::SLIP;

/// What this node holds of every leased key.
#[derive(Debug)]
pub(crate) struct Leases {
    held: Keyed<Lease>,
    ends: Ends,
    /// Counts how often the clock turned out not to go on by itself; slices of
    /// another era are worth nothing.
    era: AtomicU64,
    /// For how long an empty remote is not asked again, at the most.
    empty: Nanos,
    renewed: AtomicU64,
    returned: AtomicU64,
    lost: AtomicU64,
}

/// Units to take or to give back.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) key: Key,
    /// The tightened limit, as the remote is asked.
    pub(crate) limit: Limit,
    pub(crate) units: u64,
}

/// What leases have come to, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Keys that this node holds slices of.
    pub keys: usize,
    /// Held and not used yet.
    pub held: u64,
    /// Slices taken.
    pub renewed: u64,
    /// Units given back.
    pub returned: u64,
    /// Units that ended unused and could not be given back.
    pub lost: u64,
}

impl Leases {
    /// Leases of about so many keys at the most.
    pub(crate) fn new(keys_max: usize, empty: Nanos) -> Self {
        Leases {
            held: Keyed::new(keys_max),
            // Keys that were forgotten may still stand there for a life.
            ends: Ends::new(keys_max.saturating_mul(2)),
            era: AtomicU64::new(0),
            empty,
            renewed: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Pays a check from what is held and lives until `lasting` after `now`:
    /// whoever goes on to wait must not use what dies meanwhile.
    #[inline]
    pub(crate) fn spend(&self, check: &Check<'_>, now: Timestamp, lasting: Nanos) -> Spend {
        let key = check.key.fingerprint;
        let mut part = self.held.lock(key);
        let part = &mut *part;
        let Some(lease) = part.values.get_mut(&key) else { return Spend::Short };
        if lease.era != self.era.load(Ordering::Relaxed) || lease.limit != *check.limit {
            return Spend::Short;
        }
        self.lose(lease.bury(now));
        if lease.lives_at(now.after(lasting)) < check.cost && check.cost <= lease.units() {
            return Spend::Short;
        }
        let spend = lease.spend(check.cost, now);
        if let Spend::Paid { low: true, .. } = spend {
            lease.marked = true;
            part.marked.push(key);
        }
        spend
    }

    /// Puts back what a check had paid when its request was refused after all.
    pub(crate) fn put_back(&self, check: &Check<'_>, dies: Timestamp) {
        let mut part = self.held.lock(check.key.fingerprint);
        let lease = part.values.get_mut(&check.key.fingerprint);
        if !lease.is_some_and(|lease| lease.put_back(check.cost, dies)) {
            self.lose(check.cost);
        }
    }

    /// How much to take for a check that cannot be paid.
    pub(crate) fn ask(&self, check: &Check<'_>, now: Timestamp) -> u64 {
        let mut part = self.held.lock(check.key.fingerprint);
        match part.values.get_mut(&check.key.fingerprint) {
            Some(lease) if lease.limit == *check.limit => lease.ask(check.cost, now),
            // A key that nobody knows may be asked for once and never again.
            _ => check.cost,
        }
    }

    /// Takes in what the remote gave for a check, and pays it if that suffices.
    pub(crate) fn settle(
        &self,
        check: &Check<'_>,
        terms: &Terms,
        told: &Decision,
        sent: Timestamp,
        nodes: usize,
    ) -> (Decision, Timestamp) {
        let key = check.key.fingerprint;
        self.renewed.fetch_add(u64::from(told.taken > 0), Ordering::Relaxed);
        let mut part = self.held.lock(key);
        let era = self.era.load(Ordering::Relaxed);
        let fresh = || Lease::new(check.key, check.limit.clone(), terms.clone(), era);
        let mut passing = fresh();
        let room = part.has_room();
        let kept = room || part.values.contains_key(&key);
        let lease = match part.values.get_mut(&key) {
            Some(lease) => lease,
            None if room => part.values.entry(key).or_insert_with(fresh),
            // Without a place to keep it the rest of the slice is lost.
            None => &mut passing,
        };
        if lease.limit != *check.limit || lease.era != era {
            self.lose(lease.units());
            *lease = fresh();
        }
        self.lose(lease.bury(sent));
        lease.grant(told, sent, to_u64(nodes), self.empty);
        if kept {
            self.watch(lease);
        }
        let (decision, dies) = match lease.spend(check.cost, sent) {
            Spend::Paid { decision, dies, .. } => (decision, dies),
            Spend::Refused(decision) => (decision, Timestamp::EPOCH),
            Spend::Short => (lease.refused(check.cost, sent), Timestamp::EPOCH),
        };
        self.lose(passing.units());
        (decision, dies)
    }

    /// The remote did not answer for a check.
    pub(crate) fn unanswered(&self, key: Fingerprint) {
        if let Some(lease) = self.held.lock(key).values.get_mut(&key) {
            lease.unanswered();
        }
    }

    /// What is held of a key, which its peek may count as left.
    pub(crate) fn units(&self, check: &Check<'_>, now: Timestamp) -> u64 {
        let mut part = self.held.lock(check.key.fingerprint);
        let Some(lease) = part.values.get_mut(&check.key.fingerprint) else { return 0 };
        self.lose(lease.bury(now));
        lease.units()
    }

    /// Forgets a key: it was reset, and what is held of it is void.
    pub(crate) fn forget(&self, key: Fingerprint) {
        if let Some(lease) = self.held.lock(key).values.remove(&key) {
            self.lose(lease.units());
        }
    }

    /// Slices that are due, up to so many keys.
    pub(crate) fn due(&self, keys_max: usize, now: Timestamp) -> Vec<Errand> {
        self.mark_ending(keys_max, now);
        let mut errands = Vec::new();
        for mut part in self.held.parts_in_turn() {
            let part = &mut *part;
            let some = part.marked.len().min(keys_max.saturating_sub(errands.len()));
            for key in part.marked.drain(..some) {
                let Some(lease) = part.values.get_mut(&key) else { continue };
                let (key, limit) = (lease.key, lease.terms.tightened.clone());
                errands.push(Errand { key, limit, units: lease.ask(0, now) });
            }
        }
        errands.retain(|errand| errand.units > 0);
        errands
    }

    /// Marks keys whose last slice is about to end, if they are in use.
    fn mark_ending(&self, keys_max: usize, now: Timestamp) {
        for key in self.ends.due(keys_max, now) {
            let mut part = self.held.lock(key);
            let part = &mut *part;
            let Some(lease) = part.values.get_mut(&key) else { continue };
            lease.watched = false;
            if lease.look_at().is_some_and(|at| at > now) {
                self.watch(lease);
            } else if lease.is_wanted(now) {
                lease.marked = true;
                part.marked.push(key);
            }
        }
    }

    /// Has somebody look at a key before its last slice ends.
    fn watch(&self, lease: &mut Lease) {
        if lease.watched {
            return;
        }
        if let Some(at) = lease.look_at() {
            lease.watched = self.ends.note(lease.key.fingerprint, at);
        }
    }

    /// Takes in what the remote gave for an errand.
    pub(crate) fn renewed(
        &self,
        errand: &Errand,
        told: &Decision,
        sent: Timestamp,
        now: Timestamp,
        nodes: usize,
    ) {
        let key = errand.key.fingerprint;
        let mut part = self.held.lock(key);
        let era = self.era.load(Ordering::Relaxed);
        match part.values.get_mut(&key) {
            Some(lease) if lease.terms.tightened == errand.limit && lease.era == era => {
                self.renewed.fetch_add(u64::from(told.taken > 0), Ordering::Relaxed);
                self.lose(lease.bury(now));
                lease.grant(told, sent, to_u64(nodes), self.empty);
                self.watch(lease);
            }
            _ => self.lose(told.taken),
        }
    }

    /// What should be given back, from the `turn`th of `turns` parts, of keys
    /// that the remote can be asked for.
    pub(crate) fn leaving(
        &self,
        now: Timestamp,
        leaving: Leaving,
        turn: usize,
        turns: usize,
        may_ask: impl Fn(Key) -> bool,
    ) -> Vec<Errand> {
        let era = self.era.load(Ordering::Relaxed);
        let mut errands = Vec::new();
        for mut part in self.held.parts_of_turn(turn, turns) {
            part.values.retain(|_, lease| {
                self.lose(lease.bury(now));
                if lease.era != era {
                    self.lose(lease.units());
                    return false;
                }
                if lease.units() > 0 && !may_ask(lease.key) {
                    return true;
                }
                let (units, lost) = lease.give_back(now, leaving);
                self.lose(lost);
                if units > 0 {
                    let (key, limit) = (lease.key, lease.terms.tightened.clone());
                    errands.push(Errand { key, limit, units });
                }
                !lease.is_idle(now)
            });
            let part = &mut *part;
            part.marked.retain(|key| part.values.contains_key(key));
        }
        errands
    }

    /// Units were given back.
    pub(crate) fn returned(&self, units: u64) {
        self.returned.fetch_add(units, Ordering::Relaxed);
    }

    /// Units ended unused.
    pub(crate) fn lose(&self, units: u64) {
        if units > 0 {
            self.lost.fetch_add(units, Ordering::Relaxed);
        }
    }

    /// The clock was put back: nobody knows how old slices are.
    pub(crate) fn void(&self) {
        self.era.fetch_add(1, Ordering::Relaxed);
        self.ends.clear();
    }

    /// What it has come to; looks at every part in turn.
    pub(crate) fn counts(&self) -> LeaseCounts {
        let mut counts = LeaseCounts {
            renewed: self.renewed.load(Ordering::Relaxed),
            returned: self.returned.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            ..LeaseCounts::default()
        };
        for part in self.held.parts() {
            counts.keys += part.values.len();
            let held = part.values.values().map(Lease::units);
            counts.held = held.fold(counts.held, u64::saturating_add);
        }
        counts
    }
}

fn to_u64(nodes: usize) -> u64 {
    u64::try_from(nodes).unwrap_or(u64::MAX)
}
