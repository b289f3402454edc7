//! Sliding window counter: the window is cut into slices, each with a count.
//!
//! The slice that is leaving the window counts in proportion to the part that is still inside. One
//! slice (two counters) is the classic form; more slices come closer to the sliding log for a few
//! bytes each.

use smallvec::{SmallVec, smallvec};

use crate::check_input::CheckInput;
use crate::decision::{Decision, Retry};
use crate::limit::ParameterError;
use crate::period::Period;
use crate::policy::RoundingMode;
use crate::time::{Nanos, Timestamp};

/// The largest number of slices; one is then under 2 % of the window.
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
    rounding: RoundingMode,
}

/// A key's state in a sliding window.
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
    fn unused(begun: Timestamp, slice: u64, slices: u16) -> Self {
        SlicesState { begun, slice, counts: smallvec![0; usize::from(slices) + 1] }
    }

    /// The state from the start of the newest slice, the length of a slice, and the counts, oldest
    /// first.
    pub fn from_parts(begun: Timestamp, slice: Nanos, counts: &[u64]) -> Self {
        SlicesState { begun, slice: slice.get().max(1), counts: SmallVec::from_slice(counts) }
    }

    /// The parts of [`SlicesState::from_parts`].
    pub fn to_parts(&self) -> (Timestamp, Nanos, &[u64]) {
        (self.begun, Nanos::new(self.slice), &self.counts)
    }

    /// When the newest slice in use has left the window.
    pub fn idle_at(&self) -> Timestamp {
        let newest = self.counts.iter().rposition(|count| *count > 0);
        newest.map_or(Timestamp::EPOCH, |newest| self.leaves(newest))
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        if self.counts.spilled() { self.counts.capacity() * size_of::<u64>() } else { 0 }
    }

    /// When the slice at this position has left the window.
    fn leaves(&self, position: usize) -> Timestamp {
        let slices = (position as u64).saturating_add(1);
        self.begun.after(Nanos::new(self.slice.saturating_mul(slices)))
    }

    /// The position of the slice being filled.
    fn newest(&self) -> usize {
        self.counts.len().saturating_sub(1)
    }

    /// The weighted use at `now`.
    fn used(&self, now: Timestamp, rounding: RoundingMode) -> u128 {
        let passed = now.since(self.begun).get().min(self.slice);
        let inside = u128::from(self.slice - passed);
        let oldest = self.counts.first().copied().unwrap_or(0);
        let weighted = u128::from(oldest) * inside;
        let slice = u128::from(self.slice);
        let oldest = match rounding {
            RoundingMode::Up => weighted.div_ceil(slice),
            RoundingMode::Down => weighted / slice,
        };
        self.inside() + oldest
    }

    /// The use in the slices that are wholly inside the window.
    fn inside(&self) -> u128 {
        self.counts.iter().skip(1).copied().map(u128::from).sum()
    }

    /// Moves the window on by so many slices.
    fn shift(&mut self, slices: u64) {
        let slices = usize::try_from(slices).unwrap_or(usize::MAX);
        let kept = self.counts.len();
        if slices >= kept {
            self.counts.fill(0);
        } else {
            self.counts.rotate_left(slices);
            self.counts[kept - slices..].fill(0);
        }
    }
}

impl SlidingWindow {
    /// About `limit` in any window of length `period`, counted in `slices`.
    ///
    /// # Errors
    /// If `slices` is zero or above [`SLICES_MAX`].
    pub fn new(limit: u64, period: Period, slices: u16) -> Result<Self, ParameterError> {
        if slices == 0 || slices > SLICES_MAX {
            return Err(ParameterError::Slices { slices });
        }
        let slice = period.as_nanos().div_ceil(u64::from(slices));
        Ok(SlidingWindow {
            limit,
            period,
            slices,
            slice,
            count_refused: false,
            rounding: RoundingMode::Up,
        })
    }

    /// The same window with another length.
    pub(crate) fn with_period(&self, period: Period) -> Self {
        let slice = period.as_nanos().div_ceil(u64::from(self.slices));
        SlidingWindow { period, slice, ..self.clone() }
    }

    /// Whether refused costs count too.
    #[must_use]
    pub fn counting_refused(self, count_refused: bool) -> Self {
        SlidingWindow { count_refused, ..self }
    }

    /// Whether refused costs count too.
    pub const fn counts_refused(&self) -> bool {
        self.count_refused
    }

    /// How the weighted use is rounded to whole units.
    #[must_use]
    pub fn rounded(self, rounding: RoundingMode) -> Self {
        SlidingWindow { rounding, ..self }
    }

    /// How the weighted use is rounded to whole units.
    pub const fn rounding(&self) -> RoundingMode {
        self.rounding
    }

    /// How much a window allows.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window's length.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// The number of slices.
    pub const fn slices(&self) -> u16 {
        self.slices
    }

    /// The length of one slice.
    pub const fn slice(&self) -> Nanos {
        Nanos::new(self.slice)
    }

    /// The same window with another limit.
    pub(crate) fn with_limit(&self, limit: u64) -> Self {
        SlidingWindow { limit, ..self.clone() }
    }

    /// The state converted to these parameters and this instant.
    ///
    /// Slices that have left are dropped. Use in slices of another length, or further in the future
    /// than a late reading of the clock explains, is carried into the present slice, up to one
    /// limit's worth.
    pub(crate) fn settle(&self, state: Option<SlicesState>, now: Timestamp) -> SlicesState {
        let begun = Timestamp::from_nanos(now.as_nanos() - now.as_nanos() % self.slice);
        let Some(mut state) = state else {
            return SlicesState::unused(begun, self.slice, self.slices);
        };
        let same_cut =
            state.slice == self.slice && state.counts.len() == usize::from(self.slices) + 1;
        if same_cut && state.begun <= begun {
            state.shift(begun.since(state.begun).get() / self.slice);
            state.begun = begun;
            return state;
        }
        if same_cut && state.begun <= now.after(self.period.lag_max()) {
            return state;
        }
        let carried = if state.idle_at().has_come(now) {
            0
        } else {
            state.used(now, self.rounding).min(u128::from(self.limit))
        };
        let mut fresh = SlicesState::unused(begun, self.slice, self.slices);
        Self::charge(&mut fresh, u64::try_from(carried).unwrap_or(self.limit));
        fresh
    }

    /// Judges a settled state; charges nothing.
    pub(crate) fn decide(&self, state: &SlicesState, input: CheckInput) -> Decision {
        let left = self.available(state, input.now);
        if input.cost <= left {
            let reset = Self::reset(state, input.cost, input.now);
            return Decision::admitted(self.limit, input.cost, left - input.cost, reset);
        }
        let counted = if self.count_refused { input.cost } else { 0 };
        let wait = || self.wait(state, input, counted);
        let retry = Retry::after_or_never(input.cost, self.limit, wait);
        let reset = Self::reset(state, counted, input.now);
        Decision::refused(self.limit, left, retry, reset)
    }

    /// Counts `cost` in a settled state.
    pub(crate) fn charge(state: &mut SlicesState, cost: u64) {
        if let Some(newest) = state.counts.last_mut() {
            *newest = newest.saturating_add(cost);
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

    /// The units that could be used at once.
    pub(crate) fn available(&self, state: &SlicesState, now: Timestamp) -> u64 {
        let left = u128::from(self.limit).saturating_sub(state.used(now, self.rounding));
        u64::try_from(left).unwrap_or(self.limit)
    }

    /// Time until the weighted sum has room for the cost, with `counted` more counted now: steps
    /// from slice to slice until the rest fits, then solves for the part of the leaving slice.
    fn wait(&self, state: &SlicesState, input: CheckInput, counted: u64) -> Nanos {
        let room = u128::from(self.limit.saturating_sub(input.cost));
        let slice = u128::from(self.slice);
        let newest = state.newest();
        let counts = state.counts.iter().enumerate().map(|(position, count)| {
            let counted = if position == newest { counted } else { 0 };
            u128::from(count.saturating_add(counted))
        });
        let mut inside: u128 = counts.clone().skip(1).sum();
        let mut leaves = u128::from(state.begun.as_nanos());
        for (position, leaving) in counts.enumerate() {
            leaves += slice;
            if position > 0 {
                inside = inside.saturating_sub(leaving);
            }
            if let Some(room) = room.checked_sub(inside) {
                let part = self.part_within(room, leaving);
                let wait =
                    (leaves - part.min(slice)).saturating_sub(u128::from(input.now.as_nanos()));
                return Nanos::new(u64::try_from(wait).unwrap_or(u64::MAX));
            }
        }
        state.leaves(newest).since(input.now)
    }

    /// The longest part of a leaving slice, in nanoseconds, whose share of `leaving` is at most `room`.
    fn part_within(&self, room: u128, leaving: u128) -> u128 {
        let slice = u128::from(self.slice);
        match (self.rounding, leaving) {
            (_, 0) => slice,
            (RoundingMode::Up, _) => room * slice / leaving,
            // Less than one more unit rounds down to `room`.
            (RoundingMode::Down, _) => ((room + 1) * slice).div_ceil(leaving) - 1,
        }
    }

    /// Time until the state is as good as unused, after `cost` more is counted.
    fn reset(state: &SlicesState, cost: u64, now: Timestamp) -> Nanos {
        let idle_at = match cost {
            0 => state.idle_at(),
            _ => state.leaves(state.newest()),
        };
        idle_at.since(now)
    }
}

#[cfg(test)]
mod tests;
