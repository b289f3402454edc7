//! One shard: an open-addressing table of slots, and an overflow area for states that do not fit.
//!
//! Linear probing without tombstones: removing a slot shifts back the slots behind it. The table
//! grows by about a fifth at a time and only within its shard, so an insert waits for at most a
//! few thousand slots to move. Each insert also sweeps a few slots for idle keys.

use tidegate_algorithms::{
    BucketState, CheckInput, Decision, State, Timestamp, TokenBucket, TwoStepCheck, UnitOutcome,
};

use super::general::RoomNeeded;
use super::overflow::Overflow;
use super::slot::{Bits, Pack, Slot, SlotState, home};
use crate::fingerprint::Fingerprint;

/// Minimum slots of a non-empty shard. Keeps small tables sparse: a probe beyond the first slot is
/// a branch misprediction and doubles the lookup time.
const SLOTS_MIN: usize = 20;
/// Heap bytes of a state's first list: four holders of a concurrency limit.
const LIST_BYTES: usize = 96;
/// Slots that each insert sweeps for idle keys: more than one, so that sweeping outruns filling.
const SWEEP_STEP: usize = 8;
/// From this size on, shards grow at different numbers of keys. Keys spread evenly, so all shards
/// would otherwise grow at the same time, with the old and the new table of each in memory.
const STAGGERED_FROM: usize = 256;
/// How many different sizes shards have at the same number of keys.
pub(super) const GROWTH_STEPS: usize = 64;

/// Some of the keys, under one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: Vec<Slot>,
    used: u32,
    /// The slot at which the sweep continues.
    hand: u32,
    /// Most limits need none.
    overflow: Option<Box<Overflow>>,
    /// Staggers growth between shards; below [`GROWTH_STEPS`].
    growth_step: u8,
}

/// A key's state, taken out of the shard to be changed.
#[derive(Debug)]
pub(super) struct LoadedState {
    pub(super) state: State,
    slot: Option<usize>,
}

/// The change that a check of a known key would make.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateChange {
    pub(super) slot: usize,
    after: Bits,
    pub(super) admitted: bool,
}

/// The change that one unit of a token bucket would make.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitChange {
    pub(super) change: StateChange,
    /// The state after the unit if it is admitted, else the unchanged state.
    pub(super) state: BucketState,
}

/// The table is full, and the key is not in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableFull;

impl StateChange {
    const NONE: StateChange = StateChange { slot: usize::MAX, after: Bits::NONE, admitted: false };

    /// A change in the overflow area, which is made there.
    pub(super) const fn in_overflow(slot: usize, admitted: bool) -> Self {
        StateChange { slot, admitted, after: Bits::NONE }
    }
}

impl UnitChange {
    /// Before any key was looked up.
    pub(super) const NONE: UnitChange = UnitChange {
        change: StateChange::NONE,
        state: BucketState::from_parts(Timestamp::EPOCH, 0),
    };

    /// The decision if this change is made.
    #[inline(always)]
    pub(super) fn decision(&self, bucket: &TokenBucket, now: Timestamp) -> Decision {
        if self.change.admitted {
            bucket.unit_admission(self.state, now)
        } else {
            bucket.unit_refusal(self.state, now)
        }
    }

    /// The state if this change is not made; the shard must not have changed since.
    #[inline(always)]
    pub(super) fn state_before(&self, shard: &Shard) -> BucketState {
        if !self.change.admitted {
            return self.state;
        }
        let slot = shard.slots.get(self.change.slot);
        slot.and_then(|slot| BucketState::unpack(slot.bits())).unwrap_or(self.state)
    }
}

impl LoadedState {
    pub(super) const fn is_new(&self) -> bool {
        self.slot.is_none()
    }
}

impl Shard {
    /// The shard with this number.
    pub(super) fn new(number: usize) -> Self {
        Shard { growth_step: u8::try_from(number % GROWTH_STEPS).unwrap_or(0), ..Shard::default() }
    }

    /// The number of keys.
    pub(super) const fn keys(&self) -> usize {
        self.used as usize
    }

    /// Bytes that the shard has allocated.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.overflow_bytes()
    }

    /// Judges a check of a known key whose state is in its slot. Returns `None` if it is not;
    /// changes nothing.
    #[inline(always)]
    pub(super) fn judge<L: TwoStepCheck<State: Pack>>(
        &self,
        key: Fingerprint,
        limit: &L,
        input: CheckInput,
    ) -> Option<(StateChange, L::Usage)> {
        let (slot, found) = self.find_slot(key)?;
        let usage = limit.usage(L::State::unpack(found.bits())?, input.now);
        let (admitted, after) = limit.admit(usage, input);
        Some((StateChange { slot, after: after.pack()?, admitted }, usage))
    }

    /// Like [`Shard::judge`], for one unit of a token bucket: fewer instructions. Returns `None`
    /// also if the state needs the general arithmetic.
    #[inline(always)]
    pub(super) fn judge_unit(
        &self,
        key: Fingerprint,
        bucket: &TokenBucket,
        now: Timestamp,
    ) -> Option<UnitChange> {
        let (slot, found) = self.find_slot(key)?;
        let before = found.bits();
        let state = BucketState::unpack(before)?;
        Some(match bucket.take_unit(state, now)? {
            UnitOutcome::Taken(state) => {
                let change = StateChange { slot, after: state.pack()?, admitted: true };
                UnitChange { change, state }
            }
            UnitOutcome::Refused => {
                let change = StateChange { slot, after: before, admitted: false };
                UnitChange { change, state }
            }
        })
    }

    /// Makes a change; the shard must not have changed since it was judged.
    #[inline(always)]
    pub(super) fn write(&mut self, change: &StateChange) {
        if let Some(slot) = self.slots.get_mut(change.slot) {
            slot.write(change.after);
        }
    }

    /// Like [`Shard::write`], for a state that certainly differs from the present one.
    #[inline(always)]
    pub(super) fn overwrite(&mut self, change: &StateChange) {
        if let Some(slot) = self.slots.get_mut(change.slot) {
            slot.overwrite(change.after);
        }
    }

    /// A copy of the state of the key in a slot.
    pub(super) fn state_at(&self, slot: usize) -> State {
        match self.slots[slot].state() {
            SlotState::Inline(state) => state,
            SlotState::Overflow(index) => {
                let overflow = self.overflow.as_ref();
                overflow.and_then(|states| states.get(index)).cloned().unwrap_or_default()
            }
        }
    }

    /// A known key's state in the overflow area. It must not be made larger there: its bytes would
    /// not be counted.
    pub(super) fn overflow_state(&mut self, key: Fingerprint) -> Option<&mut State> {
        self.overflow_state_at(self.find(key)?)
    }

    /// Like [`Shard::overflow_state`], for the key in a slot.
    pub(super) fn overflow_state_at(&mut self, slot: usize) -> Option<&mut State> {
        match self.slots.get(slot)?.state() {
            SlotState::Inline(_) => None,
            SlotState::Overflow(index) => self.overflow.as_mut()?.get_mut(index),
        }
    }

    /// Takes a key's state out of the shard. [`Shard::store`] puts it back.
    #[inline]
    pub(super) fn load(&mut self, key: Fingerprint) -> LoadedState {
        let Some(slot) = self.find(key) else {
            return LoadedState { state: State::Unused, slot: None };
        };
        let state = match self.slots[slot].state() {
            SlotState::Inline(state) => state,
            SlotState::Overflow(index) => self.overflow().take(index),
        };
        LoadedState { state, slot: Some(slot) }
    }

    /// Puts a key's state back, inserting the key if it is new and not idle.
    #[inline]
    pub(super) fn store(
        &mut self,
        key: Fingerprint,
        loaded: LoadedState,
        now: Timestamp,
        budget: usize,
    ) -> Result<(), TableFull> {
        let LoadedState { state, slot } = loaded;
        // An insert in between may have moved the slot.
        let slot = match slot {
            Some(slot) if self.slots.get(slot).is_some_and(|slot| slot.holds(key)) => Some(slot),
            Some(_) => self.find(key),
            None => None,
        };
        let Some(slot) = slot else {
            return self.insert(key, state, now, budget);
        };
        let before = self.slots[slot].state();
        let after = match (Bits::of(&state), before) {
            (Some(bits), SlotState::Overflow(index)) => {
                self.overflow().free(index);
                bits
            }
            (Some(bits), SlotState::Inline(_)) => bits,
            (None, SlotState::Overflow(index)) => {
                self.overflow().restore(index, state);
                return Ok(());
            }
            (None, SlotState::Inline(_)) => self.insert_overflow(state)?,
        };
        self.slots[slot].write(after);
        Ok(())
    }

    #[cold]
    fn insert(
        &mut self,
        key: Fingerprint,
        state: State,
        now: Timestamp,
        budget: usize,
    ) -> Result<(), TableFull> {
        if state.idle_at() <= now {
            return Ok(());
        }
        let packed = Bits::of(&state);
        let overflows = usize::from(packed.is_none());
        self.make_room(RoomNeeded { keys: 1, overflows }, now, budget)?;
        let bits = match packed {
            Some(bits) => bits,
            None if self.bytes() + self.overflow().growth() + state.heap_bytes() > budget => {
                return Err(TableFull);
            }
            None => self.insert_overflow(state)?,
        };
        self.insert_slot(Slot::new(key, bits));
        Ok(())
    }

    /// Puts a state into the overflow area; returns the bits for its slot.
    fn insert_overflow(&mut self, state: State) -> Result<Bits, TableFull> {
        self.overflow().insert(state).map(Bits::of_overflow).ok_or(TableFull)
    }

    /// Makes room for new keys: sweeps a few slots, then grows if the budget allows.
    pub(super) fn make_room(
        &mut self,
        needed: RoomNeeded,
        now: Timestamp,
        budget: usize,
    ) -> Result<(), TableFull> {
        self.sweep_some(now);
        let slots_max = budget.saturating_sub(self.overflow_bytes()) / size_of::<Slot>();
        // The table may be larger than this budget: the rest is reserved for shared counters.
        if self.keys() + needed.keys > most_keys(self.slots.len().min(slots_max)) {
            if self.slots.len() >= slots_max {
                return Err(TableFull);
            }
            let live = self.slots.iter().filter(|slot| !self.is_idle(slot, now)).count();
            self.rebuild(self.slots_for(live + needed.keys).min(slots_max), now);
        }
        if self.keys() + needed.keys > most_keys(self.slots.len()) {
            return Err(TableFull);
        }
        let lists = needed.overflows * LIST_BYTES;
        if needed.overflows > 0 && self.bytes() + self.overflow().growth() + lists > budget {
            return Err(TableFull);
        }
        Ok(())
    }

    /// Removes a key.
    pub(super) fn remove(&mut self, key: Fingerprint) {
        if let Some(slot) = self.find(key) {
            self.remove_at(slot);
        }
    }

    /// Drops every idle key, and frees memory if more than half is unused.
    pub(super) fn sweep_all(&mut self, now: Timestamp) {
        let live = self.slots.iter().filter(|slot| !self.is_idle(slot, now)).count();
        if live == 0 {
            *self = Shard { growth_step: self.growth_step, ..Shard::default() };
        } else if live < self.keys() || self.slots_for(live) < self.slots.len() / 2 {
            self.rebuild(self.slots_for(live).min(self.slots.len()), now);
        }
    }

    /// Drops the idle keys of the next few slots.
    fn sweep_some(&mut self, now: Timestamp) {
        for _ in 0..SWEEP_STEP.min(self.slots.len()) {
            let hand = self.hand as usize;
            let hand = if hand < self.slots.len() { hand } else { 0 };
            if !self.slots[hand].is_empty() && self.is_idle(&self.slots[hand], now) {
                // The next slot may have been shifted into this one.
                self.remove_at(hand);
                self.hand = narrow(hand);
            } else {
                self.hand = narrow(hand + 1);
            }
        }
    }

    #[inline(always)]
    pub(super) fn find(&self, key: Fingerprint) -> Option<usize> {
        self.find_slot(key).map(|(at, _)| at)
    }

    #[inline(always)]
    fn find_slot(&self, key: Fingerprint) -> Option<(usize, &Slot)> {
        let start = home(key.stored().0, self.slots.len());
        // The table is never full, so an empty slot ends the search before it wraps around twice.
        let (before, after) = self.slots.split_at_checked(start)?;
        for (at, slot) in after.iter().enumerate() {
            if slot.holds(key) {
                return Some((start + at, slot));
            }
            if slot.is_empty() {
                return None;
            }
        }
        let wrapped = find_wrapped(before, key)?;
        before.get(wrapped).map(|slot| (wrapped, slot))
    }

    /// Inserts a slot whose key is not in the table.
    fn insert_slot(&mut self, slot: Slot) {
        let capacity = self.slots.len();
        let mut at = slot.home(capacity);
        for _ in 0..capacity {
            if self.slots[at].is_empty() {
                self.slots[at] = slot;
                self.used += 1;
                return;
            }
            at = if at + 1 == capacity { 0 } else { at + 1 };
        }
    }

    /// Empties a slot and shifts back the slots that probed past it.
    fn remove_at(&mut self, at: usize) {
        if let SlotState::Overflow(index) = self.slots[at].state() {
            self.overflow().free(index);
        }
        let capacity = self.slots.len();
        let mut hole = at;
        let mut next = at;
        for _ in 1..capacity {
            next = if next + 1 == capacity { 0 } else { next + 1 };
            let slot = self.slots[next];
            if slot.is_empty() {
                break;
            }
            // Distances from the slot's home, wrapping around.
            let home = slot.home(capacity);
            let to_hole = (hole + capacity - home) % capacity;
            let to_next = (next + capacity - home) % capacity;
            if to_hole < to_next {
                self.slots[hole] = slot;
                hole = next;
            }
        }
        self.slots[hole] = Slot::EMPTY;
        self.used -= 1;
    }

    /// Slots for `live` keys and a fifth more; when the shard outgrows the small sizes, once up to
    /// another fifth, by its growth step.
    const fn slots_for(&self, live: usize) -> usize {
        let slots = live + live / 2 + SLOTS_MIN;
        if self.slots.len() >= STAGGERED_FROM || slots < STAGGERED_FROM {
            return slots;
        }
        slots + slots / 5 * self.growth_step as usize / GROWTH_STEPS
    }

    /// Moves the live keys to a table of another size.
    fn rebuild(&mut self, capacity: usize, now: Timestamp) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::EMPTY; capacity]);
        self.used = 0;
        self.hand = 0;
        for slot in old {
            if slot.is_empty() {
                continue;
            }
            if self.is_idle(&slot, now) {
                if let SlotState::Overflow(index) = slot.state() {
                    self.overflow().free(index);
                }
                continue;
            }
            self.insert_slot(slot);
        }
    }

    /// Whether a slot is empty or its key may be dropped.
    fn is_idle(&self, slot: &Slot, now: Timestamp) -> bool {
        if slot.is_empty() {
            return true;
        }
        match slot.state() {
            SlotState::Inline(state) => state.idle_at() <= now,
            SlotState::Overflow(index) => {
                self.overflow.as_ref().is_none_or(|overflow| overflow.is_idle(index, now))
            }
        }
    }

    fn overflow(&mut self) -> &mut Overflow {
        self.overflow.get_or_insert_default()
    }

    fn overflow_bytes(&self) -> usize {
        self.overflow.as_ref().map_or(0, |overflow| size_of::<Overflow>() + overflow.bytes())
    }
}

/// Continues a search at the beginning of the table, which is rare.
#[cold]
fn find_wrapped(slots: &[Slot], key: Fingerprint) -> Option<usize> {
    let end = slots.iter().position(|slot| slot.holds(key) || slot.is_empty())?;
    slots[end].holds(key).then_some(end)
}

/// Beyond four fifths, probes get long.
const fn most_keys(slots: usize) -> usize {
    slots.saturating_mul(4) / 5
}

#[expect(clippy::cast_possible_truncation, reason = "a shard's budget keeps it below 2^32 slots")]
const fn narrow(at: usize) -> u32 {
    at as u32
}
