//! What is known of a limit: its terms, its counts over two spans, and the demand of its callers.
//!
//! Whoever measures (the history of a server, a replay) fills a [`LimitEvidence`] for each limit; findings follow from it
//! alone. Its JSON is the same in a page of the debug port, in a file and in a report.

use serde::{Deserialize, Serialize};
use tidegate_algorithms::Nanos;
use tidegate_rules::{Level, Rule, RuleLimit, ShownValue, Snapshot};

use crate::demand_summary::DemandSummary;

/// The newest version of the JSON of [`RulesEvidence`].
pub const EVIDENCE_VERSION: u32 = 1;
/// The most limits of one [`RulesEvidence`] that are judged.
pub const LIMITS_MAX: usize = 100_000;

/// The evidence for all limits of a set of rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RulesEvidence {
    /// [`EVIDENCE_VERSION`] of the program that wrote it.
    pub version: u32,
    /// The version of the rules, as the server shows it.
    #[serde(default)]
    pub rules_version: String,
    /// One for each limit, also for limits without hits.
    pub limits: Vec<LimitEvidence>,
}

/// What is known of one limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitEvidence {
    /// Which limit.
    pub limit: LimitName,
    /// What it says.
    pub terms: LimitTerms,
    /// Counts of the last 24 hours, or of the whole time if that is shorter.
    pub recent: SpanCounts,
    /// Counts of the whole time that is known, up to 14 days.
    pub whole: SpanCounts,
    /// Hits of all limits of the domain in the whole time.
    #[serde(default)]
    pub domain_hits: u64,
    /// The demand of its callers, if it was sampled.
    #[serde(default)]
    pub demand: Option<DemandSummary>,
    /// Its most refused callers, if they were counted apart from the sample.
    #[serde(default)]
    pub busiest: Option<BusiestCallers>,
    /// How long the limit has had its present mode, in seconds, if known.
    #[serde(default)]
    pub mode_seconds: Option<u64>,
    /// The highest utilization of the node in the recent span, from 0 to 1, if known.
    #[serde(default)]
    pub utilization_max: Option<f64>,
    /// Another limit that meets the same requests.
    #[serde(default)]
    pub overlap: Option<OverlapEvidence>,
    /// A reason to keep the limit as it is, from the `note` of the rule's metadata; it silences `idle`.
    #[serde(default)]
    pub note: Option<String>,
}

/// The name of a limit, as metrics show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LimitName {
    /// The domain.
    pub domain: String,
    /// The path of the rule.
    pub rule: String,
    /// The limit's name, or its position from 1.
    pub limit: String,
}

impl std::fmt::Display for LimitName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LimitName { domain, rule, limit } = self;
        write!(out, "{domain}/{rule}#{limit}")
    }
}

/// What a limit says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitTerms {
    /// The algorithm, as in rules.
    pub algorithm: String,
    /// Units per period, or slots.
    pub quota: u64,
    /// The period in nanoseconds.
    pub period_ns: u64,
    /// Units that can be used at once.
    pub capacity: u64,
    /// `enforce`, `shadow` or `off`.
    pub mode: String,
    /// Whether it has a soft allowance.
    #[serde(default)]
    pub soft: bool,
    /// Whether refused hits count as used.
    #[serde(default)]
    pub count_refused: bool,
    /// Whether each caller has a counter; otherwise all share one.
    #[serde(default)]
    pub per_caller: bool,
    /// The descriptor of the rule, level by level: the key, and the value if the rule has one.
    #[serde(default)]
    pub levels: Vec<(String, Option<String>)>,
}

impl LimitTerms {
    /// The terms of a limit of a snapshot.
    pub fn of(rule: &Rule, limit: &RuleLimit) -> Self {
        let algorithm = limit.limit.algorithm();
        let written = |level: &Level| match level.shown() {
            ShownValue::Written(value) | ShownValue::Shared(value) => Some(value.to_string()),
            ShownValue::KeyOnly | ShownValue::Requested => None,
        };
        let levels: Vec<_> =
            rule.levels().iter().map(|level| (level.key().to_owned(), written(level))).collect();
        LimitTerms {
            algorithm: algorithm.name().to_owned(),
            quota: algorithm.quota(),
            period_ns: algorithm.period().get(),
            capacity: algorithm.capacity(),
            mode: limit.mode.as_str().to_owned(),
            soft: limit.limit.soft().is_some(),
            count_refused: algorithm.counts_refused(),
            per_caller: levels.iter().any(|(_, value)| value.is_none()),
            levels,
        }
    }

    /// The period.
    pub const fn period(&self) -> Nanos {
        Nanos::new(self.period_ns)
    }

    /// Whether it counts requests in flight.
    pub fn holds_slots(&self) -> bool {
        self.algorithm == "concurrency"
    }
}

impl LimitName {
    /// The name of a limit of a snapshot.
    pub fn of(snapshot: &Snapshot, rule: &Rule, limit: &RuleLimit) -> Self {
        LimitName {
            domain: rule.domain().to_owned(),
            rule: rule.path().to_owned(),
            limit: snapshot.limit_name(rule, limit).into_owned(),
        }
    }
}

/// Counts of a limit over a span, in hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanCounts {
    /// The length of the span in seconds.
    pub seconds: u64,
    /// Admitted.
    pub within: u64,
    /// Of those, in the last fifth of the limit.
    #[serde(default)]
    pub near: u64,
    /// Of those admitted, on the soft allowance.
    #[serde(default)]
    pub soft: u64,
    /// Refused, in shadow too.
    pub over: u64,
    /// Of those refused, in shadow.
    #[serde(default)]
    pub shadow: u64,
    /// Given back.
    #[serde(default)]
    pub refunded: u64,
    /// Charged after the fact, beyond what was estimated.
    #[serde(default)]
    pub charged_late: u64,
    /// Decided without the limit's own counter: the store was full or unavailable.
    #[serde(default)]
    pub approximate: u64,
}

impl SpanCounts {
    /// All hits.
    pub const fn hits(&self) -> u64 {
        self.within.saturating_add(self.over)
    }

    /// Refused hits of all.
    pub fn refused_share(&self) -> f64 {
        share(self.over, self.hits())
    }
}

/// Another limit that decides the same requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlapEvidence {
    /// The other limit.
    pub other: LimitName,
    /// Whether its terms alone make the first limit superfluous.
    #[serde(default)]
    pub by_terms: bool,
    /// Refusals of the first limit in requests that met both.
    #[serde(default)]
    pub refused: u64,
    /// Of those, the ones that the other limit refused too.
    #[serde(default)]
    pub refused_by_both: u64,
}

/// Refusals of the most refused callers. A sample of callers rarely holds them: heavy hitters are counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusiestCallers {
    /// All refusals of the limit in the same time.
    pub refusals: u64,
    /// Those of the most refused caller.
    pub first: u64,
    /// Those of the three most refused.
    pub three: u64,
}

/// A part of a whole; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
