//! Fixed window: one count that starts over when its window ends.
//!
//! Cheap, easy to explain, and the algorithm of envoyproxy/ratelimit. The price: around the end of
//! a window up to twice the limit can pass in a short time.

use crate::check_input::CheckInput;
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

/// A key's state in a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowState {
    /// When the window ends and the count is dropped.
    pub end: Timestamp,
    /// The use in the window.
    pub count: u64,
}

impl FixedWindow {
    /// At most `limit` per window; a limit of zero refuses every cost.
    pub const fn new(limit: u64, window: Window) -> Self {
        FixedWindow { limit, window, count_refused: false }
    }

    /// Sets whether refused costs count too, as in envoyproxy/ratelimit.
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

    /// The state converted to these parameters and this instant.
    ///
    /// A count whose window has not ended is carried into the present window. That is the same
    /// window, unless its length was changed or the clock stepped back by more than a late reading
    /// explains; then the count is kept until the end of the present window.
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
    pub(crate) fn decide(&self, state: WindowState, input: CheckInput) -> Decision {
        let left = self.limit.saturating_sub(state.count);
        let reset = state.end.since(input.now);
        if self.fits(state, input.cost) {
            return Decision::admitted(self.limit, input.cost, left - input.cost, reset);
        }
        let retry = Retry::after_or_never(input.cost, self.limit, || reset);
        Decision::refused(self.limit, left, retry, reset)
    }

    /// Whether a settled state has room for a cost.
    #[inline]
    pub(crate) const fn fits(&self, state: WindowState, cost: u64) -> bool {
        // If refused costs count, the limit may be exceeded even for a cost of zero.
        let exceeded = self.count_refused && state.count > self.limit;
        cost <= self.limit.saturating_sub(state.count) && !exceeded
    }

    /// The settled state after `cost` more.
    #[inline]
    pub(crate) fn charge(state: WindowState, cost: u64) -> WindowState {
        WindowState { count: state.count.saturating_add(cost), ..state }
    }

    /// The settled state after `cost` is refunded.
    pub(crate) fn refund(state: WindowState, cost: u64) -> WindowState {
        WindowState { count: state.count.saturating_sub(cost), ..state }
    }
}

#[cfg(test)]
mod tests;
