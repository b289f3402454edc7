//! A snapshot of the rules as the engine uses it: with a switch for each limit.

use std::collections::HashMap;

use tidegate_rules::{Rule, RuleLimit, Snapshot};

use crate::switch::{Switch, SwitchCell};

/// One snapshot with its switches.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    snapshot: Snapshot,
    /// By limit.
    switches: Box<[SwitchCell]>,
}

impl Loaded {
    /// The snapshot with the switches that its rules say, but for those that
    /// were set at run time, by the limit's identity.
    pub(crate) fn new(snapshot: Snapshot, set: &HashMap<u64, Switch>) -> Self {
        let switches = snapshot
            .limits()
            .iter()
            .map(|limit| {
                let switch = set.get(&limit.identity).copied();
                SwitchCell::new(switch.unwrap_or_else(|| Switch::of(limit)))
            })
            .collect();
        Loaded { snapshot, switches }
    }

    pub(crate) const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    #[inline]
    pub(crate) fn limits_of(&self, rule: &Rule) -> &[RuleLimit] {
        self.snapshot.limits_of(rule)
    }

    #[inline]
    pub(crate) fn switch(&self, limit: &RuleLimit) -> Switch {
        match self.switches.get(limit.id.index()) {
            Some(cell) => cell.read(),
            None => Switch::of(limit),
        }
    }

    pub(crate) fn set_switch(&self, limit: &RuleLimit, switch: Switch) {
        if let Some(cell) = self.switches.get(limit.id.index()) {
            cell.set(switch);
        }
    }
}
