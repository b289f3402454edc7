//! Counts as `name: value` lines.
//!
//! Under compat with the names that envoyproxy/ratelimit has for them, so that
//! dashboards and scripts go on working; otherwise with names of our own. Both
//! come from the same figures as the metrics. Names are sorted and made of
//! letters that statistics systems take.

mod name;
mod upstream;

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_engine::{Clock, outcomes};

use super::observations::Reason;
use super::service::Inner;
use name::clean;
use tidegate_metrics::AnswerKind;

/// Counts by name.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct StatsReading {
    counts: BTreeMap<String, u64>,
}

impl StatsReading {
    /// Names that become the same are added up.
    fn add(&mut self, name: String, count: u64) {
        let sum = self.counts.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }

    /// One line for each count.
    pub(super) fn lines(&self) -> String {
        self.counts.iter().map(|(name, count)| format!("{name}: {count}\n")).collect()
    }
}

/// Reads all counts, under the names that the settings ask for.
pub(super) fn read<S, C: Clock>(door: &Inner<S, C>) -> StatsReading {
    if door.parts.settings.compat { upstream::read(door) } else { ours(door) }
}

fn ours<S, C: Clock>(door: &Inner<S, C>) -> StatsReading {
    let mut stats = StatsReading::default();
    for meter in &door.parts.meters {
        for (answer, count) in AnswerKind::ALL.iter().zip(meter.read().answers) {
            let answer = answer.as_str();
            stats.add(format!("tidegate.requests.{}.{answer}", meter.door()), count);
        }
    }
    for reason in Reason::ALL {
        let count = door.parts.observations.undecided(reason);
        stats.add(format!("tidegate.undecided.{}", reason.as_str()), count);
    }
    for (domain, count) in door.parts.observations.unknown_domains() {
        stats.add(format!("tidegate.unknown_domain.{}", clean(&domain)), count);
    }
    let hits = door.engine.hits(door.parts.settings.rules_max);
    for (of, hits) in &hits.limits {
        let (domain, rule, limit) = (clean(&of.domain), clean(&of.rule), clean(&of.limit));
        let prefix = format!("tidegate.rule.{domain}.{rule}.{limit}");
        for (outcome, count) in outcomes(&hits.tally) {
            stats.add(format!("{prefix}.{outcome}"), count);
        }
        stats.add(format!("{prefix}.near_limit"), hits.tally.near);
    }
    if let Some(ask) = &door.parts.rules {
        let reading = ask();
        stats.add("tidegate.rules.loads".to_owned(), reading.loads);
        stats.add("tidegate.rules.load_failures".to_owned(), reading.failures);
    }

    if let Some(ask) = &door.parts.gateway_document {
        let delivery = ask();
        stats.add("tidegate.gateway.loads".to_owned(), delivery.loads);
        stats.add("tidegate.gateway.load_failures".to_owned(), delivery.failures);
    }
    stats
}
