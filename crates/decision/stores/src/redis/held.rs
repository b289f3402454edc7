//! Slots that this process holds, and when to renew them.
//!
//! A slot in Redis comes back by itself when its lease is over, so that a
//! process that dies keeps nothing for long. A request that takes longer still
//! holds its slot: after a third of the lease it is renewed, and tried again
//! every ninth, so that several tries may fail. One that is held for very long
//! was probably forgotten and is renewed no more.
//!
//! The slots stand in a queue by when to look at them again: a beat costs what
//! is due, however many are held. Asking Redis is not here.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::{Holder, Limit, Nanos, Period, Timestamp};

use crate::batch::{Batch, Check, Key};
use crate::fingerprint::Fingerprint;

/// Slots that are looked after at the most; those beyond live once.
const HELD_MAX: usize = 100_000;
/// A slot that is held for longer than this is renewed no more.
const HOLD_MAX: Nanos = Nanos::from_secs(15 * 60);
/// Slots are renewed when this part of their life is over.
const RENEW_AT: u64 = 3;
/// A renewal that nobody confirmed is tried again after this part of the life.
const TRY_AGAIN: u64 = 9;
/// How long a renewal may take at the most.
const RENEW_WITHIN: Duration = Duration::from_millis(500);

/// Whose slots of which key.
type Id = (Fingerprint, Holder);

/// The slots that this process holds.
#[derive(Debug, Default)]
pub(super) struct HeldSlots {
    table: Mutex<Table>,
    renewed: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    slots: HashMap<Id, Held>,
    /// When to look at each again; those that are renewed no more are not here.
    queue: BTreeSet<(Timestamp, Id)>,
    /// The latest instant at which slots were looked for.
    seen: Timestamp,
}

/// One holder's slots.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) key: Key,
    pub(super) limit: Limit,
    pub(super) holder: Holder,
    pub(super) cost: u64,
    lease: Option<Period>,
    /// When the slots were taken or renewed last.
    fresh: Timestamp,
    /// For how long they had been held by then.
    kept: Nanos,
    /// Their place in the queue.
    look_at: Timestamp,
}

/// What became of slots that are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldCounts {
    /// Held now.
    pub held: usize,
    /// Renewed so far.
    pub renewed: u64,
    /// Gone when they were to be renewed, with no room to take them again.
    pub lost: u64,
}

impl Held {
    fn new(check: &Check<'_>, now: Timestamp) -> Self {
        let mut held = Held {
            key: check.key,
            limit: check.limit.clone(),
            holder: check.holder,
            cost: check.cost,
            lease: check.tenure.lease(),
            fresh: now,
            kept: Nanos::ZERO,
            look_at: now,
        };
        held.look_at = now.after(held.part(RENEW_AT));
        held
    }

    /// The check that took the slots.
    pub(super) fn check(&self) -> Check<'_> {
        let check = Check::new(self.key, &self.limit, self.cost);
        Check { holder: self.holder, tenure: self.lease.into(), ..check }
    }

    /// How long a renewal may take, unless checks may take longer: not so long
    /// that none follows in time.
    pub(super) fn renew_within(&self) -> Duration {
        RENEW_WITHIN.min(self.part(RENEW_AT).into())
    }

    fn id(&self) -> Id {
        (self.key.fingerprint, self.holder)
    }

    /// For how long slots live that nobody renews.
    fn life(&self) -> Nanos {
        let longest = self.limit.algorithm().period();
        self.lease.map_or(longest, |lease| longest.min(lease.as_span()))
    }

    fn part(&self, part: u64) -> Nanos {
        Nanos::new(self.life().get() / part)
    }

    /// Slots are never put off for so long, unless by a clock that was put back
    /// since. How old they are is not known then: they are renewed, rather than
    /// lost while somebody holds them.
    fn is_due(&self, now: Timestamp) -> bool {
        self.look_at <= now || self.look_at > now.after(self.part(RENEW_AT))
    }

    /// Renewed at `now`. What passed since the last time is no more than a
    /// life, whatever the clock says, or the slots would have been gone.
    fn freshen(&mut self, now: Timestamp) {
        let passed = now.since(self.fresh).min(self.life());
        self.kept = Nanos::new(self.kept.get().saturating_add(passed.get()));
        self.fresh = now;
    }
}

impl Table {
    fn insert(&mut self, held: Held) {
        self.remove(held.id());
        self.queue.insert((held.look_at, held.id()));
        self.slots.insert(held.id(), held);
    }

    fn remove(&mut self, id: Id) {
        if let Some(held) = self.slots.remove(&id) {
            self.queue.remove(&(held.look_at, id));
        }
    }

    /// The slots to renew now.
    fn due(&mut self, now: Timestamp) -> Vec<Id> {
        let put_back = now < self.seen;
        self.seen = now;
        if put_back {
            // The queue goes by instants that may be far off now.
            let due = |held: &&Held| held.is_due(now) && held.kept <= HOLD_MAX;
            return self.slots.values().filter(due).map(Held::id).collect();
        }
        let due = self.queue.iter().take_while(|(look_at, _)| *look_at <= now);
        due.map(|(_, id)| *id).collect()
    }

    /// Looks at slots again after a part of their life.
    fn put_off(&mut self, id: Id, now: Timestamp, part: u64) {
        let Some(held) = self.slots.get_mut(&id) else { return };
        self.queue.remove(&(held.look_at, id));
        held.look_at = now.after(held.part(part));
        if held.kept <= HOLD_MAX {
            self.queue.insert((held.look_at, id));
        }
    }
}

impl HeldSlots {
    /// Looks after the slots of these checks from now on.
    pub(super) fn hold(&self, batch: &Batch<'_>) {
        let mut table = self.table.lock();
        for check in batch.checks {
            let is_slot = check.limit.algorithm().holds_slots();
            if is_slot && table.slots.len() < HELD_MAX {
                table.insert(Held::new(check, batch.now));
            }
        }
    }

    /// They are given back.
    pub(super) fn release(&self, batch: &Batch<'_>) {
        let mut table = self.table.lock();
        for check in batch.checks {
            table.remove((check.key.fingerprint, check.holder));
        }
    }

    /// The slots to renew now. Those that nobody says to be
    /// [renewed](Self::renewed) are told again a little later.
    pub(super) fn due(&self, now: Timestamp) -> Vec<Held> {
        let mut table = self.table.lock();
        let due = table.due(now);
        due.iter().for_each(|id| table.put_off(*id, now, TRY_AGAIN));
        due.iter().filter_map(|id| table.slots.get(id)).cloned().collect()
    }

    /// Notes that slots were renewed at `now`, unless they were given back meanwhile.
    pub(super) fn renewed(&self, held: &Held, now: Timestamp) {
        self.renewed.fetch_add(1, Ordering::Relaxed);
        let mut table = self.table.lock();
        if let Some(known) = table.slots.get_mut(&held.id()) {
            known.freshen(now);
        }
        table.put_off(held.id(), now, RENEW_AT);
    }

    /// Notes that slots are gone.
    pub(super) fn lost(&self, held: &Held) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        self.table.lock().remove(held.id());
    }

    /// Whether they are held still.
    pub(super) fn is_held(&self, held: &Held) -> bool {
        self.table.lock().slots.contains_key(&held.id())
    }

    pub(super) fn counts(&self) -> HeldCounts {
        HeldCounts {
            held: self.table.lock().slots.len(),
            renewed: self.renewed.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
