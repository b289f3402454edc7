//! The hits of each limit, with labels for metrics and a bound on their number.

use std::collections::BTreeMap;

use tidegate_algorithms::Clock;

use crate::engine::Engine;
use crate::tally::Tally;

/// The label value for everything beyond a maximum.
pub const OTHERS: &str = "(others)";

/// The labels of a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitLabels {
    /// The domain.
    pub domain: String,
    /// The path of the rule.
    pub rule: String,
    /// The limit's name, or its position from 1.
    pub limit: String,
}

/// The hits of one limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitHits {
    /// The hits.
    pub tally: Tally,
    /// Whether its rule has other limits.
    pub one_of_several: bool,
    /// Whether the metrics of its rule show values of requests.
    pub shows_values: bool,
}

/// The hits of all limits.
#[derive(Debug, Default)]
pub struct RuleHits {
    /// Limits that were hit, by their labels.
    pub limits: BTreeMap<LimitLabels, LimitHits>,
    /// How many rules are summed under [`OTHERS`].
    pub rules_summed: u64,
}

impl<S, C: Clock> Engine<S, C> {
    /// The hits of each limit. Limits that were never hit are left out: with 10,000 rules most of a page would be zeros.
    /// Rules beyond `rules_max` are summed; the order of the rule files decides which, so that series do not come and
    /// go.
    pub fn hits(&self, rules_max: usize) -> RuleHits {
        let beyond = self.snapshot().rules().len().saturating_sub(rules_max);
        let mut hits = RuleHits {
            limits: BTreeMap::new(),
            rules_summed: u64::try_from(beyond).unwrap_or(u64::MAX),
        };
        self.for_each_tally(|snapshot, rule, limit, tally| {
            if tally == Tally::default() {
                return;
            }
            let is_listed = rule.id().index() < rules_max;
            let (domain, path, name) = match is_listed {
                true => (rule.domain(), rule.path(), snapshot.limit_name(rule, limit)),
                false => (OTHERS, OTHERS, "".into()),
            };
            let (domain, rule_path, name) = (domain.to_owned(), path.to_owned(), name.into_owned());
            let labels = LimitLabels { domain, rule: rule_path, limit: name };
            let limit = hits.limits.entry(labels).or_default();
            limit.tally = limit.tally.plus(tally);
            limit.one_of_several = is_listed && rule.limits().len() > 1;
            limit.shows_values = is_listed && rule.shows_values();
        });
        hits
    }
}

/// The hits of a tally by outcome; each hit is under exactly one.
pub fn outcomes(tally: &Tally) -> [(&'static str, u64); 4] {
    [
        ("within", tally.within.saturating_sub(tally.soft)),
        ("soft", tally.soft),
        ("over", tally.over.saturating_sub(tally.shadow)),
        ("shadow", tally.shadow),
    ]
}
