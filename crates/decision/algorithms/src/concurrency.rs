//! Concurrency: a bounded number in flight.
//!
//! Each holder's slots come back when it refunds them, or by themselves once
//! their time to live has passed, so that a crashed holder cannot keep them.
//! A holder that renews its slots takes them for a shorter lease: when it
//! crashes, nobody waits for the whole time to live. A holder that takes more
//! is alive: all its slots live on from then. Callers that do not say who they
//! are share nothing but the missing name. Renewing is left to whoever keeps
//! the state.
//!
//! A holder that cannot be gone without the state being gone too needs no expiry:
//! it takes its slots as held, until it gives them back. There may be
//! many of these at once, and they are numbered in the order in which they come: they are
//! found by their number, and no step of a decision goes through all of them.

use std::collections::{VecDeque, vec_deque};

use crate::ask::{Ask, Holder, Tenure};
use crate::decision::{Decision, Retry};
use crate::limit::ParameterError;
use crate::period::Period;
use crate::time::{Nanos, Timestamp};

/// The most slots of one limit: its state is 24 bytes for each holder.
pub const CONCURRENCY_MAX: u64 = 100_000;

/// At most `limit` slots held at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    time_to_live: Period,
}

/// Stands for the expiry of slots that are held until they are given back. The earliest there is, so
/// that they come first: where all are held, a new one is put at the end and stays there.
const HELD: Timestamp = Timestamp::EPOCH;
/// No other expiry is earlier.
const EARLIEST: Timestamp = Timestamp::from_nanos(1);

/// Who holds slots of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotsState {
    /// Those that are held, then the first to expire first; of those that expire together, the
    /// lowest holder.
    slots: VecDeque<Slots>,
    /// The sum of their counts.
    taken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slots {
    holder: Holder,
    count: u64,
    expires: Timestamp,
}

impl SlotsState {
    /// A state of these holders, the slots of each, and when they expire; the first to expire first.
    pub fn from_entries(entries: impl IntoIterator<Item = (Holder, u64, Timestamp)>) -> Self {
        let entries = entries.into_iter();
        let slots = entries.map(|(holder, count, expires)| Slots {
            holder,
            count,
            expires: expires.max(EARLIEST),
        });
        let mut state = SlotsState { slots: slots.collect(), taken: 0 };
        state.count();
        state
    }

    /// When the state stops mattering: the last slot has expired. At no instant while one is held.
    pub fn idle_at(&self) -> Timestamp {
        match (self.slots.front(), self.slots.back()) {
            (Some(first), _) if first.expires == HELD => Timestamp::MAX,
            (_, Some(last)) => last.expires,
            (_, None) => Timestamp::EPOCH,
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slots>()
    }

    /// Bytes more on the heap that one more holder takes.
    pub fn growth_bytes(&self) -> usize {
        let spare = self.slots.capacity() - self.slots.len();
        if spare > 0 { 0 } else { self.heap_bytes().max(4 * size_of::<Slots>()) }
    }

    /// Gives back up to `count` slots of a holder; what it does not hold (any more) is ignored, so
    /// giving back twice frees nobody else's slots.
    pub(crate) fn release(&mut self, holder: Holder, count: u64) {
        // Whoever says its name has one entry.
        if let Some(place) = self.find(holder)
            && let Some(slots) = self.remove(place)
            && slots.count > count
        {
            self.insert(Slots { count: slots.count - count, ..slots });
        }
    }

    /// Where the slots of a holder are, if it has a name and any.
    fn find(&self, holder: Holder) -> Option<usize> {
        let last = self.slots.back().filter(|_| holder != Holder::default())?;
        if last.holder == holder {
            return Some(self.slots.len() - 1);
        }
        if last.place() < (HELD, holder) {
            return None;
        }
        let place = self.slots.partition_point(|slots| slots.place() < (HELD, holder));
        if self.slots.get(place).is_some_and(|slots| slots.place() == (HELD, holder)) {
            return Some(place);
        }
        // The others are in the order of time; the last to come is asked for most.
        let expiring = self.expiring();
        let behind = expiring.rev().position(|slots| slots.holder == holder)?;
        Some(self.slots.len() - 1 - behind)
    }

    fn insert(&mut self, new: Slots) {
        let behind = self.slots.iter().rev().take_while(|slots| slots.place() > new.place());
        match behind.count() {
            0 => self.slots.push_back(new),
            behind => self.slots.insert(self.slots.len() - behind, new),
        }
        self.taken = self.taken.saturating_add(new.count);
    }

    fn remove(&mut self, place: usize) -> Option<Slots> {
        let removed = self.slots.remove(place)?;
        self.taken = self.taken.saturating_sub(removed.count);
        Some(removed)
    }

    /// Those that expire, the first of them first.
    fn expiring(&self) -> vec_deque::Iter<'_, Slots> {
        // Where all are held, which is common, the last says so.
        let begin = match self.slots.back() {
            Some(last) if last.expires != HELD => {
                self.slots.partition_point(|slots| slots.expires == HELD)
            }
            _ => self.slots.len(),
        };
        self.slots.range(begin..)
    }

    /// Adds up what is taken, after all counts may have changed.
    fn count(&mut self) {
        self.taken = self.slots.iter().fold(0, |sum, slots| sum.saturating_add(slots.count));
    }
}

impl Slots {
    /// What they are in order by.
    const fn place(&self) -> (Timestamp, Holder) {
        (self.expires, self.holder)
    }
}

impl Concurrency {
    /// At most `limit` slots held at once, each for at most `time_to_live`;
    /// zero refuses everyone.
    ///
    /// # Errors
    /// When the limit is above [`CONCURRENCY_MAX`].
    pub fn new(limit: u64, time_to_live: Period) -> Result<Self, ParameterError> {
        if limit > CONCURRENCY_MAX {
            return Err(ParameterError::ConcurrencyTooLarge { limit });
        }
        Ok(Concurrency { limit, time_to_live })
    }

    /// How many slots there are.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// After how long a slot that was never given back is free again.
    pub const fn time_to_live(&self) -> Period {
        self.time_to_live
    }

    /// The same with another number of slots, up to [`CONCURRENCY_MAX`].
    pub(crate) fn with_limit(&self, limit: u64) -> Self {
        Concurrency { limit: limit.min(CONCURRENCY_MAX), ..self.clone() }
    }

    /// Drops expired slots. None may outlive the time to live as of now, unless it is held: a
    /// later expiry comes from a clock that stepped back or a limit that changed.
    pub(crate) fn settle(&self, state: &mut SlotsState, now: Timestamp) {
        let mut expiring = state.expiring();
        let Some(first) = expiring.next() else { return };
        let last = expiring.next_back().unwrap_or(first);
        let latest = now.after(self.time_to_live.as_span());
        let cut = last.expires > latest;
        // They are in order, so the first and the last speak for all.
        if !cut && !first.expires.has_come(now) {
            return;
        }
        state.slots.retain_mut(|slots| {
            slots.expires = slots.expires.min(latest);
            slots.expires == HELD || !slots.expires.has_come(now)
        });
        if cut {
            state.slots.make_contiguous().sort_by_key(Slots::place);
        }
        state.count();
    }

    /// Judges a settled state; takes nothing.
    pub(crate) fn decide(&self, state: &SlotsState, ask: Ask) -> Decision {
        let left = self.available(state);
        if ask.cost <= left {
            let reset = match ask.cost {
                0 => self.rest(state, ask.now),
                // Others may be held for longer than this one.
                _ => self.rest(state, ask.now).max(self.life(ask)),
            };
            return Decision::admitted(self.limit, ask.cost, left - ask.cost, reset);
        }
        let retry =
            if ask.cost > self.limit { Retry::Never } else { Retry::After(self.wait(state, ask)) };
        Decision::refused(self.limit, left, retry, self.rest(state, ask.now))
    }

    /// Gives `cost` slots of a settled state to the holder.
    pub(crate) fn charge(&self, state: &mut SlotsState, ask: Ask) {
        if ask.cost == 0 {
            return;
        }
        let expires = match ask.tenure {
            Tenure::Held if ask.holder != Holder::default() => HELD,
            _ => ask.now.after(self.life(ask)).max(EARLIEST),
        };
        let mut taken = Slots { holder: ask.holder, count: ask.cost, expires };
        if let Some(place) = state.find(ask.holder)
            && let Some(held) = state.remove(place)
        {
            taken.count = taken.count.saturating_add(held.count);
            taken.expires = match (held.expires, taken.expires) {
                (HELD, _) | (_, HELD) => HELD,
                (one, other) => one.max(other),
            };
        }
        state.insert(taken);
    }

    /// Takes up to `cost` slots back from the holder. Who does not say which holder gives back
    /// those that would expire first, and none that are held.
    pub(crate) fn refund(state: &mut SlotsState, ask: Ask) {
        if ask.holder != Holder::default() {
            return state.release(ask.holder, ask.cost);
        }
        let mut left = ask.cost;
        state.slots.retain_mut(|slots| {
            let back = if slots.expires == HELD { 0 } else { left.min(slots.count) };
            slots.count -= back;
            left -= back;
            slots.count > 0
        });
        state.count();
    }

    /// How many slots are free.
    pub(crate) fn available(&self, state: &SlotsState) -> u64 {
        self.limit.saturating_sub(state.taken)
    }

    /// For how long slots are taken.
    fn life(&self, ask: Ask) -> Nanos {
        let longest = self.time_to_live;
        ask.tenure.lease().map_or(longest, |lease| lease.min(longest)).as_span()
    }

    /// Until all slots have expired, if nobody gives any back. Of those that are held nobody
    /// knows; they are told as if taken just now.
    fn rest(&self, state: &SlotsState, now: Timestamp) -> Nanos {
        match state.idle_at() {
            Timestamp::MAX => self.time_to_live.as_span(),
            idle => idle.since(now),
        }
    }

    /// Until enough slots have expired, if nobody gives any back.
    fn wait(&self, state: &SlotsState, ask: Ask) -> Nanos {
        let mut excess = state.taken.saturating_add(ask.cost).saturating_sub(self.limit);
        for slots in state.expiring() {
            excess = excess.saturating_sub(slots.count);
            if excess == 0 {
                return slots.expires.since(ask.now);
            }
        }
        self.time_to_live.as_span()
    }
}

#[cfg(test)]
mod tests;
