//! Slots of concurrency limits that are freed on drop.
//!
//! With a local store, a permit exists before the store is asked, and lists every slot that may be taken. Whatever fails
//! from there on, including a panic, dropping the permit frees them. Slots that were not taken are removed from the
//! list when the store has answered; freeing a slot that is not taken changes nothing.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::{Clock, Concurrency, Holder, Limit, Period};
use tidegate_macros::debug_fields;
use tidegate_rules::LimitId;
use tidegate_stores::{Batch, Charge, Check, CounterStore, Key, MemoryStore, Verb};

use crate::active_rules::ActiveRules;
use crate::clock::SystemClock;
use crate::engine::Engine;
use crate::verdict::Ruling;

/// The slots that an admitted request holds. Dropping it frees them.
#[must_use = "the slots are freed when the permit is dropped"]
pub struct Permit<S: CounterStore = MemoryStore, C: Clock = SystemClock> {
    engine: Arc<Engine<S, C>>,
    /// The rules by which slots of a remote store were taken; `None` for a local store.
    rules: Option<Arc<ActiveRules>>,
    slots: HeldSlots,
}

/// The slots of a request; one concurrency limit is common.
pub(crate) type HeldSlots = SmallVec<[HeldSlot; 1]>;

/// The slots of one concurrency limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldSlot {
    limit: LimitId,
    /// The index of their check in the request.
    check: u32,
    key: Key,
    holder: Holder,
    cost: u64,
}

/// Lists the slots that checks may take, each with its limit if it is a rule's.
#[inline]
pub(crate) fn list_slots<'c>(
    slots: &mut HeldSlots,
    checks: impl Iterator<Item = (Option<LimitId>, Check<'c>)>,
) {
    for (index, (limit, check)) in (0_u32..).zip(checks) {
        let Check { key, holder, cost, .. } = check;
        if let Some(limit) = limit.filter(|_| holder != Holder::default()) {
            slots.push(HeldSlot { limit, check: index, key, holder, cost });
        }
    }
}

/// Removes the listed slots that were not taken, by the rulings of the request.
#[inline]
pub(crate) fn keep_taken(slots: &mut HeldSlots, rulings: &[Ruling]) {
    slots.retain(|slot| {
        let ruling = usize::try_from(slot.check).ok().and_then(|index| rulings.get(index));
        slot.cost = ruling.map_or(0, |ruling| ruling.decision.taken);
        slot.cost > 0
    });
}

impl<S: CounterStore, C: Clock> Permit<S, C> {
    /// A permit for slots of a local store that are yet to be taken.
    #[inline]
    pub(crate) fn empty(engine: &Arc<Engine<S, C>>) -> Self {
        Permit { engine: Arc::clone(engine), rules: None, slots: SmallVec::new() }
    }

    /// The list to which a request adds its slots.
    #[inline]
    pub(crate) const fn slots_mut(&mut self) -> &mut HeldSlots {
        &mut self.slots
    }

    /// A permit for slots of a remote store that were taken by these rules.
    pub(crate) fn of(
        engine: &Arc<Engine<S, C>>,
        rules: &Arc<ActiveRules>,
        slots: HeldSlots,
    ) -> Self {
        let rules = (!slots.is_empty()).then(|| Arc::clone(rules));
        Permit { engine: Arc::clone(engine), rules, slots }
    }

    /// Lets the store renew the slots, which were taken on this lease.
    pub(crate) fn hold(&self, lease: Option<Period>) {
        self.with_batch(lease, Limit::clone, |store, batch| store.hold(batch));
    }

    /// Whether it holds no slots.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Calls the store with a batch of the slots, each with its limit as `adapted`.
    fn with_batch(
        &self,
        lease: Option<Period>,
        adapted: impl Fn(&Limit) -> Limit,
        call: impl FnOnce(&S, &Batch<'_>),
    ) {
        let Some(rules) = &self.rules else { return };
        let limit = |slot: &HeldSlot| Some(adapted(&rules.snapshot().limit(slot.limit)?.limit));
        let limits = self.slots.iter().filter_map(|slot| Some((slot, limit(slot)?)));
        let limits: SmallVec<[(&HeldSlot, Limit); 1]> = limits.collect();
        let checks = limits.iter().map(|(slot, limit)| {
            let check = Check::new(slot.key, limit, slot.cost);
            Check { holder: slot.holder, tenure: lease.into(), ..check }
        });
        let checks: SmallVec<[Check<'_>; 1]> = checks.collect();
        let (charge, now) = (Charge::AllOrNothing, self.engine.clock().now());
        call(self.engine.store(), &Batch::new(Verb::Refund, charge, now, &checks));
    }
}

impl<S: CounterStore, C: Clock> Drop for Permit<S, C> {
    fn drop(&mut self) {
        if self.rules.is_some() {
            return self.with_batch(None, outliving, |store, batch| store.give_back(batch));
        }
        if let Some(store) = self.engine.store().local() {
            for slot in &self.slots {
                store.release(slot.key, slot.holder, slot.cost);
            }
        }
    }
}

/// The limit with the longest possible time to live. The rules may have changed since the slots were taken; freeing
/// them must not expire other slots by the old time to live.
fn outliving(limit: &Limit) -> Limit {
    let slots = Concurrency::new(limit.algorithm().quota(), Period::MAX);
    let Ok(slots) = slots else { return limit.clone() };
    match limit.soft() {
        Some(soft) => Limit::new(slots).with_soft(soft),
        None => Limit::new(slots),
    }
}

debug_fields!([S: CounterStore, C: Clock] Permit<S, C> { slots });

#[cfg(test)]
mod tests;
