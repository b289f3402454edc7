//! Modes that are switched while the engine runs: of single limits, and of all limits of a kind.

use std::collections::HashMap;

use tidegate_macros::defaults;
use tidegate_rules::{Mode, RuleLimit};

/// The kinds of limits that rules have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimiterKind {
    /// Requests over time, by any algorithm.
    Rate,
    /// Requests in flight.
    Concurrency,
}

impl LimiterKind {
    fn of(limit: &RuleLimit) -> Self {
        if limit.limit.algorithm().holds_slots() {
            LimiterKind::Concurrency
        } else {
            LimiterKind::Rate
        }
    }
}

defaults! {
    /// Modes that were set at run time, over those of the rules.
    #[derive(Debug)]
    pub(crate) struct RunTimeModes {
        /// Of single limits, by identity.
        pub(crate) limits: HashMap<u64, Mode>,
        /// The strongest mode of each kind of limit, by [`LimiterKind`].
        most: [Mode; 2] = [Mode::ENFORCE; 2],
    }
}

impl RunTimeModes {
    /// The mode of a limit.
    pub(crate) fn of(&self, limit: &RuleLimit) -> Mode {
        let own = self.limits.get(&limit.identity).copied();
        own.unwrap_or(limit.mode).at_most(self.most(LimiterKind::of(limit)))
    }

    pub(crate) const fn most(&self, kind: LimiterKind) -> Mode {
        self.most[kind as usize]
    }

    pub(crate) const fn set_most(&mut self, kind: LimiterKind, mode: Mode) {
        self.most[kind as usize] = mode;
    }
}
