//! Fixed window: one count that starts over when its window ends.
//!
//! Cheap and easy to explain, and what envoyproxy/ratelimit does. Its price:
//! around a window's end up to twice the limit can pass in a short time.

use crate::ask::Ask;
use crate::decision::{Decision, Retry};
use crate::time::Timestamp;
use crate::window::Window;

/// At most `limit` per window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window: Window,
    count_refused: bool,
}

/// What a fixed window remembers of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowState {
    /// When the window ends and the count is forgotten.
    pub end: Timestamp,
    /// What was used in it.
    pub count: u64,
}

impl FixedWindow {
    /// At most `limit` per window; a limit of zero refuses every cost.
    pub const fn new(limit: u64, window: Window) -> Self {
        FixedWindow { limit, window, count_refused: false }
    }

    /// Whether refused costs count too, as envoyproxy/ratelimit has it.
    #[must_use]
    pub fn counting_refused(self, count_refused: bool) -> Self {
        FixedWindow { count_refused, ..self }
    }

    /// The same limit with other windows.
    #[must_use]
    pub fn with_window(self, window: Window) -> Self {
        FixedWindow { window, ..self }
    }

    /// Whether refused costs count too.
    pub const fn counts_refused(&self) -> bool {
        self.count_refused
    }

    /// How much one window allows.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How windows follow one another.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// The same window with another limit.
    pub(crate) fn with_limit(&self, limit: u64) -> Self {
        FixedWindow { limit, ..self.clone() }
    }

    /// The state in line with these parameters and this instant.
    ///
    /// A count whose window has not ended is carried into the present window.
    /// That is the same window, unless the window's length was changed or the
    /// clock stepped back by more than a late reading explains; then the usage
    /// is kept, until this window's end.
    #[inline]
    pub(crate) fn settle(&self, state: Option<WindowState>, now: Timestamp) -> WindowState {
        match state {
            Some(state) if !state.end.has_come(now) => {
                WindowState { end: self.window.end_given(state.end, now), count: state.count }
            }
            _ => WindowState { end: self.window.end(now), count: 0 },
        }
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub(crate) fn decide(&self, state: WindowState, ask: Ask) -> Decision {
        let left = self.limit.saturating_sub(state.count);
        let reset = state.end.since(ask.now);
        if self.fits(state, ask.cost) {
            return Decision::admitted(self.limit, ask.cost, left - ask.cost, reset);
        }
        let retry = if ask.cost > self.limit { Retry::Never } else { Retry::After(reset) };
        Decision::refused(self.limit, left, retry, reset)
    }

    /// Whether a settled state has room for a cost.
    #[inline]
    pub(crate) const fn fits(&self, state: WindowState, cost: u64) -> bool {
        // Where refused costs count, even a cost of zero finds the limit exceeded.
        let exceeded = self.count_refused && state.count > self.limit;
        cost <= self.limit.saturating_sub(state.count) && !exceeded
    }

    /// The settled state after `cost` more.
    #[inline]
    pub(crate) fn charge(state: WindowState, cost: u64) -> WindowState {
        WindowState { count: state.count.saturating_add(cost), ..state }
    }

    /// The settled state after `cost` was refused.
    #[inline]
    pub(crate) fn refuse(&self, state: WindowState, cost: u64) -> WindowState {
        if self.count_refused { Self::charge(state, cost) } else { state }
    }

    /// The settled state after `cost` is given back.
    pub(crate) fn refund(state: WindowState, cost: u64) -> WindowState {
        WindowState { count: state.count.saturating_sub(cost), ..state }
    }
}

#[cfg(test)]
mod tests;
