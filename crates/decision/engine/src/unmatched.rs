//! Descriptors that matched no rule, by domain: most often a typing error in a rule file or in a proxy's configuration.
//!
//! One counter for each domain of the rules, so that callers cannot add any. Counts survive a change of rules, as tallies
//! do. Descriptors of unknown domains are not counted here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_rules::{RuleId, Snapshot};
use tidegate_stores::Verb;

use crate::request::Request;

/// Counters by domain; empty unless limits are tallied.
#[derive(Debug, Default)]
pub(crate) struct UnmatchedCounts(BTreeMap<Box<str>, Arc<AtomicU64>>);

impl UnmatchedCounts {
    /// Counters for the domains of a snapshot, continued from those before.
    pub(crate) fn continued(snapshot: &Snapshot, before: &UnmatchedCounts) -> Self {
        let counter = |name: &str| before.0.get(name).cloned().unwrap_or_default();
        let domains = snapshot.domains().map(|domain| domain.name());
        UnmatchedCounts(domains.map(|name| (name.into(), counter(name))).collect())
    }

    /// Counts the descriptors of a request that matched no rule and brought no limit.
    #[cold]
    pub(crate) fn count(&self, verb: Verb, request: &Request<'_>, met: &[Option<RuleId>]) {
        match verb {
            Verb::Check | Verb::Take | Verb::Charge => {}
            Verb::Peek | Verb::Refund | Verb::Reset => return,
        }
        let Some(count) = self.0.get(request.domain) else { return };
        let descriptors = request.descriptors.iter().zip(met);
        let unmatched = descriptors
            .filter(|(descriptor, rule)| rule.is_none() && descriptor.limit.is_none())
            .count();
        count.fetch_add(u64::try_from(unmatched).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The domains with such descriptors, sorted.
    pub(crate) fn read(&self) -> impl Iterator<Item = (&str, u64)> {
        let counts = self.0.iter().map(|(name, count)| (&**name, count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0)
    }
}
