//! Concurrency: a bounded number in flight.
//!
//! A holder's slots are free again when it gives them back, or when their time to live has passed,
//! so that a crashed holder cannot keep them. A holder that renews its slots takes them for a
//! shorter lease, so that they are free sooner if it crashes. Taking more slots extends all slots
//! of the holder. Anonymous holders are independent; each has its own entry. Renewing is up to the
//! store.
//!
//! A holder that lives as long as the state needs no expiry: it holds its slots until it gives them
//! back. There may be many such holders, numbered in the order of their arrival: they are found by
//! binary search, and no step of a decision walks over all of them.

use std::collections::{VecDeque, vec_deque};

use crate::check_input::{CheckInput, Holder, Tenure};
use crate::decision::{Decision, Retry};
use crate::limit::ParameterError;
use crate::period::Period;
use crate::time::{Nanos, Timestamp};

/// The largest limit: the state takes 24 bytes for each holder.
pub const CONCURRENCY_MAX: u64 = 100_000;

/// At most `limit` slots held at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    time_to_live: Period,
}

/// The expiry of slots that are held until they are given back. It sorts before all others, so that
/// a new entry goes to the end if all slots are held.
const HELD: Timestamp = Timestamp::EPOCH;
/// The earliest real expiry.
const EARLIEST: Timestamp = Timestamp::from_nanos(1);

/// The holders of a key's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotsState {
    /// Held slots first, then by expiry, then by holder.
    slots: VecDeque<HeldSlots>,
    /// The sum of their counts.
    taken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HeldSlots {
    holder: Holder,
    count: u64,
    expires: Timestamp,
}

impl SlotsState {
    /// A state of holders with their slots and expiry, in the order of expiry.
    pub fn from_entries(entries: impl IntoIterator<Item = (Holder, u64, Timestamp)>) -> Self {
        let entries = entries.into_iter();
        let slots = entries.map(|(holder, count, expires)| HeldSlots {
            holder,
            count,
            expires: expires.max(EARLIEST),
        });
        let mut state = SlotsState { slots: slots.collect(), taken: 0 };
        state.count();
        state
    }

    /// When the last slot expires; [`Timestamp::MAX`] while one is held.
    pub fn idle_at(&self) -> Timestamp {
        match (self.slots.front(), self.slots.back()) {
            (Some(first), _) if first.expires == HELD => Timestamp::MAX,
            (_, Some(last)) => last.expires,
            (_, None) => Timestamp::EPOCH,
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<HeldSlots>()
    }

    /// Heap bytes that one more holder adds.
    pub fn growth_bytes(&self) -> usize {
        let spare = self.slots.capacity() - self.slots.len();
        if spare > 0 { 0 } else { self.heap_bytes().max(4 * size_of::<HeldSlots>()) }
    }

    /// Gives back up to `count` slots of a holder. Slots that it does not hold are ignored, so
    /// giving back twice frees no other holder's slots.
    pub(crate) fn release(&mut self, holder: Holder, count: u64) {
        // A named holder has one entry.
        if let Some(index) = self.find(holder)
            && let Some(slots) = self.remove(index)
            && slots.count > count
        {
            self.insert(HeldSlots { count: slots.count - count, ..slots });
        }
    }

    /// The index of a named holder's entry.
    fn find(&self, holder: Holder) -> Option<usize> {
        let last = self.slots.back().filter(|_| holder != Holder::default())?;
        if last.holder == holder {
            return Some(self.slots.len() - 1);
        }
        if last.sort_key() < (HELD, holder) {
            return None;
        }
        let index = self.slots.partition_point(|slots| slots.sort_key() < (HELD, holder));
        if self.slots.get(index).is_some_and(|slots| slots.sort_key() == (HELD, holder)) {
            return Some(index);
        }
        // The others are in the order of expiry; the newest are looked up most.
        let expiring = self.expiring();
        let behind = expiring.rev().position(|slots| slots.holder == holder)?;
        Some(self.slots.len() - 1 - behind)
    }

    fn insert(&mut self, new: HeldSlots) {
        let behind = self.slots.iter().rev().take_while(|slots| slots.sort_key() > new.sort_key());
        match behind.count() {
            0 => self.slots.push_back(new),
            behind => self.slots.insert(self.slots.len() - behind, new),
        }
        self.taken = self.taken.saturating_add(new.count);
    }

    fn remove(&mut self, index: usize) -> Option<HeldSlots> {
        let removed = self.slots.remove(index)?;
        self.taken = self.taken.saturating_sub(removed.count);
        Some(removed)
    }

    /// The entries that expire, in the order of expiry.
    fn expiring(&self) -> vec_deque::Iter<'_, HeldSlots> {
        // Often all slots are held; then so is the last entry.
        let begin = match self.slots.back() {
            Some(last) if last.expires != HELD => {
                self.slots.partition_point(|slots| slots.expires == HELD)
            }
            _ => self.slots.len(),
        };
        self.slots.range(begin..)
    }

    /// Updates the sum after counts have changed.
    fn count(&mut self) {
        self.taken = self.slots.iter().fold(0, |sum, slots| sum.saturating_add(slots.count));
    }
}

impl HeldSlots {
    const fn sort_key(&self) -> (Timestamp, Holder) {
        (self.expires, self.holder)
    }
}

impl Concurrency {
    /// At most `limit` slots held at once, each for at most `time_to_live`;
    /// zero refuses every cost.
    ///
    /// # Errors
    /// If the limit is above [`CONCURRENCY_MAX`].
    pub fn new(limit: u64, time_to_live: Period) -> Result<Self, ParameterError> {
        if limit > CONCURRENCY_MAX {
            return Err(ParameterError::ConcurrencyTooLarge { limit });
        }
        Ok(Concurrency { limit, time_to_live })
    }

    /// The number of slots.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// After how long a slot that was never given back is free again.
    pub const fn time_to_live(&self) -> Period {
        self.time_to_live
    }

    /// The same slots with another time to live.
    pub(crate) fn with_time_to_live(&self, time_to_live: Period) -> Self {
        Concurrency { time_to_live, ..self.clone() }
    }

    /// The same limit with another number of slots, up to [`CONCURRENCY_MAX`].
    pub(crate) fn with_limit(&self, limit: u64) -> Self {
        Concurrency { limit: limit.min(CONCURRENCY_MAX), ..self.clone() }
    }

    /// Drops expired slots, and cuts expiries to the time to live from now: a later expiry comes
    /// from a clock that stepped back or a limit that changed. Held slots stay.
    pub(crate) fn settle(&self, state: &mut SlotsState, now: Timestamp) {
        let mut expiring = state.expiring();
        let Some(first) = expiring.next() else { return };
        let last = expiring.next_back().unwrap_or(first);
        let latest = now.after(self.time_to_live.as_span());
        let cut = last.expires > latest;
        // Sorted by expiry, so the first and the last are enough to know.
        if !cut && !first.expires.has_come(now) {
            return;
        }
        state.slots.retain_mut(|slots| {
            slots.expires = slots.expires.min(latest);
            slots.expires == HELD || !slots.expires.has_come(now)
        });
        if cut {
            state.slots.make_contiguous().sort_by_key(HeldSlots::sort_key);
        }
        state.count();
    }

    /// Judges a settled state; takes nothing.
    pub(crate) fn decide(&self, state: &SlotsState, input: CheckInput) -> Decision {
        let left = self.available(state);
        if input.cost <= left {
            let reset = match input.cost {
                0 => self.rest(state, input.now),
                // Other holders may keep theirs for longer.
                _ => self.rest(state, input.now).max(self.life(input)),
            };
            return Decision::admitted(self.limit, input.cost, left - input.cost, reset);
        }
        let retry = Retry::after_or_never(input.cost, self.limit, || self.wait(state, input));
        Decision::refused(self.limit, left, retry, self.rest(state, input.now))
    }

    /// Gives `cost` slots of a settled state to the holder.
    pub(crate) fn charge(&self, state: &mut SlotsState, input: CheckInput) {
        if input.cost == 0 {
            return;
        }
        let expires = match input.tenure {
            Tenure::Held if input.holder != Holder::default() => HELD,
            _ => input.now.after(self.life(input)).max(EARLIEST),
        };
        let mut taken = HeldSlots { holder: input.holder, count: input.cost, expires };
        if let Some(index) = state.find(input.holder)
            && let Some(held) = state.remove(index)
        {
            taken.count = taken.count.saturating_add(held.count);
            taken.expires = match (held.expires, taken.expires) {
                (HELD, _) | (_, HELD) => HELD,
                (one, other) => one.max(other),
            };
        }
        state.insert(taken);
    }

    /// Takes up to `cost` slots back from the holder. An anonymous refund takes those that expire
    /// first, and none that are held.
    pub(crate) fn refund(state: &mut SlotsState, input: CheckInput) {
        if input.holder != Holder::default() {
            return state.release(input.holder, input.cost);
        }
        let mut left = input.cost;
        state.slots.retain_mut(|slots| {
            let back = if slots.expires == HELD { 0 } else { left.min(slots.count) };
            slots.count -= back;
            left -= back;
            slots.count > 0
        });
        state.count();
    }

    /// The number of free slots.
    pub(crate) fn available(&self, state: &SlotsState) -> u64 {
        self.limit.saturating_sub(state.taken)
    }

    /// How long slots are taken for.
    fn life(&self, input: CheckInput) -> Nanos {
        let longest = self.time_to_live;
        input.tenure.lease().map_or(longest, |lease| lease.min(longest)).as_span()
    }

    /// Time until all slots have expired, if none is given back. Held slots count as if taken just
    /// now.
    fn rest(&self, state: &SlotsState, now: Timestamp) -> Nanos {
        match state.idle_at() {
            Timestamp::MAX => self.time_to_live.as_span(),
            idle => idle.since(now),
        }
    }

    /// Time until enough slots have expired, if none is given back.
    fn wait(&self, state: &SlotsState, input: CheckInput) -> Nanos {
        let mut excess = state.taken.saturating_add(input.cost).saturating_sub(self.limit);
        for slots in state.expiring() {
            excess = excess.saturating_sub(slots.count);
            if excess == 0 {
                return slots.expires.since(input.now);
            }
        }
        self.time_to_live.as_span()
    }
}

#[cfg(test)]
mod tests;
