//! Slots that somebody holds for longer than they live.
//!
//! A slot in Redis comes back by itself when its time to live is over, so that
//! a process that dies keeps nothing. A request that takes longer still holds
//! its slot: once half of its life is over, the slot is renewed. One that is
//! held for very long was probably forgotten and is renewed no more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::{Algorithm, Holder, Limit, Nanos, Timestamp};

use crate::batch::{Batch, Check, Key};
use crate::fingerprint::Fingerprint;

/// Slots that are looked after at the most; those beyond live once.
const HELD_MAX: usize = 100_000;
/// A slot that is held for longer than this is renewed no more.
const HOLD_MAX: Nanos = Nanos::from_secs(15 * 60);

/// The slots that this process holds.
#[derive(Debug, Default)]
pub(super) struct HeldSlots {
    slots: Mutex<HashMap<(Fingerprint, Holder), Held>>,
    renewed: AtomicU64,
    lost: AtomicU64,
}

/// One holder's slots.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) key: Key,
    pub(super) limit: Limit,
    pub(super) holder: Holder,
    pub(super) cost: u64,
    /// When the slots were taken or renewed last.
    fresh: Timestamp,
    /// For how long they had been held by then.
    kept: Nanos,
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
    /// The check that took the slots.
    pub(super) fn check(&self) -> Check<'_> {
        Check { holder: self.holder, ..Check::new(self.key, &self.limit, self.cost) }
    }

    /// A clock that was put back says nothing of how old the slots are: they are
    /// renewed, rather than lost while somebody holds them.
    fn is_due(&self, now: Timestamp) -> bool {
        let half = self.limit.algorithm().period().get() / 2;
        let is_old = now < self.fresh || now.since(self.fresh).get() >= half;
        is_old && self.kept <= HOLD_MAX
    }

    /// Renewed at `now`. What passed since the last time is no more than a
    /// life, whatever the clock says, or the slots would have been gone.
    fn freshen(&mut self, now: Timestamp) {
        let passed = now.since(self.fresh).min(self.limit.algorithm().period());
        self.kept = Nanos::new(self.kept.get().saturating_add(passed.get()));
        self.fresh = now;
    }
}

impl HeldSlots {
    /// Looks after the slots of these checks from now on.
    pub(super) fn hold(&self, batch: &Batch<'_>) {
        let mut slots = self.slots.lock();
        for check in batch.checks {
            if !matches!(check.limit.algorithm(), Algorithm::Concurrency(_))
                || slots.len() >= HELD_MAX
            {
                continue;
            }
            let held = Held {
                key: check.key,
                limit: check.limit.clone(),
                holder: check.holder,
                cost: check.cost,
                fresh: batch.now,
                kept: Nanos::ZERO,
            };
            slots.insert((check.key.fingerprint, check.holder), held);
        }
    }

    /// They are given back.
    pub(super) fn release(&self, batch: &Batch<'_>) {
        let mut slots = self.slots.lock();
        for check in batch.checks {
            slots.remove(&(check.key.fingerprint, check.holder));
        }
    }

    /// The slots to renew now.
    pub(super) fn due(&self, now: Timestamp) -> Vec<Held> {
        self.slots.lock().values().filter(|held| held.is_due(now)).cloned().collect()
    }

    /// Notes that slots were renewed at `now`, unless they were given back meanwhile.
    pub(super) fn renewed(&self, held: &Held, now: Timestamp) {
        self.renewed.fetch_add(1, Ordering::Relaxed);
        if let Some(known) = self.slots.lock().get_mut(&(held.key.fingerprint, held.holder)) {
            known.freshen(now);
        }
    }

    /// Notes that slots are gone.
    pub(super) fn lost(&self, held: &Held) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        self.slots.lock().remove(&(held.key.fingerprint, held.holder));
    }

    /// Whether they are held still.
    pub(super) fn is_held(&self, held: &Held) -> bool {
        self.slots.lock().contains_key(&(held.key.fingerprint, held.holder))
    }

    pub(super) fn counts(&self) -> HeldCounts {
        HeldCounts {
            held: self.slots.lock().len(),
            renewed: self.renewed.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_algorithms::{Concurrency, Period};

    use super::*;
    use crate::batch::{Charge, Verb};
    use crate::fingerprint::Fingerprinter;

    const START: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn after(seconds: u64) -> Timestamp {
        START.after(Nanos::from_secs(seconds))
    }

    fn limit() -> Limit {
        let ten_seconds = Period::new(Duration::from_secs(10)).expect("in range");
        Limit::new(Concurrency::new(3, ten_seconds).expect("small"))
    }

    fn check(limit: &Limit) -> Check<'_> {
        let key = Key { fingerprint: Fingerprinter::shared().of(1, b"a"), group: 1 };
        Check { holder: Holder(7), ..Check::new(key, limit, 1) }
    }

    fn holding() -> HeldSlots {
        let (limit, slots) = (limit(), HeldSlots::default());
        let checks = [check(&limit)];
        slots.hold(&Batch::new(Verb::Refund, Charge::AllOrNothing, START, &checks));
        slots
    }

    #[test]
    fn slots_are_due_at_half_their_life_until_they_are_given_back() {
        let limit = limit();
        let checks = [check(&limit)];
        let batch = Batch::new(Verb::Refund, Charge::AllOrNothing, START, &checks);
        let slots = HeldSlots::default();
        slots.hold(&batch);
        assert!(slots.due(after(4)).is_empty());
        let due = slots.due(after(5));
        assert_eq!(due.len(), 1);
        slots.renewed(&due[0], after(5));
        assert!(slots.due(after(9)).is_empty());
        assert_eq!(slots.due(after(10)).len(), 1);
        slots.release(&batch);
        assert!(slots.due(after(10)).is_empty() && !slots.is_held(&due[0]));
        assert_eq!(slots.counts(), HeldCounts { held: 0, renewed: 1, lost: 0 });
    }

    #[test]
    fn slots_that_were_forgotten_are_let_go_after_a_quarter_of_an_hour() {
        let slots = holding();
        for beat in 1..=181 {
            let due = slots.due(after(5 * beat));
            assert_eq!(due.len(), 1, "at {} seconds", 5 * beat);
            slots.renewed(&due[0], after(5 * beat));
        }
        assert!(slots.due(after(5 * 182)).is_empty());
    }

    #[test]
    fn a_clock_that_jumps_neither_keeps_slots_from_being_renewed_nor_ages_them() {
        let slots = holding();
        let hour = 3_600;
        let back = Timestamp::from_nanos(START.as_nanos() - 3_600_000_000_000);
        for now in [after(hour), START, back, after(hour)] {
            let due = slots.due(now);
            assert_eq!(due.len(), 1, "at {now:?}");
            slots.renewed(&due[0], now);
        }
    }
}
