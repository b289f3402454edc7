//! How often a sliding window decides otherwise than an exact log would.
//!
//! A sliding window estimates the use of the last period from a few counts. Beside each such limit, a log of what it
//! admitted is kept for each caller; a request is *wrongly admitted* or *wrongly refused* if the log says otherwise.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use tidegate_algorithms::{
    Algorithm, CheckInput, Limit, SLIDING_LOG_MAX, SlidingLog, State, Timestamp,
};

/// The most callers of one limit whose exact log is kept; further ones are not judged.
const CALLERS_MAX: usize = 200_000;

/// A sliding window beside an exact log.
#[derive(Debug)]
pub(crate) struct ExactWindow {
    limit: Limit,
    logs: HashMap<u64, State, FixedState>,
    pub(crate) counts: WindowErrors,
}

/// How often a sliding window was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowErrors {
    /// Requests that were compared.
    pub judged: u64,
    /// Admitted, although an exact log would have refused.
    pub wrongly_admitted: u64,
    /// Refused, although an exact log would have admitted.
    pub wrongly_refused: u64,
}

impl ExactWindow {
    /// The comparison for a limit, if it is a sliding window that a log can follow.
    pub(crate) fn of(limit: &Limit) -> Option<Self> {
        let Algorithm::SlidingWindow(window) = limit.algorithm() else { return None };
        if limit.soft().is_some() || window.counts_refused() || window.limit() > SLIDING_LOG_MAX {
            return None;
        }
        let log = SlidingLog::new(window.limit(), window.period()).ok()?;
        Some(ExactWindow {
            limit: Limit::new(log),
            logs: HashMap::default(),
            counts: WindowErrors::default(),
        })
    }

    /// Compares a decision of the sliding window with that of the log.
    pub(crate) fn compare(&mut self, caller: u64, cost: u64, admitted: bool, now: Timestamp) {
        if self.logs.len() >= CALLERS_MAX && !self.logs.contains_key(&caller) {
            return;
        }
        let state = self.logs.entry(caller).or_default();
        let input = CheckInput::new(cost, now);
        let exact = self.limit.peek(state, input).is_admitted();
        self.counts.judged += 1;
        match (admitted, exact) {
            (true, false) => self.counts.wrongly_admitted += 1,
            (false, true) => self.counts.wrongly_refused += 1,
            (true, true) | (false, false) => {}
        }
        if admitted {
            self.limit.overcharge(state, input);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::{Period, SlidingWindow};

    use super::*;

    #[test]
    fn a_burst_at_the_end_of_a_window_is_judged_wrongly_by_the_estimate() {
        let window = SlidingWindow::new(10, Period::MINUTE, 1).unwrap();
        let limit = Limit::new(window);
        let mut exact = ExactWindow::of(&limit).unwrap();
        let mut state = State::Unused;
        let at = |second: u64| Timestamp::from_secs(60 * 30_000_000 + second);
        // Ten in the last second of a window, then one a second: the estimate lets some pass too early.
        for second in std::iter::repeat_n(59, 10).chain(60..120) {
            let admitted = limit.check(&mut state, CheckInput::new(1, at(second))).is_admitted();
            exact.compare(7, 1, admitted, at(second));
        }
        assert_eq!(exact.counts.judged, 70);
        assert!(exact.counts.wrongly_admitted > 0);
    }
}
