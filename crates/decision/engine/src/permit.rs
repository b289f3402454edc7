//! Slots of concurrency limits that give themselves back.
//!
//! Where the store decides on the calling thread, a permit is made before the store is asked and
//! lists every slot that may be taken. Slots are then taken as held, until they are given back:
//! whatever goes wrong from there on, panics included, the permit is dropped and gives them back.
//! Those that were not taken after all are taken from the list again; giving back one that nobody
//! took changes nothing.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::{Clock, Concurrency, Holder, Limit, Period, Tenure};
use tidegate_rules::LimitId;
use tidegate_stores::{Batch, Charge, Check, CounterStore, Key, MemoryStore, Verb};

use crate::clock::SystemClock;
use crate::engine::Engine;
use crate::loaded::Loaded;
use crate::verdict::Ruling;

/// The slots that an admitted request holds. Dropping it gives them back.
#[must_use = "the slots are given back when the permit is dropped"]
pub struct Permit<S: CounterStore = MemoryStore, C: Clock = SystemClock> {
    engine: Arc<Engine<S, C>>,
    /// The rules that they were taken by, for a store that has to know.
    loaded: Option<Arc<Loaded>>,
    slots: HeldSlots,
}

/// What a request holds; one limit of requests in flight is common.
pub(crate) type HeldSlots = SmallVec<[Held; 1]>;

/// Slots of a concurrency limit that must be given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    limit: LimitId,
    /// The place of their check among those of the request.
    place: u32,
    key: Key,
    holder: Holder,
    cost: u64,
}

/// How a request takes slots, and where it lists them.
#[derive(Debug)]
pub(crate) struct Taking<'p> {
    pub(crate) tenure: Tenure,
    pub(crate) slots: &'p mut HeldSlots,
}

/// Lists the slots that checks may take, each with its limit if it is a rule's.
#[inline]
pub(crate) fn list_slots<'c>(
    slots: &mut HeldSlots,
    checks: impl Iterator<Item = (Option<LimitId>, Check<'c>)>,
) {
    for (place, (limit, check)) in (0_u32..).zip(checks) {
        let Check { key, holder, cost, .. } = check;
        if let Some(limit) = limit.filter(|_| holder != Holder::default()) {
            slots.push(Held { limit, place, key, holder, cost });
        }
    }
}

/// Leaves of the listed slots those that were taken, by the rulings of all that was listed.
#[inline]
pub(crate) fn keep_taken(slots: &mut HeldSlots, rulings: &[Ruling]) {
    slots.retain(|held| {
        let ruling = usize::try_from(held.place).ok().and_then(|place| rulings.get(place));
        held.cost = ruling.map_or(0, |ruling| ruling.decision.taken);
        held.cost > 0
    });
}

impl<S: CounterStore, C: Clock> Permit<S, C> {
    /// For slots of a store on the calling thread, which are still to be taken.
    #[inline]
    pub(crate) fn empty(engine: &Arc<Engine<S, C>>) -> Self {
        Permit { engine: Arc::clone(engine), loaded: None, slots: SmallVec::new() }
    }

    /// Lists what is taken from now on, for so long.
    #[inline]
    pub(crate) const fn taking(&mut self, tenure: Tenure) -> Taking<'_> {
        Taking { tenure, slots: &mut self.slots }
    }

    /// For slots that were taken by these rules.
    pub(crate) fn of(engine: &Arc<Engine<S, C>>, loaded: &Arc<Loaded>, slots: HeldSlots) -> Self {
        let loaded = (!slots.is_empty()).then(|| Arc::clone(loaded));
        Permit { engine: Arc::clone(engine), loaded, slots }
    }

    /// Keeps the slots alive from now on; they were taken on this lease.
    pub(crate) fn hold(&self, lease: Option<Period>) {
        self.tell_store(lease, Limit::clone, |store, batch| store.hold(batch));
    }

    /// Whether there is anything to give back.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Tells the store of the slots, each with its limit as `seen`.
    fn tell_store(
        &self,
        lease: Option<Period>,
        seen: impl Fn(&Limit) -> Limit,
        tell: impl FnOnce(&S, &Batch<'_>),
    ) {
        let Some(loaded) = &self.loaded else { return };
        let mut limits: SmallVec<[(&Held, Limit); 1]> = SmallVec::new();
        for slot in &self.slots {
            let Some(limit) = loaded.snapshot().limit(slot.limit) else { continue };
            limits.push((slot, seen(&limit.limit)));
        }
        let mut checks: SmallVec<[Check<'_>; 1]> = SmallVec::new();
        for (slot, limit) in &limits {
            let check = Check::new(slot.key, limit, slot.cost);
            checks.push(Check { holder: slot.holder, tenure: lease.into(), ..check });
        }
        let (charge, now) = (Charge::AllOrNothing, self.engine.clock().now());
        tell(self.engine.store(), &Batch::new(Verb::Refund, charge, now, &checks));
    }
}

impl<S: CounterStore, C: Clock> Drop for Permit<S, C> {
    fn drop(&mut self) {
        if self.loaded.is_some() {
            return self.tell_store(None, outliving, |store, batch| store.give_back(batch));
        }
        for slot in &self.slots {
            self.engine.store().release(slot.key, slot.holder, slot.cost);
        }
    }
}

/// The limit with the longest time to live there is. The rules may have changed
/// since the slots were taken; giving them back must not hold the others to the
/// old rules' time.
fn outliving(limit: &Limit) -> Limit {
    let slots = Concurrency::new(limit.algorithm().quota(), Period::MAX);
    let Ok(slots) = slots else { return limit.clone() };
    match limit.soft() {
        Some(soft) => Limit::new(slots).with_soft(soft),
        None => Limit::new(slots),
    }
}

impl<S: CounterStore, C: Clock> std::fmt::Debug for Permit<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("slots", &self.slots).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
