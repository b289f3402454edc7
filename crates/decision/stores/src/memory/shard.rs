//! One shard: an open-addressing table of slots, and the shelf beside it.
//!
//! Linear probing without tombstones; a removed slot is closed by shifting back
//! those behind it. The table grows by about a fifth at a time and only within
//! its shard, so no insert ever waits for more than a few thousand slots to
//! move. Whoever inserts also sweeps a few slots for idle keys.

use tidegate_algorithms::{
    Ask, BucketState, Decision, SmallLimit, SmallState, State, Taken, Timestamp, TokenBucket,
};

use super::shelf::Shelf;
use super::slot::{Bits, Pack, Packed, Slot, home};
use crate::fingerprint::Fingerprint;

/// A shard that holds anything has more slots than this. Few keys then have
/// room around them: one that had to go past another takes as long again to
/// find, because nobody can guess that it did.
const SLOTS_MIN: usize = 20;
/// What a state's first list takes on the heap: four holders of a concurrency limit.
const LIST_BYTES: usize = 96;
/// Slots that each insert looks at for idle keys: more than one, so that
/// sweeping outruns filling.
const SWEEP_STEP: usize = 8;
/// From here on each shard is of a size of its own. Keys spread evenly, so all
/// shards would grow at the same time, and for a while there would be the old
/// table of each beside the new one.
const STAGGERED_FROM: usize = 256;
/// Sizes that shards have at the same number of keys.
pub(super) const TURNS: usize = 64;

/// A part of the keys, under one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: Vec<Slot>,
    used: u32,
    /// Where the sweep goes on.
    hand: u32,
    /// Most limits need none.
    shelf: Option<Box<Shelf>>,
    /// When it grows, compared with others; below [`TURNS`].
    turn: u8,
}

/// A key's place and state, taken from the shard to be worked on.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) state: State,
    slot: Option<usize>,
}

/// How many new keys must fit, and how many of them with states on the shelf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    pub(super) keys: usize,
    pub(super) shelved: usize,
}

/// What a check of a known key would change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) slot: usize,
    after: Bits,
    pub(super) admitted: bool,
}

impl Change {
    /// Of a state on the shelf, which is changed there.
    pub(super) fn on_shelf(slot: usize, admitted: bool) -> Self {
        Change { slot, admitted, after: Bits::default() }
    }
}

/// The table was full, and the key is not in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Loaded {
    pub(super) const fn is_new(&self) -> bool {
        self.slot.is_none()
    }
}

impl Shard {
    /// The shard with this number.
    pub(super) fn new(number: usize) -> Self {
        Shard { turn: u8::try_from(number % TURNS).unwrap_or(0), ..Shard::default() }
    }

    /// How many keys the shard holds.
    pub(super) const fn keys(&self) -> usize {
        self.used as usize
    }

    /// Bytes that the shard has allocated.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.shelf_bytes()
    }

    /// A known key's slot.
    #[inline(always)]
    pub(super) fn slot(&mut self, key: Fingerprint) -> Option<&mut Slot> {
        find_mut(&mut self.slots, key)
    }

    /// Checks a known key whose state is in its slot, before and after: the
    /// common case, and the fast one. `None`, and nothing done, when it is
    /// anything else.
    #[inline(always)]
    pub(super) fn admit_in_place<L: SmallLimit<State: Pack>>(
        &mut self,
        key: Fingerprint,
        limit: &L,
        ask: Ask,
    ) -> Option<L::Usage> {
        let slot = find_mut(&mut self.slots, key)?;
        let usage = limit.usage(L::State::unpack(slot.bits())?, ask.now);
        let (_, after) = limit.admit(usage, ask);
        slot.set(after.pack()?);
        Some(usage)
    }

    /// Says what [`Shard::admit_in_place`] would do, and does nothing.
    #[inline(always)]
    pub(super) fn judge_in_place<L: SmallLimit<State: Pack>>(
        &self,
        key: Fingerprint,
        limit: &L,
        ask: Ask,
    ) -> Option<(Change, L::Usage)> {
        let (slot, found) = self.find_slot(key)?;
        let usage = limit.usage(L::State::unpack(found.bits())?, ask.now);
        let (admitted, after) = limit.admit(usage, ask);
        Some((Change { slot, after: after.pack()?, admitted }, usage))
    }

    /// The same for one unit of a token bucket, which is decided straight through; what is
    /// unusual about it is left to [`Shard::judge_in_place`].
    #[inline(always)]
    pub(super) fn judge_unit(
        &self,
        key: Fingerprint,
        bucket: &TokenBucket,
        now: Timestamp,
    ) -> Option<(Change, Decision)> {
        let (slot, bits) = self.bits(key)?;
        let before = BucketState::unpack(bits)?;
        match bucket.take_unit(before, now)? {
            Taken::Fits(after) => {
                let change = Change { slot, after: after.pack()?, admitted: true };
                Some((change, bucket.tell_taken(after, now)))
            }
            Taken::Refused => {
                let change = Change { slot, after: bits, admitted: false };
                Some((change, bucket.tell_refused(before, now)))
            }
        }
    }

    /// Does what [`Shard::judge_in_place`] said; the shard must not have changed since.
    #[inline(always)]
    pub(super) fn set_in_place(&mut self, change: &Change) {
        self.slots[change.slot].set(change.after);
    }

    /// A known key's place, and the bits of its state there.
    #[inline(always)]
    pub(super) fn bits(&self, key: Fingerprint) -> Option<(usize, Bits)> {
        self.find_slot(key).map(|(at, slot)| (at, slot.bits()))
    }

    /// The bits where [`Shard::bits`] found some.
    pub(super) fn bits_at(&self, slot: usize) -> Option<Bits> {
        self.slots.get(slot).map(Slot::bits)
    }

    /// Puts another state where [`Shard::bits`] found one; the shard must not have changed since.
    #[inline(always)]
    pub(super) fn put(&mut self, slot: usize, bits: Bits) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.put(bits);
        }
    }

    /// The state that [`Shard::judge_in_place`] found.
    pub(super) fn state_before(&self, change: &Change) -> State {
        match self.slots[change.slot].packed() {
            Packed::Small(state) => state.into(),
            Packed::Shelved(_) => State::Unused,
        }
    }

    /// A known key's state on the shelf, to be changed where it is. It must not come to take
    /// more memory, which nobody would count.
    pub(super) fn shelved(&mut self, key: Fingerprint) -> Option<&mut State> {
        self.shelved_at(self.find(key)?)
    }

    /// The same of the key in a slot.
    pub(super) fn shelved_at(&mut self, slot: usize) -> Option<&mut State> {
        match self.slots.get(slot)?.packed() {
            Packed::Small(_) => None,
            Packed::Shelved(place) => self.shelf.as_mut()?.state(place),
        }
    }

    /// Takes a key's state to work on. [`Shard::keep`] gives it back.
    #[inline]
    pub(super) fn load(&mut self, key: Fingerprint) -> Loaded {
        let Some(slot) = self.find(key) else {
            return Loaded { state: State::Unused, slot: None };
        };
        let state = match self.slots[slot].packed() {
            Packed::Small(small) => small.into(),
            Packed::Shelved(place) => self.shelf().lend(place),
        };
        Loaded { state, slot: Some(slot) }
    }

    /// Gives a key's state back, inserting the key if it is new and not idle.
    #[inline]
    pub(super) fn keep(
        &mut self,
        key: Fingerprint,
        loaded: Loaded,
        now: Timestamp,
        budget: usize,
    ) -> Result<(), Full> {
        let Loaded { state, slot } = loaded;
        // An insert in between may have moved it.
        let slot = match slot {
            Some(slot) if self.slots.get(slot).is_some_and(|slot| slot.holds(key)) => Some(slot),
            Some(_) => self.find(key),
            None => None,
        };
        let Some(slot) = slot else {
            return self.keep_new(key, state, now, budget);
        };
        let before = self.slots[slot].packed();
        let after = match (state.as_small().and_then(Packed::of), before) {
            (Some(packed), Packed::Shelved(place)) => {
                self.shelf().free(place);
                packed
            }
            (Some(packed), _) => packed,
            (None, Packed::Shelved(place)) => {
                self.shelf().put_back(place, state);
                return Ok(());
            }
            (None, _) => Packed::Shelved(self.shelf().put(state).ok_or(Full)?),
        };
        self.slots[slot].set(after.to_bits());
        Ok(())
    }

    #[cold]
    fn keep_new(
        &mut self,
        key: Fingerprint,
        state: State,
        now: Timestamp,
        budget: usize,
    ) -> Result<(), Full> {
        if state.idle_at() <= now {
            return Ok(());
        }
        let shelved = usize::from(state.as_small().and_then(Packed::of).is_none());
        self.make_room(Wanted { keys: 1, shelved }, now, budget)?;
        let packed = match state.as_small().and_then(Packed::of) {
            Some(packed) => packed,
            None if self.bytes() + self.shelf().growth() + state.heap_bytes() > budget => {
                return Err(Full);
            }
            None => Packed::Shelved(self.shelf().put(state).ok_or(Full)?),
        };
        self.place(Slot::new(key, packed));
        Ok(())
    }

    /// Makes sure that new keys fit: sweeps a little, then grows if the budget allows.
    pub(super) fn make_room(
        &mut self,
        wanted: Wanted,
        now: Timestamp,
        budget: usize,
    ) -> Result<(), Full> {
        self.sweep_some(now);
        let slots_max = budget.saturating_sub(self.shelf_bytes()) / size_of::<Slot>();
        // The table may be larger than this budget allows: the rest is reserved.
        if self.keys() + wanted.keys > most_keys(self.slots.len().min(slots_max)) {
            if self.slots.len() >= slots_max {
                return Err(Full);
            }
            let live = self.slots.iter().filter(|slot| !self.is_idle(slot, now)).count();
            self.rebuild(self.slots_for(live + wanted.keys).min(slots_max), now);
        }
        if self.keys() + wanted.keys > most_keys(self.slots.len()) {
            return Err(Full);
        }
        let shelved = wanted.shelved * LIST_BYTES;
        if wanted.shelved > 0 && self.bytes() + self.shelf().growth() + shelved > budget {
            return Err(Full);
        }
        Ok(())
    }

    /// Forgets a key.
    pub(super) fn remove(&mut self, key: Fingerprint) {
        if let Some(slot) = self.find(key) {
            self.remove_at(slot);
        }
    }

    /// Drops every idle key, and gives memory back when much is unused.
    pub(super) fn sweep_all(&mut self, now: Timestamp) {
        let live = self.slots.iter().filter(|slot| !self.is_idle(slot, now)).count();
        if live == 0 {
            *self = Shard { turn: self.turn, ..Shard::default() };
        } else if live < self.keys() || self.slots_for(live) < self.slots.len() / 2 {
            self.rebuild(self.slots_for(live).min(self.slots.len()), now);
        }
    }

    /// Looks at a few slots and drops the idle ones.
    fn sweep_some(&mut self, now: Timestamp) {
        for _ in 0..SWEEP_STEP.min(self.slots.len()) {
            let hand = self.hand as usize;
            let hand = if hand < self.slots.len() { hand } else { 0 };
            if !self.slots[hand].is_empty() && self.is_idle(&self.slots[hand], now) {
                // The next one may have been shifted here: look again.
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
        // Never all full, so an empty slot ends the search before it comes around.
        let (before, after) = self.slots.split_at_checked(start)?;
        for (at, slot) in after.iter().enumerate() {
            if slot.holds(key) {
                return Some((start + at, slot));
            }
            if slot.is_empty() {
                return None;
            }
        }
        let around = find_around(before, key)?;
        before.get(around).map(|slot| (around, slot))
    }

    /// Puts a slot that is not in the table into the first free place.
    fn place(&mut self, slot: Slot) {
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

    /// Empties a slot and shifts back those that had to go past it.
    fn remove_at(&mut self, at: usize) {
        if let Packed::Shelved(place) = self.slots[at].packed() {
            self.shelf().free(place);
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
            // How far each is from the slot's home, going around.
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

    /// Slots for `live` keys and a fifth of them to come; once, when the shard
    /// leaves the small sizes, up to a fifth more by its turn.
    const fn slots_for(&self, live: usize) -> usize {
        let slots = live + live / 2 + SLOTS_MIN;
        if self.slots.len() >= STAGGERED_FROM || slots < STAGGERED_FROM {
            return slots;
        }
        slots + slots / 5 * self.turn as usize / TURNS
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
                if let Packed::Shelved(place) = slot.packed() {
                    self.shelf().free(place);
                }
                continue;
            }
            self.place(slot);
        }
    }

    /// Whether a slot may be dropped; empty ones may.
    fn is_idle(&self, slot: &Slot, now: Timestamp) -> bool {
        if slot.is_empty() {
            return true;
        }
        match slot.packed() {
            Packed::Small(SmallState::Bucket(bucket)) => bucket.idle_at() <= now,
            Packed::Small(SmallState::Window(window)) => window.end <= now,
            Packed::Shelved(place) => {
                self.shelf.as_ref().is_none_or(|shelf| shelf.is_idle(place, now))
            }
        }
    }

    fn shelf(&mut self) -> &mut Shelf {
        self.shelf.get_or_insert_default()
    }

    fn shelf_bytes(&self) -> usize {
        self.shelf.as_ref().map_or(0, |shelf| size_of::<Shelf>() + shelf.bytes())
    }
}

/// The same as [`Shard::find`] for a slot to be changed.
#[inline(always)]
fn find_mut(slots: &mut [Slot], key: Fingerprint) -> Option<&mut Slot> {
    let start = home(key.stored().0, slots.len());
    let (before, after) = slots.split_at_mut_checked(start)?;
    for slot in after {
        if slot.holds(key) {
            return Some(slot);
        }
        if slot.is_empty() {
            return None;
        }
    }
    let around = find_around(before, key)?;
    before.get_mut(around)
}

/// The search goes on from the beginning: seldom, and so apart.
#[cold]
fn find_around(slots: &[Slot], key: Fingerprint) -> Option<usize> {
    let end = slots.iter().position(|slot| slot.holds(key) || slot.is_empty())?;
    slots[end].holds(key).then_some(end)
}

/// Four fifths full is where probing begins to cost.
const fn most_keys(slots: usize) -> usize {
    slots.saturating_mul(4) / 5
}

#[expect(clippy::cast_possible_truncation, reason = "a shard's budget keeps it below 2^32 slots")]
const fn narrow(at: usize) -> u32 {
    at as u32
}
