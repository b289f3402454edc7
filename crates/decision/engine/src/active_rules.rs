//! The rules in use, laid out for the hot path: a mode and, if wanted, a tally for each limit.
//!
//! [`HotRule`] repeats the fields of a rule and its limits that every request reads. Rules and limits are large, and a
//! rule that is rarely used is not cached: a hot rule with up to two limits is two adjacent cache lines.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::{Limit, Mode, ModeCell, SmallLimit, TokenBucket};
use tidegate_rules::{LimitId, Rule, RuleId, RuleLimit, Snapshot};
use tidegate_stores::{MemoryStore, Policy, Role};

use crate::run_time_modes::RunTimeModes;
use crate::tally::TallyCell;
use crate::unmatched::UnmatchedCounts;

/// A snapshot with the modes and tallies of its limits.
#[derive(Debug, Default)]
pub(crate) struct ActiveRules {
    snapshot: Arc<Snapshot>,
    rules: Box<[HotRule]>,
    /// By limit; empty unless limits are tallied. The plans of a rule share their tallies, as they share counters.
    tallies: Box<[Arc<TallyCell>]>,
    /// Empty unless limits are tallied.
    unmatched: UnmatchedCounts,
}

/// The fields of a rule that every request reads.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct HotRule {
    pub(crate) identity: u64,
    /// Inline: a pointer would be one more cache miss.
    pub(crate) limits: SmallVec<[HotLimit; 2]>,
    /// Whether the rule has an exemption; which, is in the snapshot.
    pub(crate) is_exempt: bool,
    /// Whether the memory store can decide the limits in place, and neither they nor an exemption replace limits of
    /// other rules.
    pub(crate) is_plain: bool,
    /// Whether it is plain, and all limits are token buckets from which a request of cost one takes one unit.
    pub(crate) takes_units: bool,
    /// Whether one of the limits is a concurrency limit.
    pub(crate) holds_slots: bool,
}

/// The fields of a limit that every request reads.
#[derive(Debug)]
pub(crate) struct HotLimit {
    pub(crate) identity: u64,
    pub(crate) cost: u64,
    pub(crate) limit: Arc<Limit>,
    pub(crate) id: LimitId,
    pub(crate) mode: ModeCell,
    pub(crate) policy: Policy,
    /// The role of its decision where it is enforced.
    pub(crate) role: Role,
    /// Whether it is a concurrency limit.
    pub(crate) holds_slots: bool,
    /// Whether it replaces other limits; which, is in the snapshot.
    pub(crate) replaces: bool,
}

impl HotRule {
    fn of(rule: &Rule, limits: &[RuleLimit], set: &RunTimeModes) -> Self {
        let replaces = limits.iter().any(|limit| !limit.replaces.is_empty());
        let in_place = MemoryStore::can_check_known_keys(limits.iter().map(|limit| &*limit.limit));
        let is_plain = !limits.is_empty() && rule.exemption().is_none() && !replaces && in_place;
        let hot: SmallVec<_> =
            limits.iter().map(|limit| HotLimit::of(limit, set.of(limit))).collect();
        HotRule {
            identity: rule.identity(),
            is_exempt: rule.exemption().is_some(),
            is_plain,
            takes_units: is_plain && hot.iter().all(HotLimit::takes_unit),
            holds_slots: limits.iter().any(holds_slots),
            limits: hot,
        }
    }
}

impl HotLimit {
    fn of(limit: &RuleLimit, mode: Mode) -> Self {
        HotLimit {
            identity: limit.identity,
            cost: limit.cost,
            limit: Arc::clone(&limit.limit),
            id: limit.id,
            mode: ModeCell::new(mode),
            policy: Policy { consistency: limit.consistency, on_store_error: limit.on_store_error },
            role: if limit.quota { Role::Alternative } else { Role::Required },
            holds_slots: holds_slots(limit),
            replaces: !limit.replaces.is_empty(),
        }
    }

    /// Whether a request of cost one takes one unit of a token bucket.
    fn takes_unit(&self) -> bool {
        self.cost == 1 && self.bucket().is_some()
    }

    /// The token bucket, if it is one.
    #[inline(always)]
    pub(crate) fn bucket(&self) -> Option<&TokenBucket> {
        match self.limit.small() {
            Some(SmallLimit::TokenBucket(bucket)) => Some(bucket),
            _ => None,
        }
    }
}

fn holds_slots(limit: &RuleLimit) -> bool {
    limit.limit.algorithm().holds_slots()
}

impl ActiveRules {
    /// The snapshot, with modes from its rules unless they are set at run time.
    pub(crate) fn new(snapshot: Arc<Snapshot>, set: &RunTimeModes) -> Self {
        let hot = |rule: &Rule| HotRule::of(rule, snapshot.limits_of(rule), set);
        ActiveRules {
            rules: snapshot.rules().iter().map(hot).collect(),
            snapshot,
            tallies: Box::default(),
            unmatched: UnmatchedCounts::default(),
        }
    }

    /// The same with tallies that continue those of `before`.
    pub(crate) fn with_tallies(self, before: &ActiveRules) -> Self {
        let mut known: HashMap<u64, Arc<TallyCell>> =
            before.tallied().map(|(limit, tally)| (limit.identity, Arc::clone(tally))).collect();
        let of = |limit: &RuleLimit| Arc::clone(known.entry(limit.identity).or_default());
        let tallies = self.snapshot.limits().iter().map(of).collect();
        let unmatched = UnmatchedCounts::continued(&self.snapshot, &before.unmatched);
        ActiveRules { tallies, unmatched, ..self }
    }

    pub(crate) const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The hot fields of a rule.
    #[inline]
    pub(crate) fn rule(&self, rule: RuleId) -> Option<&HotRule> {
        self.rules.get(rule.index())
    }

    pub(crate) fn set_mode(&self, limit: &RuleLimit, mode: Mode) {
        let limits = self.rule(limit.rule).map(|rule| &*rule.limits).unwrap_or_default();
        if let Some(limit) = limits.iter().find(|hot| hot.id == limit.id) {
            limit.mode.set(mode);
        }
    }

    /// The tally of a limit, if limits are tallied.
    #[inline]
    pub(crate) fn tally(&self, limit: LimitId) -> Option<&TallyCell> {
        self.tallies.get(limit.index()).map(|tally| &**tally)
    }

    /// Descriptors that matched no rule, by domain.
    pub(crate) const fn unmatched(&self) -> &UnmatchedCounts {
        &self.unmatched
    }

    /// Every limit with its tally; none unless limits are tallied.
    pub(crate) fn tallied(&self) -> impl Iterator<Item = (&RuleLimit, &Arc<TallyCell>)> {
        self.snapshot.limits().iter().zip(&self.tallies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_rule_with_two_limits_is_two_cache_lines() {
        assert_eq!(size_of::<HotRule>(), 128, "{}", size_of::<HotLimit>());
    }
}
