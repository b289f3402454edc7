//! Callers that did not read their responses while the gate was nearly full.
//!
//! A response that its client does not read holds a slot until it is cut off. A client that comes
//! back at once would hold slots again and again, so a caller that stalled has only a part of the
//! gate for a while. It is not refused altogether: several clients may share an address. The part
//! is for the sake of other callers, so it holds only while there are any.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::{Nanos, Timestamp};

use crate::category::Caller;

/// How long a caller has less of the gate after it stalled.
const REMEMBERED_FOR: Nanos = Nanos::from_secs(60);
/// Its part of the gate: one slot in four, at least one.
const PART: u64 = 4;
/// Callers that are remembered. Beyond these, the one that stalled first is forgotten.
const CALLERS_MAX: usize = 1024;

/// The callers that stalled lately, and the slots that they hold since.
#[derive(Debug, Default)]
pub(crate) struct StalledCallers {
    /// The number of callers: a request takes the lock only if there are any.
    count: AtomicUsize,
    known: Mutex<KnownCallers>,
}

#[derive(Debug, Default)]
struct KnownCallers {
    stalled: HashMap<Caller, StalledCaller>,
    /// When a request of another caller last came, while a caller was remembered.
    other_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct StalledCaller {
    /// When it last stalled.
    at: Timestamp,
    /// Slots that it has entered with since.
    slots: u64,
}

/// Whether a request may have a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerShare {
    /// The caller has not stalled.
    Whole,
    /// The caller has stalled, and this slot is counted: [`StalledCallers::give_back`] it.
    Counted,
    /// The caller has stalled, has its part already, and others need the rest.
    Spent,
}

impl StalledCallers {
    /// Notes that a caller did not read its response.
    #[cold]
    pub(crate) fn note(&self, caller: Caller, now: Timestamp) {
        let callers = &mut self.known.lock().stalled;
        callers.retain(|_, stalled| stalled.slots > 0 || is_recent(stalled, now));
        if callers.len() >= CALLERS_MAX && !callers.contains_key(&caller) {
            let first = callers.iter().min_by_key(|(_, stalled)| stalled.at);
            let first = first.map(|(caller, _)| *caller);
            first.map(|first| callers.remove(&first));
        }
        callers.entry(caller).or_insert(StalledCaller { at: now, slots: 0 }).at = now;
        self.count.store(callers.len(), Ordering::Relaxed);
    }

    /// Takes a slot out of the caller's part of the gate.
    #[inline]
    pub(crate) fn take(
        &self,
        caller: Caller,
        limit: impl FnOnce() -> u64,
        now: Timestamp,
    ) -> CallerShare {
        match self.count.load(Ordering::Relaxed) {
            0 => CallerShare::Whole,
            _ => self.take_known(caller, limit(), now),
        }
    }

    #[cold]
    fn take_known(&self, caller: Caller, limit: u64, now: Timestamp) -> CallerShare {
        let known = &mut *self.known.lock();
        let stalled = known.stalled.get_mut(&caller).filter(|stalled| is_recent(stalled, now));
        let Some(stalled) = stalled else {
            known.other_at = Some(now);
            return CallerShare::Whole;
        };
        let has_others = known.other_at.is_some_and(|at| now.since(at) < REMEMBERED_FOR);
        if has_others && stalled.slots >= (limit / PART).max(1) {
            return CallerShare::Spent;
        }
        stalled.slots = stalled.slots.saturating_add(1);
        CallerShare::Counted
    }

    /// Gives back a slot that was [counted](CallerShare::Counted).
    #[cold]
    pub(crate) fn give_back(&self, caller: Caller, now: Timestamp) {
        let callers = &mut self.known.lock().stalled;
        let Some(stalled) = callers.get_mut(&caller) else { return };
        stalled.slots = stalled.slots.saturating_sub(1);
        if stalled.slots == 0 && !is_recent(stalled, now) {
            callers.remove(&caller);
        }
        self.count.store(callers.len(), Ordering::Relaxed);
    }
}

fn is_recent(stalled: &StalledCaller, now: Timestamp) -> bool {
    now.since(stalled.at) < REMEMBERED_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: Caller = Caller::numbered(1);
    const BOB: Caller = Caller::numbered(2);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + seconds)
    }

    #[test]
    fn a_caller_that_stalled_has_a_quarter_of_the_gate_for_a_minute() {
        let callers = StalledCallers::default();
        assert_eq!(callers.take(ADA, || 8, at(0)), CallerShare::Whole);
        callers.note(ADA, at(0));
        assert_eq!(callers.take(BOB, || 8, at(1)), CallerShare::Whole);
        assert_eq!(callers.take(ADA, || 8, at(1)), CallerShare::Counted);
        assert_eq!(callers.take(ADA, || 8, at(1)), CallerShare::Counted);
        assert_eq!(callers.take(ADA, || 8, at(1)), CallerShare::Spent);
        assert_eq!(callers.take(BOB, || 8, at(1)), CallerShare::Whole);
        callers.give_back(ADA, at(2));
        assert_eq!(callers.take(ADA, || 8, at(59)), CallerShare::Counted);
        assert_eq!(callers.take(ADA, || 8, at(60)), CallerShare::Whole);
    }

    #[test]
    fn a_caller_that_stalled_keeps_the_whole_gate_while_there_is_no_other() {
        let callers = StalledCallers::default();
        callers.note(ADA, at(0));
        for _ in 0..8 {
            assert_eq!(callers.take(ADA, || 8, at(1)), CallerShare::Counted);
        }
        assert_eq!(callers.take(BOB, || 8, at(2)), CallerShare::Whole);
        assert_eq!(callers.take(ADA, || 8, at(3)), CallerShare::Spent);
    }

    #[test]
    fn a_caller_that_stalled_keeps_one_slot_of_a_small_gate() {
        let callers = StalledCallers::default();
        callers.note(ADA, at(0));
        assert_eq!(callers.take(BOB, || 1, at(1)), CallerShare::Whole);
        assert_eq!(callers.take(ADA, || 1, at(1)), CallerShare::Counted);
        assert_eq!(callers.take(ADA, || 1, at(1)), CallerShare::Spent);
    }

    #[test]
    fn callers_are_forgotten_after_a_minute_and_beyond_a_maximum() {
        let callers = StalledCallers::default();
        for number in 0..CALLERS_MAX as u64 + 10 {
            callers.note(Caller::numbered(number), at(number / 100));
        }
        assert_eq!(callers.count.load(Ordering::Relaxed), CALLERS_MAX);
        assert_eq!(
            callers.take(Caller::numbered(CALLERS_MAX as u64), || 8, at(11)),
            CallerShare::Counted
        );
        callers.note(ADA, at(1_000));
        assert_eq!(callers.count.load(Ordering::Relaxed), 2, "the other still holds a slot");
        callers.give_back(Caller::numbered(CALLERS_MAX as u64), at(1_000));
        assert_eq!(callers.count.load(Ordering::Relaxed), 1);
    }
}
