//! Slots of concurrency limits that give themselves back.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::{Clock, Concurrency, Limit, Period};
use tidegate_stores::{Answers, Batch, Charge, Check, MemoryStore, Verb};

use crate::engine::Engine;
use crate::loaded::Loaded;
use crate::verdict::{Held, Verdict};

/// The slots that an admitted request holds. Dropping it gives them back.
#[must_use = "the slots are given back when the permit is dropped"]
pub struct Permit<C: Clock> {
    engine: Arc<Engine<MemoryStore, C>>,
    loaded: Option<Arc<Loaded>>,
    slots: Vec<Held>,
}

impl<C: Clock> Permit<C> {
    /// Everything that the verdict holds.
    pub(crate) fn of(engine: &Arc<Engine<MemoryStore, C>>, verdict: &Verdict) -> Self {
        let slots = verdict.held.clone();
        let loaded = (!slots.is_empty()).then(|| Arc::clone(&verdict.loaded));
        Permit { engine: Arc::clone(engine), loaded, slots }
    }

    /// Whether there is anything to give back.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        let Some(loaded) = &self.loaded else { return };
        let mut limits: SmallVec<[(&Held, Limit); 1]> = SmallVec::new();
        for slot in &self.slots {
            let Some(limit) = loaded.snapshot().limit(slot.limit) else { continue };
            limits.push((slot, outliving(&limit.limit)));
        }
        let mut checks: SmallVec<[Check<'_>; 1]> = SmallVec::new();
        for (slot, limit) in &limits {
            checks.push(Check { holder: slot.holder, ..Check::new(slot.key, limit, slot.cost) });
        }
        let (charge, now) = (Charge::AllOrNothing, self.engine.clock().now());
        let batch = Batch::new(Verb::Refund, charge, now, &checks);
        self.engine.store().apply_now(&batch, &mut Answers::new());
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

impl<C: Clock> std::fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("slots", &self.slots).finish_non_exhaustive()
    }
}
