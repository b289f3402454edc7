//! Modes that are switched while the engine runs: of single limits, and of all limits of a kind.

use std::collections::HashMap;

use tidegate_rules::{Mode, RuleLimit};

/// The limiters that rules are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimiterKind {
    /// Limits of requests over time, by any algorithm.
    Rate,
    /// Limits of requests in flight.
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

/// What was switched at run time.
#[derive(Debug)]
pub(crate) struct Switches {
    /// Limits, by their identity.
    pub(crate) limits: HashMap<u64, Mode>,
    /// The most that limits of each kind do.
    rate: Mode,
    concurrency: Mode,
}

impl Default for Switches {
    fn default() -> Self {
        Switches { limits: HashMap::new(), rate: Mode::ENFORCE, concurrency: Mode::ENFORCE }
    }
}

impl Switches {
    /// What a limit does.
    pub(crate) fn of(&self, limit: &RuleLimit) -> Mode {
        let own = self.limits.get(&limit.identity).copied();
        own.unwrap_or(limit.mode).at_most(self.most(LimiterKind::of(limit)))
    }

    pub(crate) const fn most(&self, kind: LimiterKind) -> Mode {
        match kind {
            LimiterKind::Rate => self.rate,
            LimiterKind::Concurrency => self.concurrency,
        }
    }

    pub(crate) const fn most_mut(&mut self, kind: LimiterKind) -> &mut Mode {
        match kind {
            LimiterKind::Rate => &mut self.rate,
            LimiterKind::Concurrency => &mut self.concurrency,
        }
    }
}
