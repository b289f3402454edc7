//! A snapshot of the rules as the engine uses it: with a switch and, if wanted,
//! a tally for each limit.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_rules::{Rule, RuleLimit, Snapshot};

use crate::switch::{Switch, SwitchCell};
use crate::tally::TallyCell;

/// One snapshot with its switches and tallies.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    snapshot: Arc<Snapshot>,
    /// By limit.
    switches: Box<[SwitchCell]>,
    /// By limit; none when nobody counts. Plans of one rule share theirs, as
    /// they share their counters.
    tallies: Box<[Arc<TallyCell>]>,
}

impl Loaded {
    /// The snapshot with the switches that its rules say, but for those that
    /// were set at run time, by the limit's identity.
    pub(crate) fn new(snapshot: Arc<Snapshot>, set: &HashMap<u64, Switch>) -> Self {
        let switches = snapshot
            .limits()
            .iter()
            .map(|limit| {
                let switch = set.get(&limit.identity).copied();
                SwitchCell::new(switch.unwrap_or_else(|| Switch::of(limit)))
            })
            .collect();
        Loaded { snapshot, switches, tallies: Box::default() }
    }

    /// The same with tallies that go on from those before.
    pub(crate) fn with_tallies(self, before: &Loaded) -> Self {
        let mut known: HashMap<u64, Arc<TallyCell>> =
            before.tallied().map(|(limit, tally)| (limit.identity, Arc::clone(tally))).collect();
        let of = |limit: &RuleLimit| Arc::clone(known.entry(limit.identity).or_default());
        let tallies = self.snapshot.limits().iter().map(of).collect();
        Loaded { tallies, ..self }
    }

    pub(crate) const fn snapshot(&self) -> &Arc<Snapshot> {
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

    /// The tally of a limit, if they are kept.
    #[inline]
    pub(crate) fn tally(&self, limit: &RuleLimit) -> Option<&TallyCell> {
        self.tallies.get(limit.id.index()).map(|tally| &**tally)
    }

    /// Every limit with its tally, if they are kept.
    pub(crate) fn tallied(&self) -> impl Iterator<Item = (&RuleLimit, &Arc<TallyCell>)> {
        self.snapshot.limits().iter().zip(&self.tallies)
    }
}
