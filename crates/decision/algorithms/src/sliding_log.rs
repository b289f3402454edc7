//! Sliding log: every admitted request is remembered until it leaves the window.
//!
//! Exact: no window of the given length, wherever it starts, holds more than the limit. The price
//! is memory in proportion to the limit, so the limit is bounded.

use std::collections::VecDeque;

use crate::check_input::CheckInput;
use crate::decision::{Decision, Retry};
use crate::limit::ParameterError;
use crate::period::Period;
use crate::time::{Nanos, Timestamp};

/// The largest limit of a sliding log: its state is sixteen bytes for each
/// request in the window, 1.6 MB for one busy key at this limit.
pub const SLIDING_LOG_MAX: u64 = 100_000;

/// At most `limit` in any window of the given length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    period: Period,
    count_refused: bool,
}

/// A key's state in a sliding log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogState {
    /// Oldest first; requests of one instant share an entry.
    entries: VecDeque<Entry>,
    /// The sum of the entries' costs.
    total: u64,
    /// When the newest entry leaves the window.
    idle_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    at: Timestamp,
    cost: u64,
}

impl LogState {
    /// A state of instants with their costs, oldest first.
    pub fn from_entries(entries: impl IntoIterator<Item = (Timestamp, u64)>) -> Self {
        let entries: VecDeque<Entry> =
            entries.into_iter().map(|(at, cost)| Entry { at, cost }).collect();
        let total = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.cost));
        LogState { entries, total, idle_at: Timestamp::EPOCH }
    }

    /// From when on the state is as good as unused.
    pub const fn idle_at(&self) -> Timestamp {
        self.idle_at
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// Heap bytes that one more entry adds.
    pub fn growth_bytes(&self) -> usize {
        let spare = self.entries.capacity() - self.entries.len();
        if spare > 0 { 0 } else { self.heap_bytes().max(4 * size_of::<Entry>()) }
    }
}

impl SlidingLog {
    /// At most `limit` in any window of length `period`; zero refuses every cost.
    ///
    /// # Errors
    /// If the limit is above [`SLIDING_LOG_MAX`].
    pub fn new(limit: u64, period: Period) -> Result<Self, ParameterError> {
        if limit > SLIDING_LOG_MAX {
            return Err(ParameterError::SlidingLogTooLarge { limit });
        }
        Ok(SlidingLog { limit, period, count_refused: false })
    }

    /// Sets whether refused requests count too: a caller that keeps retrying then stays refused
    /// until it stops.
    #[must_use]
    pub fn counting_refused(self, count_refused: bool) -> Self {
        SlidingLog { count_refused, ..self }
    }

    /// Whether refused costs count too.
    pub const fn counts_refused(&self) -> bool {
        self.count_refused
    }

    /// How much a window allows.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window's length.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// The same limit in a window of another length.
    pub(crate) fn with_period(&self, period: Period) -> Self {
        SlidingLog { period, ..self.clone() }
    }

    /// The same window with another limit, up to [`SLIDING_LOG_MAX`].
    pub(crate) fn with_limit(&self, limit: u64) -> Self {
        SlidingLog { limit: limit.min(SLIDING_LOG_MAX), ..self.clone() }
    }

    /// Drops entries that have left the window. Entries from the future are moved to now, so that
    /// they leave in one period, unless a late reading of the clock explains them.
    pub(crate) fn settle(&self, state: &mut LogState, now: Timestamp) {
        let latest = now.after(self.period.lag_max());
        if state.entries.back().is_some_and(|last| last.at > latest) {
            state.bring_back_to(now);
        }
        while let Some(first) = state.entries.front() {
            if now.since(first.at) < self.period.as_span() {
                break;
            }
            state.total -= first.cost;
            state.entries.pop_front();
        }
        state.idle_at = state.leaves(self.period, now);
    }

    /// Judges a settled state; charges nothing.
    pub(crate) fn decide(&self, state: &LogState, input: CheckInput) -> Decision {
        let left = self.available(state);
        let reset = state.idle_at.since(input.now);
        if input.cost <= left {
            let reset = if input.cost == 0 { reset } else { self.lasting(state, input.now) };
            return Decision::admitted(self.limit, input.cost, left - input.cost, reset);
        }
        let retry = Retry::after_or_never(input.cost, self.limit, || self.wait(state, input));
        let reset = if self.count_refused { self.lasting(state, input.now) } else { reset };
        Decision::refused(self.limit, left, retry, reset)
    }

    /// Adds `cost` at `now` to a settled state. Entries beyond one limit's worth make no difference
    /// and are dropped, so that the log stays bounded even if refused costs count.
    pub(crate) fn charge(&self, state: &mut LogState, cost: u64, now: Timestamp) {
        let cost = cost.min(self.limit);
        if cost == 0 {
            return;
        }
        state.push(cost, now);
        state.idle_at = state.leaves(self.period, now);
        while let Some(first) = state.entries.front() {
            if state.total - first.cost < self.limit {
                break;
            }
            state.total -= first.cost;
            state.entries.pop_front();
        }
    }

    /// Removes up to `cost` from the newest entries of a settled state.
    pub(crate) fn refund(&self, state: &mut LogState, cost: u64, now: Timestamp) {
        let mut left = cost.min(state.total);
        state.total -= left;
        while let Some(last) = state.entries.back_mut() {
            if last.cost > left {
                last.cost -= left;
                break;
            }
            left -= last.cost;
            state.entries.pop_back();
        }
        self.settle(state, now);
    }

    /// The units that could be used at once.
    pub(crate) fn available(&self, state: &LogState) -> u64 {
        self.limit.saturating_sub(state.total)
    }

    /// Time until enough of the oldest entries have left; includes this refusal if refusals count.
    fn wait(&self, state: &LogState, input: CheckInput) -> Nanos {
        let counted = if self.count_refused { input.cost } else { 0 };
        let mut excess = state
            .total
            .saturating_add(counted)
            .saturating_add(input.cost)
            .saturating_sub(self.limit);
        for entry in &state.entries {
            excess = excess.saturating_sub(entry.cost);
            if excess == 0 {
                return entry.at.after(self.period.as_span()).since(input.now);
            }
        }
        self.lasting(state, input.now)
    }

    /// How long an entry made at `now` would stay.
    fn lasting(&self, state: &LogState, now: Timestamp) -> Nanos {
        let made = state.entries.back().map_or(now, |last| last.at.max(now));
        made.after(self.period.as_span()).since(now)
    }
}

impl LogState {
    /// Adds an entry. A late reading joins the newest entry, so that entries stay in order.
    fn push(&mut self, cost: u64, now: Timestamp) {
        self.total = self.total.saturating_add(cost);
        match self.entries.back_mut() {
            Some(last) if last.at >= now => last.cost = last.cost.saturating_add(cost),
            _ => self.entries.push_back(Entry { at: now, cost }),
        }
    }

    /// Moves entries after `now` to `now`.
    fn bring_back_to(&mut self, now: Timestamp) {
        let mut ahead = 0_u64;
        while let Some(last) = self.entries.back().filter(|last| last.at > now) {
            ahead = ahead.saturating_add(last.cost);
            self.entries.pop_back();
        }
        self.total -= ahead;
        self.push(ahead, now);
    }

    /// When the newest entry leaves a window of this length; `now` if there is none.
    fn leaves(&self, period: Period, now: Timestamp) -> Timestamp {
        self.entries.back().map_or(now, |last| last.at.after(period.as_span()))
    }
}

#[cfg(test)]
mod tests;
