//! Counts as `name: value` lines.
//!
//! Under compat the names are those of envoyproxy/ratelimit, so that dashboards and scripts keep working; otherwise they
//! are our own. Both come from the same figures as the metrics. Names are sorted, and have only characters that
//! statistics systems accept.

mod name;
mod upstream;

use tidegate_engine::{Clock, outcomes};
use tidegate_statsd::{StatsReading, Timer};

use super::observations::Reason;
use super::service::Inner;
use name::clean;
use tidegate_metrics::{AnswerKind, DURATION_BOUNDS_MICROS, MeterReading};

/// The values of a reading as `name: value` lines.
pub(super) fn lines(reading: &StatsReading) -> String {
    reading.values().iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// Reads all counts, under the names of the settings.
pub(super) fn read<S, C: Clock>(door: &Inner<S, C>) -> StatsReading {
    if door.parts.settings.compat { upstream::read(door) } else { ours(door) }
}

/// Reads all counts under the names of envoyproxy/ratelimit, whatever the settings say.
pub(super) fn read_upstream<S, C: Clock>(door: &Inner<S, C>) -> StatsReading {
    upstream::read(door)
}

fn ours<S, C: Clock>(door: &Inner<S, C>) -> StatsReading {
    let mut stats = StatsReading::default();
    for meter in &door.parts.meters {
        let (name, reading) = (meter.door(), meter.read());
        for (answer, count) in AnswerKind::ALL.iter().zip(reading.answers) {
            let answer = answer.as_str();
            stats.add(format!("tidegate.requests.{name}.{answer}"), count);
        }
        stats.timers.push(timer(format!("tidegate.requests.{name}.duration"), &reading));
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

/// The durations of a meter.
fn timer(name: String, reading: &MeterReading) -> Timer {
    let bounds = DURATION_BOUNDS_MICROS.iter().copied().map(Some).chain([None]);
    Timer { name, buckets: bounds.zip(reading.buckets).collect(), sum: reading.total }
}
