//! The slots that this process holds, and when to renew them.
//!
//! A slot in Redis expires with its lease, so that the slots of a dead process are free soon. A request that takes
//! longer keeps its slot: it is renewed after a third of the lease, and a failed renewal is retried after each ninth.
//! A slot that is held for very long was probably leaked, and is not renewed any more.
//!
//! The slots are in a queue ordered by their next renewal, so a beat costs as much as is due, however many are held.
//! The renewal itself is in `remote`.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::{Holder, Limit, Nanos, Period, Timestamp};

use crate::batch::{Batch, Check, Key};
use crate::fingerprint::Fingerprint;

/// The most slots that are renewed; any others expire with their lease.
const HELD_MAX: usize = 100_000;
/// A slot that is held for longer than this is not renewed any more.
const HOLD_MAX: Nanos = Nanos::from_secs(15 * 60);
/// Slots are renewed after this fraction of their lease (one third).
const RENEW_AT: u64 = 3;
/// A failed renewal is retried after this fraction of the lease (one ninth).
const RETRY_AT: u64 = 9;
/// The longest deadline of a renewal.
const RENEW_WITHIN: Duration = Duration::from_millis(500);

/// A key and a holder.
type HolderKey = (Fingerprint, Holder);

/// The slots that this process holds.
#[derive(Debug, Default)]
pub(super) struct HeldSlots(Mutex<SlotTable>);

#[derive(Debug, Default)]
struct SlotTable {
    slots: HashMap<HolderKey, HolderSlots>,
    /// By next renewal; without the slots that are not renewed any more.
    queue: BTreeSet<(Timestamp, HolderKey)>,
    /// The last instant that `due` was called with.
    last_due: Timestamp,
    renewed: u64,
    lost: u64,
}

/// The slots of one holder on one key.
#[derive(Clone, Debug)]
pub(super) struct HolderSlots {
    pub(super) key: Key,
    pub(super) limit: Limit,
    pub(super) holder: Holder,
    pub(super) cost: u64,
    lease: Option<Period>,
    /// When the slots were taken or renewed last.
    renewed_at: Timestamp,
    /// How long they had been held by then.
    held_for: Nanos,
    /// Their position in the queue.
    next_renewal: Timestamp,
}

/// Counts of held slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldCounts {
    /// Held now.
    pub held: usize,
    /// Renewed so far.
    pub renewed: u64,
    /// Expired before they were renewed, and taken by others since.
    pub lost: u64,
}

impl HolderSlots {
    fn new(check: &Check<'_>, now: Timestamp) -> Self {
        let mut held = HolderSlots {
            key: check.key,
            limit: check.limit.clone(),
            holder: check.holder,
            cost: check.cost,
            lease: check.tenure.lease(),
            renewed_at: now,
            held_for: Nanos::ZERO,
            next_renewal: now,
        };
        held.next_renewal = now.after(held.fraction(RENEW_AT));
        held
    }

    /// The check that took the slots.
    pub(super) fn check(&self) -> Check<'_> {
        let check = Check::new(self.key, &self.limit, self.cost);
        Check { holder: self.holder, tenure: self.lease.into(), ..check }
    }

    /// The deadline of a renewal, unless that of checks is longer: short enough that a retry is in time.
    pub(super) fn renew_within(&self) -> Duration {
        RENEW_WITHIN.min(self.fraction(RENEW_AT).into())
    }

    fn id(&self) -> HolderKey {
        (self.key.fingerprint, self.holder)
    }

    /// How long the slots live without a renewal.
    fn life(&self) -> Nanos {
        let longest = self.limit.algorithm().period();
        self.lease.map_or(longest, |lease| longest.min(lease.as_span()))
    }

    fn fraction(&self, of: u64) -> Nanos {
        Nanos::new(self.life().get() / of)
    }

    /// Whether to renew now. A renewal that lies further ahead than a third of the lease means that the clock was set
    /// back: the age of the slots is unknown, so they are renewed.
    fn is_due(&self, now: Timestamp) -> bool {
        self.next_renewal <= now || self.next_renewal > now.after(self.fraction(RENEW_AT))
    }

    /// Notes a renewal. At most one lease can have passed since the last one, whatever the clock says: otherwise the
    /// slots would have expired.
    fn on_renewed(&mut self, now: Timestamp) {
        let passed = now.since(self.renewed_at).min(self.life());
        self.held_for = Nanos::new(self.held_for.get().saturating_add(passed.get()));
        self.renewed_at = now;
    }
}

impl SlotTable {
    fn insert(&mut self, held: HolderSlots) {
        self.remove(held.id());
        self.queue.insert((held.next_renewal, held.id()));
        self.slots.insert(held.id(), held);
    }

    fn remove(&mut self, id: HolderKey) {
        if let Some(held) = self.slots.remove(&id) {
            self.queue.remove(&(held.next_renewal, id));
        }
    }

    /// The slots to renew now.
    fn due(&mut self, now: Timestamp) -> Vec<HolderKey> {
        let clock_went_back = now < self.last_due;
        self.last_due = now;
        if clock_went_back {
            // The queue's instants may lie far ahead now.
            let due = |held: &&HolderSlots| held.is_due(now) && held.held_for <= HOLD_MAX;
            return self.slots.values().filter(due).map(HolderSlots::id).collect();
        }
        let due = self.queue.iter().take_while(|(next_renewal, _)| *next_renewal <= now);
        due.map(|(_, id)| *id).collect()
    }

    /// Schedules the next renewal after a fraction of the lease.
    fn schedule(&mut self, id: HolderKey, now: Timestamp, fraction: u64) {
        let Some(held) = self.slots.get_mut(&id) else { return };
        self.queue.remove(&(held.next_renewal, id));
        held.next_renewal = now.after(held.fraction(fraction));
        if held.held_for <= HOLD_MAX {
            self.queue.insert((held.next_renewal, id));
        }
    }
}

impl HeldSlots {
    /// Starts renewing the slots of these checks.
    pub(super) fn hold(&self, batch: &Batch<'_>) {
        let mut table = self.0.lock();
        for check in batch.checks {
            if check.limit.algorithm().holds_slots() && table.slots.len() < HELD_MAX {
                table.insert(HolderSlots::new(check, batch.now));
            }
        }
    }

    /// Stops renewing the slots of these checks.
    pub(super) fn release(&self, batch: &Batch<'_>) {
        let mut table = self.0.lock();
        for check in batch.checks {
            table.remove((check.key.fingerprint, check.holder));
        }
    }

    /// The slots to renew now. They are due again after a ninth of their lease, unless [`Self::renewed`] is called.
    pub(super) fn due(&self, now: Timestamp) -> Vec<HolderSlots> {
        let mut table = self.0.lock();
        let due = table.due(now);
        due.iter().for_each(|id| table.schedule(*id, now, RETRY_AT));
        due.iter().filter_map(|id| table.slots.get(id)).cloned().collect()
    }

    /// Notes that slots were renewed at `now`, unless they were released in between.
    pub(super) fn renewed(&self, held: &HolderSlots, now: Timestamp) {
        let mut table = self.0.lock();
        table.renewed += 1;
        if let Some(slots) = table.slots.get_mut(&held.id()) {
            slots.on_renewed(now);
        }
        table.schedule(held.id(), now, RENEW_AT);
    }

    /// Notes that slots were lost.
    pub(super) fn lost(&self, held: &HolderSlots) {
        let mut table = self.0.lock();
        table.lost += 1;
        table.remove(held.id());
    }

    /// Whether they are still held.
    pub(super) fn is_held(&self, held: &HolderSlots) -> bool {
        self.0.lock().slots.contains_key(&held.id())
    }

    pub(super) fn counts(&self) -> HeldCounts {
        let table = self.0.lock();
        HeldCounts { held: table.slots.len(), renewed: table.renewed, lost: table.lost }
    }
}

#[cfg(test)]
mod tests;
