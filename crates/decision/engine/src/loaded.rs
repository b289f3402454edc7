//! A snapshot of the rules as the engine uses it: with a switch and, if wanted,
//! a tally for each limit.
//!
//! What every request needs of its rule and of the rule's limits is kept here
//! once more, in brief. Rules and limits are large, and a rule that is met
//! seldom comes from slow memory: in brief it is two cache lines side by side,
//! with two limits in them.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::{Limit, SmallLimit, TokenBucket};
use tidegate_rules::{LimitId, Rule, RuleId, RuleLimit, Snapshot};
use tidegate_stores::{Consistency, MemoryStore, OnStoreError, Policy, Role};

use crate::switch::{Switch, SwitchCell, Switches};
use crate::tally::TallyCell;

/// One snapshot with its switches and tallies.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    snapshot: Arc<Snapshot>,
    rules: Box<[BriefRule]>,
    /// By limit; none when nobody counts. Plans of one rule share theirs, as
    /// they share their counters.
    tallies: Box<[Arc<TallyCell>]>,
}

/// What a request needs of a rule.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct BriefRule {
    pub(crate) identity: u64,
    /// In the rule itself: looked up elsewhere they would be waited for once more.
    pub(crate) limits: SmallVec<[BriefLimit; 2]>,
    /// Whether it has an exemption, of which more is said in the rule itself.
    pub(crate) is_exempt: bool,
    /// Whether it has limits that the store in memory can decide in place, and neither they nor
    /// an exemption say anything of other rules.
    pub(crate) is_plain: bool,
    /// Whether it is plain, and all of its limits are token buckets of which a request of cost
    /// one takes one unit.
    pub(crate) takes_units: bool,
    /// Whether one of its limits counts requests in flight.
    pub(crate) counts_slots: bool,
}

/// What a request needs of a limit.
#[derive(Debug)]
pub(crate) struct BriefLimit {
    pub(crate) identity: u64,
    pub(crate) cost: u64,
    pub(crate) limit: Arc<Limit>,
    pub(crate) id: LimitId,
    pub(crate) switch: SwitchCell,
    pub(crate) policy: Policy,
    /// What its answer means where it is enforced.
    pub(crate) role: Role,
    /// Whether it counts requests in flight.
    pub(crate) counts_slots: bool,
    /// Whether it replaces others; which, is said in the limit itself.
    pub(crate) replaces: bool,
}

impl BriefRule {
    fn of(rule: &Rule, limits: &[RuleLimit], set: &Switches) -> Self {
        let replaces = limits.iter().any(|limit| !limit.replaces.is_empty());
        let in_place = MemoryStore::can_check_known_keys(limits.iter().map(|limit| &*limit.limit));
        let is_plain = !limits.is_empty() && rule.exemption().is_none() && !replaces && in_place;
        let brief: SmallVec<_> =
            limits.iter().map(|limit| BriefLimit::of(limit, set.of(limit))).collect();
        BriefRule {
            identity: rule.identity(),
            is_exempt: rule.exemption().is_some(),
            is_plain,
            takes_units: is_plain && brief.iter().all(BriefLimit::takes_unit),
            counts_slots: limits.iter().any(counts_slots),
            limits: brief,
        }
    }
}

impl BriefLimit {
    fn of(limit: &RuleLimit, switch: Switch) -> Self {
        BriefLimit {
            identity: limit.identity,
            cost: limit.cost,
            limit: Arc::clone(&limit.limit),
            id: limit.id,
            switch: SwitchCell::new(switch),
            policy: policy_of(limit),
            role: if limit.quota { Role::Alternative } else { Role::Required },
            counts_slots: counts_slots(limit),
            replaces: !limit.replaces.is_empty(),
        }
    }

    /// Whether a request of cost one takes one unit of a token bucket.
    fn takes_unit(&self) -> bool {
        self.cost == 1 && self.bucket().is_some()
    }

    /// Its bucket, if that is what it is.
    #[inline(always)]
    pub(crate) fn bucket(&self) -> Option<&TokenBucket> {
        match self.limit.small() {
            Some(SmallLimit::TokenBucket(bucket)) => Some(bucket),
            _ => None,
        }
    }
}

fn counts_slots(limit: &RuleLimit) -> bool {
    limit.limit.algorithm().holds_slots()
}

/// The rules' words for how a limit is kept, as stores have them.
const fn policy_of(limit: &RuleLimit) -> Policy {
    Policy {
        consistency: match limit.consistency {
            tidegate_rules::Consistency::Exact => Consistency::Exact,
            tidegate_rules::Consistency::Leased => Consistency::Leased,
            tidegate_rules::Consistency::Eventual => Consistency::Eventual,
        },
        on_store_error: match limit.on_store_error {
            tidegate_rules::OnStoreError::Local => OnStoreError::Local,
            tidegate_rules::OnStoreError::Allow => OnStoreError::Allow,
            tidegate_rules::OnStoreError::Deny => OnStoreError::Deny,
        },
    }
}

impl Loaded {
    /// The snapshot with the switches that its rules say, but for those that
    /// were set at run time.
    pub(crate) fn new(snapshot: Arc<Snapshot>, set: &Switches) -> Self {
        let brief = |rule: &Rule| BriefRule::of(rule, snapshot.limits_of(rule), set);
        Loaded {
            rules: snapshot.rules().iter().map(brief).collect(),
            snapshot,
            tallies: Box::default(),
        }
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

    /// A rule of the snapshot, in brief.
    #[inline]
    pub(crate) fn rule(&self, rule: RuleId) -> Option<&BriefRule> {
        self.rules.get(rule.index())
    }

    pub(crate) fn set_switch(&self, limit: &RuleLimit, switch: Switch) {
        let limits = self.rule(limit.rule).map(|rule| &*rule.limits).unwrap_or_default();
        if let Some(limit) = limits.iter().find(|brief| brief.id == limit.id) {
            limit.switch.set(switch);
        }
    }

    /// The tally of a limit, if they are kept.
    #[inline]
    pub(crate) fn tally(&self, limit: LimitId) -> Option<&TallyCell> {
        self.tallies.get(limit.index()).map(|tally| &**tally)
    }

    /// Every limit with its tally, if they are kept.
    pub(crate) fn tallied(&self) -> impl Iterator<Item = (&RuleLimit, &Arc<TallyCell>)> {
        self.snapshot.limits().iter().zip(&self.tallies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_in_brief_is_two_cache_lines_with_two_limits_in_them() {
        assert_eq!(size_of::<BriefRule>(), 128, "{}", size_of::<BriefLimit>());
    }
}
