//! Counts as `name: value` lines.
//!
//! Under compat the names are those of envoyproxy/ratelimit, so that dashboards and scripts keep working; otherwise they
//! are our own. Both come from the same figures as the metrics. Names are sorted, and have only characters that
//! statistics systems accept.

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
    /// Adds to a count: two labels may have the same name once they are cleaned.
    fn add(&mut self, name: String, count: u64) {
        let sum = self.counts.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }

    /// One line for each count.
    pub(super) fn lines(&self) -> String {
        self.counts.iter().map(|(name, count)| format!("{name}: {count}\n")).collect()
    }
}

/// Reads all counts, under the names of the settings.
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
    let parts = &door.parts;
    for (document, read) in [("rules", &parts.rules), ("gateway", &parts.gateway_document)] {
        let Some(reading) = read.as_ref().map(|read| read()) else { continue };
        stats.add(format!("tidegate.{document}.loads"), reading.loads);
        stats.add(format!("tidegate.{document}.load_failures"), reading.failures);
    }
    stats
}
