//! Slots of concurrency limits that give themselves back.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::{Clock, Concurrency, Limit, Period};
use tidegate_stores::{Batch, Charge, Check, CounterStore, MemoryStore, Verb};

use crate::clock::SystemClock;
use crate::engine::Engine;
use crate::loaded::Loaded;
use crate::verdict::{Held, HeldSlots, Verdict};

/// The slots that an admitted request holds. Dropping it gives them back.
#[must_use = "the slots are given back when the permit is dropped"]
pub struct Permit<S: CounterStore = MemoryStore, C: Clock = SystemClock> {
    engine: Arc<Engine<S, C>>,
    loaded: Option<Arc<Loaded>>,
    slots: HeldSlots,
}

impl<S: CounterStore, C: Clock> Permit<S, C> {
    /// Takes over everything that the verdict holds, to be given back.
    pub(crate) fn of(engine: &Arc<Engine<S, C>>, verdict: &mut Verdict) -> Self {
        let slots = std::mem::take(&mut verdict.held);
        let loaded = (!slots.is_empty()).then(|| Arc::clone(&verdict.loaded));
        Permit { engine: Arc::clone(engine), loaded, slots }
    }

    /// The same, kept alive from now on; it was taken on this lease.
    pub(crate) fn held(
        engine: &Arc<Engine<S, C>>,
        verdict: &mut Verdict,
        lease: Option<Period>,
    ) -> Self {
        let permit = Permit::of(engine, verdict);
        permit.tell_store(lease, Limit::clone, |store, batch| store.hold(batch));
        permit
    }

    /// Whether there is anything to give back.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl<S: CounterStore, C: Clock> Permit<S, C> {
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
            checks.push(Check { holder: slot.holder, lease, ..check });
        }
        let (charge, now) = (Charge::AllOrNothing, self.engine.clock().now());
        tell(self.engine.store(), &Batch::new(Verb::Refund, charge, now, &checks));
    }
}

impl<S: CounterStore, C: Clock> Drop for Permit<S, C> {
    fn drop(&mut self) {
        self.tell_store(None, outliving, |store, batch| store.give_back(batch));
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
