//! The metrics of an episode: name, meaning, direction.

use super::measures::Measures;

/// Whether higher or lower values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More.
    Higher,
    /// Less.
    Lower,
}

/// A metric of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Critical goodput in the first 30 s.
    CriticalOnset,
    /// Critical goodput in the steady part.
    CriticalSteady,
    /// All goodput, in capacities.
    Goodput,
    /// Everything answered in time in the whole episode, as a part of what the gate alone serves.
    ServedOfGate,
    /// All goodput as a part of the possible.
    OfOptimum,
    /// Median latency of critical requests, in ms.
    CriticalP50,
    /// The 99th percentile.
    CriticalP99,
    /// The 99.9th percentile.
    CriticalP999,
    /// The 99th percentile over that of an unloaded server.
    P99Ratio,
    /// Spread of the admitted rate, in capacities.
    Oscillation,
    /// The same, averaged over ten seconds.
    Oscillation10s,
    /// Turns of the level each minute.
    Reversals,
    /// Seconds until the level has settled.
    ShedAfter,
    /// Seconds until every category is served again.
    RestoredAfter,
    /// How often it was shed again after that.
    ShedAgain,
    /// Share of seconds with critical refused and others admitted.
    Inversion,
    /// Requests refused.
    Refused,
    /// Critical requests refused.
    RefusedCritical,
    /// Growth of the limit.
    LimitGrowth,
    /// Growth of the admitted share.
    LevelGrowth,
    /// Worker time spent on refusing.
    Refusing,
    /// Jain's index of the tenants' GET requests.
    Jain,
    /// Stickiness of the tenants' GET requests.
    Stickiness,
    /// Tasks that succeeded.
    Tasks,
    /// Tripwire's score.
    Score,
    /// Requests sent for each first attempt.
    Amplification,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 26] = [
        Metric::CriticalOnset,
        Metric::CriticalSteady,
        Metric::Goodput,
        Metric::ServedOfGate,
        Metric::OfOptimum,
        Metric::CriticalP50,
        Metric::CriticalP99,
        Metric::CriticalP999,
        Metric::P99Ratio,
        Metric::Oscillation,
        Metric::Oscillation10s,
        Metric::Reversals,
        Metric::ShedAfter,
        Metric::RestoredAfter,
        Metric::ShedAgain,
        Metric::Inversion,
        Metric::Refused,
        Metric::RefusedCritical,
        Metric::LimitGrowth,
        Metric::LevelGrowth,
        Metric::Refusing,
        Metric::Jain,
        Metric::Stickiness,
        Metric::Tasks,
        Metric::Score,
        Metric::Amplification,
    ];

    /// The name in tables and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::CriticalOnset => "critical_onset",
            Metric::CriticalSteady => "critical_steady",
            Metric::Goodput => "goodput",
            Metric::ServedOfGate => "served_of_gate",
            Metric::OfOptimum => "of_optimum",
            Metric::CriticalP50 => "critical_p50_ms",
            Metric::CriticalP99 => "critical_p99_ms",
            Metric::CriticalP999 => "critical_p999_ms",
            Metric::P99Ratio => "p99_ratio",
            Metric::Oscillation => "oscillation",
            Metric::Oscillation10s => "oscillation_10s",
            Metric::Reversals => "reversals_per_minute",
            Metric::ShedAfter => "shed_after_s",
            Metric::RestoredAfter => "restored_after_s",
            Metric::ShedAgain => "shed_again",
            Metric::Inversion => "inversion",
            Metric::Refused => "refused",
            Metric::RefusedCritical => "refused_critical",
            Metric::LimitGrowth => "limit_growth",
            Metric::LevelGrowth => "level_growth",
            Metric::Refusing => "refusing",
            Metric::Jain => "jain",
            Metric::Stickiness => "stickiness",
            Metric::Tasks => "tasks",
            Metric::Score => "score",
            Metric::Amplification => "amplification",
        }
    }

    /// Which way is better.
    pub const fn better(self) -> Better {
        match self {
            Metric::CriticalOnset
            | Metric::CriticalSteady
            | Metric::Goodput
            | Metric::ServedOfGate
            | Metric::OfOptimum
            | Metric::Jain
            | Metric::Stickiness
            | Metric::Tasks
            | Metric::Score => Better::Higher,
            _ => Better::Lower,
        }
    }

    pub(crate) fn of(self, measures: &Measures) -> Option<f64> {
        match self {
            Metric::CriticalOnset => measures.critical_onset,
            Metric::CriticalSteady => measures.critical_steady,
            Metric::Goodput => Some(measures.goodput),
            Metric::ServedOfGate => measures.served_of_gate,
            Metric::OfOptimum => Some(measures.of_optimum),
            Metric::CriticalP50 => measures.critical_p50,
            Metric::CriticalP99 => measures.critical_p99,
            Metric::CriticalP999 => measures.critical_p999,
            Metric::P99Ratio => measures.p99_ratio,
            Metric::Oscillation => Some(measures.oscillation),
            Metric::Oscillation10s => Some(measures.oscillation_10s),
            Metric::Reversals => Some(measures.reversals),
            Metric::ShedAfter => measures.shed_after,
            Metric::RestoredAfter => measures.restored_after,
            Metric::ShedAgain => Some(measures.shed_again),
            Metric::Inversion => Some(measures.inversion),
            Metric::Refused => Some(measures.refused),
            Metric::RefusedCritical => Some(measures.refused_critical),
            Metric::LimitGrowth => Some(measures.limit_growth),
            Metric::LevelGrowth => Some(measures.level_growth),
            Metric::Refusing => Some(measures.refusing),
            Metric::Jain => Some(measures.jain),
            Metric::Stickiness => Some(measures.stickiness),
            Metric::Tasks => Some(measures.tasks),
            Metric::Score => Some(measures.score),
            Metric::Amplification => Some(measures.amplification),
        }
    }
}

/// A metric over all seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The worst value.
    pub worst: f64,
}

impl Spread {
    /// Over the seeds for which the metric has a value; `None` when there is none.
    pub(crate) fn over(metric: Metric, seeds: &[Measures]) -> Option<Self> {
        let mut values: Vec<f64> = seeds.iter().filter_map(|seed| metric.of(seed)).collect();
        values.sort_by(f64::total_cmp);
        let worst = match metric.better() {
            Better::Higher => values.first(),
            Better::Lower => values.last(),
        };
        let (below, above) = (values.len().saturating_sub(1) / 2, values.len() / 2);
        let median = (values.get(below)? + values.get(above)?) / 2.0;
        Some(Spread { median, worst: *worst? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_the_least_where_more_is_better_and_the_most_where_less_is() {
        let seeds: Vec<Measures> = [0.9, 0.7, 0.8, 1.0]
            .map(|goodput| Measures { goodput, refused: goodput, ..Measures::default() })
            .to_vec();
        let goodput = Spread::over(Metric::Goodput, &seeds).unwrap();
        assert!((goodput.median - 0.85).abs() < 1e-9);
        assert_eq!(goodput.worst, 0.7);
        assert_eq!(Spread::over(Metric::Refused, &seeds).unwrap().worst, 1.0);
        assert_eq!(Spread::over(Metric::RestoredAfter, &seeds), None);
    }

    #[test]
    fn every_metric_has_a_name_of_its_own() {
        let mut names: Vec<&str> = Metric::ALL.map(Metric::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Metric::ALL.len());
    }
}
