//! `/api/findings` and `/api/evidence`: what traffic says about the rules.

use std::collections::HashMap;

use serde_json::json;
use tidegate_engine::{Clock, CounterStore, Rule, RuleLimit, Snapshot};
use tidegate_history::{DAY, DAYS, LimitView};
use tidegate_insight::{
    BusiestCallers, DemandSummary, EVIDENCE_VERSION, EvidenceMinimum, LimitEvidence, LimitFinding,
    LimitName, LimitTerms, RulesEvidence, SpanCounts, dominating_limit, judge, judge_all,
};

use super::answer::{self, Answer};
use super::observations::TopReading;
use super::service::Inner;

/// The evidence of all limits.
pub(super) fn evidence_page<S: CounterStore, C: Clock>(door: &Inner<S, C>) -> Answer {
    answer::json(&evidence(door))
}

/// The findings about all limits.
pub(super) fn findings_page<S: CounterStore, C: Clock>(door: &Inner<S, C>) -> Answer {
    let evidence = evidence(door);
    let findings = judge_all(&evidence, EvidenceMinimum::default());
    let seconds = evidence.limits.iter().map(|limit| limit.whole.seconds).max().unwrap_or(0);
    let minimum = EvidenceMinimum::default();
    answer::json(&json!({
        "seconds": seconds,
        "minimum": { "seconds": minimum.seconds, "hits": minimum.hits },
        "limits": evidence.limits.len(),
        "findings": findings,
    }))
}

/// The evidence of one limit, and the findings about it.
pub(super) fn of_limit<S: CounterStore, C: Clock>(
    door: &Inner<S, C>,
    identity: u64,
) -> Option<(LimitEvidence, Vec<LimitFinding>)> {
    let snapshot = door.engine.snapshot();
    let limit = snapshot.limits().iter().find(|limit| limit.identity == identity)?;
    let rule = snapshot.rule(limit.rule)?;
    let evidence = EvidenceReader::new(door).read(&snapshot, rule, limit);
    let findings = judge(&evidence, EvidenceMinimum::default());
    Some((evidence, findings))
}

fn evidence<S: CounterStore, C: Clock>(door: &Inner<S, C>) -> RulesEvidence {
    let reader = EvidenceReader::new(door);
    let mut limits = Vec::new();
    door.engine.for_each_tally(|snapshot, rule, limit, _| {
        limits.push(reader.read(snapshot, rule, limit));
    });
    let mut domains: HashMap<String, u64> = HashMap::new();
    for limit in &limits {
        *domains.entry(limit.limit.domain.clone()).or_default() += limit.whole.hits();
    }
    for limit in &mut limits {
        limit.domain_hits = domains.get(&limit.limit.domain).copied().unwrap_or(0);
    }
    let rules_version = format!("{:016x}", door.engine.rules_version());
    RulesEvidence { version: EVIDENCE_VERSION, rules_version, limits }
}

/// Reads the evidence of limits at one moment.
struct EvidenceReader<'d, S, C> {
    door: &'d Inner<S, C>,
    refusals: TopReading,
    utilization_max: Option<f64>,
    now: u64,
}

impl<'d, S: CounterStore, C: Clock> EvidenceReader<'d, S, C> {
    fn new(door: &'d Inner<S, C>) -> Self {
        let now = door.engine.clock().now().as_millis() / 1_000;
        let utilization_max = door.board.protection().and_then(|_| {
            door.recorder.with(|history| {
                let columns = history.series(&["worker_utilization_permille"], 0, 10);
                let values = columns.values.first()?.iter().flatten();
                values.copied().reduce(f64::max).map(|most| most / 1_000.0)
            })
        });
        EvidenceReader { door, refusals: door.parts.observations.recent(), utilization_max, now }
    }

    fn read(&self, snapshot: &Snapshot, rule: &Rule, limit: &RuleLimit) -> LimitEvidence {
        let name = LimitName::of(snapshot, rule, limit);
        let terms = LimitTerms::of(rule, limit);
        let sample = self.door.parts.observations.demand_of(limit.identity);
        let (recent, whole, mode_seconds) = self.door.recorder.with(|history| {
            let Some(view) = history.limit(limit.identity) else { return Default::default() };
            let shadow = view.shadow_since.map(|since| self.now.saturating_sub(since));
            (self.span(&view, 2), self.span(&view, DAYS), shadow)
        });
        let note = rule.metadata().and_then(|metadata| Some(metadata["note"].as_str()?.to_owned()));
        LimitEvidence {
            demand: sample.map(|sample| DemandSummary::of(&sample, &terms)),
            busiest: self.busiest(&name),
            overlap: dominating_limit(snapshot, rule, limit),
            utilization_max: self.utilization_max,
            limit: name,
            terms,
            recent,
            whole,
            domain_hits: 0,
            mode_seconds,
            note,
        }
    }

    /// The counts of the last days, today included.
    fn span(&self, view: &LimitView<'_>, days: usize) -> SpanCounts {
        let known = self.now.saturating_sub(view.first_seen);
        let before_today = u64::try_from(days).unwrap_or(u64::MAX).saturating_sub(1);
        let longest = self.now % DAY + before_today.saturating_mul(DAY);
        let mut counts = SpanCounts { seconds: known.min(longest), ..SpanCounts::default() };
        for day in view.days.iter().take(days) {
            counts.within += u64::from(day.admitted);
            counts.near += u64::from(day.near);
            counts.soft += u64::from(day.soft);
            counts.over += u64::from(day.refused) + u64::from(day.shadow);
            counts.shadow += u64::from(day.shadow);
        }
        counts
    }

    /// The refusals of the most refused callers of a limit.
    fn busiest(&self, name: &LimitName) -> Option<BusiestCallers> {
        let is_of = |by: &super::observations::RefusingLimit| {
            by.domain == name.domain && by.rule == name.rule && by.limit == name.limit
        };
        let limits = self.refusals.limits.iter().filter(|row| is_of(&row.label));
        let refusals: u64 = limits.map(|row| row.refusals).sum();
        let callers = self.refusals.keys.iter().filter(|row| is_of(&row.label.by));
        // Never more than were counted.
        let counts: Vec<u64> =
            callers.map(|row| row.refusals.saturating_sub(row.error)).take(3).collect();
        let first = *counts.first()?;
        Some(BusiestCallers { refusals, first, three: counts.iter().sum() })
    }
}
