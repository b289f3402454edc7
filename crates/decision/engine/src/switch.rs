//! Modes that are switched while the engine runs.
//!
//! Each limit has one word that says its mode and the share of keys for which
//! it is enforced; one more word switches everything off. The hot path reads
//! them and nothing else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_rules::{Mode, RuleLimit};

/// What a limit does with its answer, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Enforce, shadow or off.
    pub mode: Mode,
    /// The share of keys for which an enforced limit is enforced; for the
    /// others it is in shadow. At most 100.
    pub enforce_percent: u8,
}

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
    pub(crate) limits: HashMap<u64, Switch>,
    /// The most that limits of each kind do.
    rate: Switch,
    concurrency: Switch,
}

impl Default for Switches {
    fn default() -> Self {
        Switches { limits: HashMap::new(), rate: Switch::FULL, concurrency: Switch::FULL }
    }
}

impl Switches {
    /// What a limit does.
    pub(crate) fn of(&self, limit: &RuleLimit) -> Switch {
        let own = self.limits.get(&limit.identity).copied();
        own.unwrap_or_else(|| Switch::of(limit)).within(self.most(LimiterKind::of(limit)))
    }

    pub(crate) const fn most(&self, kind: LimiterKind) -> Switch {
        match kind {
            LimiterKind::Rate => self.rate,
            LimiterKind::Concurrency => self.concurrency,
        }
    }

    pub(crate) const fn most_mut(&mut self, kind: LimiterKind) -> &mut Switch {
        match kind {
            LimiterKind::Rate => &mut self.rate,
            LimiterKind::Concurrency => &mut self.concurrency,
        }
    }
}

impl Switch {
    /// Enforced for everybody.
    pub const FULL: Switch = Switch { mode: Mode::Enforce, enforce_percent: 100 };

    /// The weaker of both.
    fn within(self, most: Switch) -> Self {
        let mode = match (self.mode, most.mode) {
            (Mode::Off, _) | (_, Mode::Off) => Mode::Off,
            (Mode::Shadow, _) | (_, Mode::Shadow) => Mode::Shadow,
            (Mode::Enforce, Mode::Enforce) => Mode::Enforce,
        };
        Switch { mode, enforce_percent: self.enforce_percent.min(most.enforce_percent) }
    }

    /// What the rule file says.
    pub(crate) fn of(limit: &RuleLimit) -> Self {
        Switch { mode: limit.mode, enforce_percent: limit.enforce_percent.min(100) }
    }

    /// Whether the key with this number, which is the same in every process, is
    /// among those for which the limit is enforced.
    pub(crate) const fn enforces(self, key_number: u64) -> bool {
        key_number % 100 < self.enforce_percent as u64
    }

    const fn to_word(self) -> u32 {
        let mode = match self.mode {
            Mode::Enforce => 0,
            Mode::Shadow => 1,
            Mode::Off => 2,
        };
        (mode << 8) | self.enforce_percent as u32
    }

    fn from_word(word: u32) -> Self {
        let mode = match word >> 8 {
            0 => Mode::Enforce,
            1 => Mode::Shadow,
            _ => Mode::Off,
        };
        Switch { mode, enforce_percent: word.to_le_bytes()[0] }
    }
}

/// A limit's switch, read on every request.
#[derive(Debug)]
pub(crate) struct SwitchCell(AtomicU32);

impl SwitchCell {
    pub(crate) fn new(switch: Switch) -> Self {
        SwitchCell(AtomicU32::new(switch.to_word()))
    }

    /// Whether it says [`Switch::FULL`], as most do.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Switch::FULL.to_word()
    }

    #[inline]
    pub(crate) fn read(&self) -> Switch {
        Switch::from_word(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, switch: Switch) {
        self.0.store(switch.to_word(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_comes_back_as_it_was_set() {
        for mode in [Mode::Enforce, Mode::Shadow, Mode::Off] {
            for enforce_percent in [0, 1, 50, 100] {
                let switch = Switch { mode, enforce_percent };
                assert_eq!(SwitchCell::new(switch).read(), switch);
            }
        }
    }

    #[test]
    fn the_share_of_enforced_keys_is_the_percentage() {
        for percent in [0, 1, 37, 100] {
            let switch = Switch { mode: Mode::Enforce, enforce_percent: percent };
            let enforced = (0..1000).filter(|number| switch.enforces(*number)).count();
            assert_eq!(enforced, usize::from(percent) * 10);
        }
    }
}
