//! Sliding window counter: the window is cut into slices, each with a count.
//!
//! The slice that is leaving the window counts in proportion to the part that
//! is still inside. One slice (two counters) is the classic form; more slices
//! come closer to the sliding log for a few bytes each.

use smallvec::{SmallVec, smallvec};

use crate::ask::Ask;
use crate::decision::{Decision, Retry};
use crate::limit::ParameterError;
use crate::period::Period;
use crate::time::{Nanos, Timestamp};

/// The most slices a window can be cut into; by then the error is under 2 %.
pub const SLICES_MAX: u16 = 64;

/// About `limit` in any window of the given length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u64,
    period: Period,
    slices: u16,
    /// The length of one slice; the window is this times `slices`, at most a
    /// few nanoseconds longer than the period.
    slice: u64,
    count_refused: bool,
}

/// What a sliding window remembers of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlicesState {
    /// When the newest slice began.
    begun: Timestamp,
    /// The length of a slice when this was written.
    slice: u64,
    /// Oldest first; the last one is the slice being filled.
    counts: SmallVec<[u64; 2]>,
}

impl SlicesState {
    /// When the state stops mattering: the newest slice has left the window.
    pub fn idle_at(&self) -> Timestamp {
        let slices = self.counts.len() as u64;
        self.begun.after(Nanos::new(self.slice.saturating_mul(slices)))
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        if self.counts.spilled() { self.counts.capacity() * size_of::<u64>() } else { 0 }
    }

    fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl SlidingWindow {
    /// About `limit` in any window of length `period`, counted in `slices`.
    ///
    /// # Errors
    /// When `slices` is zero or above [`SLICES_MAX`].
    pub fn new(limit: u64, period: Period, slices: u16) -> Result<Self, ParameterError> {
        if slices == 0 || slices > SLICES_MAX {
            return Err(ParameterError::Slices { slices });
        }
        let slice = period.as_nanos().div_ceil(u64::from(slices));
        Ok(SlidingWindow { limit, period, slices, slice, count_refused: false })
    }

    /// Whether refused costs count too.
    #[must_use]
    pub fn counting_refused(self, count_refused: bool) -> Self {
        SlidingWindow { count_refused, ..self }
    }

    /// How much a window allows.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window's length.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// How many slices the window is cut into.
    pub const fn slices(&self) -> u16 {
        self.slices
    }

    /// The same window with another limit.
    pub(crate) fn with_limit(&self, limit: u64) -> Self {
        SlidingWindow { limit, ..self.clone() }
    }

    /// The state in line with these parameters and this instant.
    ///
    /// Slices that have left are dropped. Usage that was cut differently, or
    /// that lies in the future because the clock stepped back, is carried into
    /// the present slice.
    pub(crate) fn settle(&self, state: Option<SlicesState>, now: Timestamp) -> SlicesState {
        let begun = now.as_nanos() - now.as_nanos() % self.slice;
        let kept = usize::from(self.slices) + 1;
        let mut fresh = SlicesState {
            begun: Timestamp::from_nanos(begun),
            slice: self.slice,
            counts: smallvec![0; kept],
        };
        let Some(mut state) = state else { return fresh };
        let same_cut = state.slice == self.slice && state.counts.len() == kept;
        if same_cut && state.begun == fresh.begun {
            return state;
        }
        if state.idle_at() <= now {
            return fresh;
        }
        if !same_cut || state.begun > now {
            fresh.counts[kept - 1] = state.total();
            return fresh;
        }
        let passed = (begun - state.begun.as_nanos()) / self.slice;
        let passed = usize::try_from(passed).unwrap_or(kept).min(kept);
        state.counts.rotate_left(passed);
        state.counts[kept - passed..].fill(0);
        state.begun = fresh.begun;
        state
    }

    /// Judges a settled state; charges nothing.
    pub(crate) fn decide(&self, state: &SlicesState, ask: Ask) -> Decision {
        let left = self.available(state, ask.now);
        if ask.cost <= left {
            let reset = self.reset(state, ask.cost, ask.now);
            return Decision::admitted(self.limit, ask.cost, left - ask.cost, reset);
        }
        let retry =
            if ask.cost > self.limit { Retry::Never } else { Retry::After(self.wait(state, ask)) };
        Decision::refused(self.limit, left, retry, self.reset(state, 0, ask.now))
    }

    /// Counts `cost` in a settled state.
    pub(crate) fn charge(state: &mut SlicesState, cost: u64) {
        if let Some(newest) = state.counts.last_mut() {
            *newest = newest.saturating_add(cost);
        }
    }

    /// Counts a refused `cost`, where that is asked for.
    pub(crate) fn refuse(&self, state: &mut SlicesState, cost: u64) {
        if self.count_refused {
            Self::charge(state, cost);
        }
    }

    /// Takes `cost` back from a settled state, the newest slice first.
    pub(crate) fn refund(state: &mut SlicesState, cost: u64) {
        let mut left = cost;
        for count in state.counts.iter_mut().rev() {
            let back = left.min(*count);
            *count -= back;
            left -= back;
        }
    }

    /// How much could be used at once.
    pub(crate) fn available(&self, state: &SlicesState, now: Timestamp) -> u64 {
        let used = self.weighted(state, now);
        u64::try_from(u128::from(self.limit).saturating_sub(used)).unwrap_or(0)
    }

    /// What counts as used at `now`, rounded up.
    fn weighted(&self, state: &SlicesState, now: Timestamp) -> u128 {
        let inside = self.slice - now.since(state.begun).get().min(self.slice);
        let oldest = u128::from(state.counts[0]) * u128::from(inside);
        let whole: u128 = state.counts[1..].iter().map(|count| u128::from(*count)).sum();
        whole + oldest.div_ceil(u128::from(self.slice))
    }

    /// Until the weighted sum has room for the cost: step from slice to slice
    /// until the rest fits, then solve for the part of the leaving slice.
    fn wait(&self, state: &SlicesState, ask: Ask) -> Nanos {
        let mut whole: u128 = state.counts[1..].iter().map(|count| u128::from(*count)).sum();
        let room = u128::from(self.limit - ask.cost);
        for (step, oldest) in state.counts.iter().enumerate() {
            if step > 0 {
                whole -= u128::from(*oldest);
            }
            if let Some(room) = room.checked_sub(whole) {
                let slice = u128::from(self.slice);
                let inside = match u128::from(*oldest) {
                    0 => slice,
                    oldest => (room * slice / oldest).min(slice),
                };
                let leaves = u128::from(state.begun.as_nanos()) + slice * (step as u128 + 1);
                let wait = (leaves - inside).saturating_sub(u128::from(ask.now.as_nanos()));
                return Nanos::new(u64::try_from(wait).unwrap_or(u64::MAX));
            }
        }
        state.idle_at().since(ask.now)
    }

    /// Until nothing counts any more, after `cost` more is counted.
    fn reset(&self, state: &SlicesState, cost: u64, now: Timestamp) -> Nanos {
        let newest = if cost > 0 {
            Some(state.counts.len() - 1)
        } else {
            state.counts.iter().rposition(|count| *count > 0)
        };
        let slices = newest.map_or(0, |newest| newest as u64 + 1);
        state.begun.after(Nanos::new(self.slice.saturating_mul(slices))).since(now)
    }
}
