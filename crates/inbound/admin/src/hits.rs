//! The hits of each limit, in bounded number.

use std::collections::BTreeMap;

use tidegate_engine::{Clock, Engine, Tally};

use super::observations::OTHERS;

/// The limit that hits belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HitLimit {
    pub(super) domain: String,
    pub(super) rule: String,
    pub(super) limit: String,
}

/// The hits of one limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LimitHits {
    pub(super) tally: Tally,
    /// Whether its rule has other limits.
    pub(super) one_of_several: bool,
    /// Whether the metrics of its rule show values of requests.
    pub(super) shows_values: bool,
}

/// The hits of all limits.
#[derive(Debug, Default)]
pub(super) struct HitsReading {
    pub(super) limits: BTreeMap<HitLimit, LimitHits>,
    /// Rules that have no row of their own.
    pub(super) rules_beyond: u64,
}

impl HitsReading {
    /// Reads the tallies of an engine. Limits that were never hit have no row,
    /// since with 10,000 rules most of a page would be zeros. Rules beyond the
    /// maximum share one row; which those are follows from the rule files, so
    /// that rows do not come and go.
    pub(super) fn of<S, C: Clock>(engine: &Engine<S, C>, rules_max: usize) -> Self {
        let rules = engine.snapshot().rules().len();
        let beyond = rules.saturating_sub(rules_max);
        let mut reading = HitsReading {
            limits: BTreeMap::new(),
            rules_beyond: u64::try_from(beyond).unwrap_or(u64::MAX),
        };
        engine.for_each_tally(|snapshot, rule, limit, tally| {
            if tally == Tally::default() {
                return;
            }
            let has_row = rule.id().index() < rules_max;
            let label = if has_row {
                HitLimit {
                    domain: rule.domain().to_owned(),
                    rule: rule.path().to_owned(),
                    limit: snapshot.limit_name(rule, limit).into_owned(),
                }
            } else {
                HitLimit {
                    domain: OTHERS.to_owned(),
                    rule: OTHERS.to_owned(),
                    limit: String::new(),
                }
            };
            let hits = reading.limits.entry(label).or_default();
            hits.tally = sum(hits.tally, tally);
            hits.one_of_several = has_row && rule.limits().len() > 1;
            hits.shows_values = has_row && rule.shows_values();
        });
        reading
    }
}

/// Both together.
pub(super) const fn sum(one: Tally, other: Tally) -> Tally {
    Tally {
        within: one.within.saturating_add(other.within),
        near: one.near.saturating_add(other.near),
        soft: one.soft.saturating_add(other.soft),
        over: one.over.saturating_add(other.over),
        shadow: one.shadow.saturating_add(other.shadow),
        refunded: one.refunded.saturating_add(other.refunded),
    }
}

/// What became of hits: each is in exactly one of these.
pub(super) fn outcomes(tally: &Tally) -> [(&'static str, u64); 4] {
    [
        ("within", tally.within.saturating_sub(tally.soft)),
        ("soft", tally.soft),
        ("over", tally.over.saturating_sub(tally.shadow)),
        ("shadow", tally.shadow),
    ]
}
