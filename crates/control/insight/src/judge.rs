//! The thirteen kinds of findings.
//!
//! Kinds in a group exclude each other, the first that fits wins: a limit that nothing meets is not idle too, and
//! refusals have one cause. The other kinds stand for themselves.

use crate::demand_summary::{DemandSummary, as_f64};
use crate::evidence::{LIMITS_MAX, LimitEvidence, RulesEvidence, SpanCounts, share};
use crate::finding::{Confidence, Figure, FigureUnit, FindingKind, LimitFinding};
use crate::suggestion::{ChangedLimit, Suggestion, present};

const DAY: u64 = 86_400;

/// How much evidence a finding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvidenceMinimum {
    /// The recent span in seconds. Default: a day.
    pub seconds: u64,
    /// Hits in the recent span. Default: 1,000.
    pub hits: u64,
}

impl Default for EvidenceMinimum {
    fn default() -> Self {
        EvidenceMinimum { seconds: DAY, hits: 1_000 }
    }
}

/// The share of refused callers above which a limit is too strict.
const STRICT_CALLERS: f64 = 0.05;
/// The share of refused callers above which refusals are more than a few outliers.
const FEW_CALLERS: f64 = 0.01;
/// The share of refusals that one to three abusers have.
const ABUSERS_REFUSALS: f64 = 0.9;
/// The smallest share of refused hits that is worth a finding.
const REFUSED_MIN: f64 = 0.000_5;
/// Below this utilization a node has room for what it refuses.
const ROOMY_UTILIZATION: f64 = 0.5;

/// All findings about a set of rules, by limit.
pub fn judge_all(evidence: &RulesEvidence, minimum: EvidenceMinimum) -> Vec<LimitFinding> {
    evidence.limits.iter().take(LIMITS_MAX).flat_map(|limit| judge(limit, minimum)).collect()
}

/// The findings about one limit.
pub fn judge(evidence: &LimitEvidence, minimum: EvidenceMinimum) -> Vec<LimitFinding> {
    if evidence.terms.mode == "off" {
        return Vec::new();
    }
    let judge = Judge { evidence, minimum };
    let use_kinds = judge.never_matched().or_else(|| judge.dominated()).or_else(|| judge.idle());
    let shadow_kinds = judge.ready().or_else(|| judge.always_shadow());
    let refusal_kinds = if use_kinds.is_none() && shadow_kinds.is_none() {
        let cause = judge.one_abuser().or_else(|| judge.bursty());
        cause.or_else(|| judge.stubborn_callers()).or_else(|| judge.too_strict())
    } else {
        None
    };
    // Callers that are refused also pass twice the limit where they begin; the cause of the refusals says what to do.
    let boundary = if refusal_kinds.is_none() { judge.boundary() } else { None };
    let others = [boundary, judge.soft_always(), judge.store_bound(), judge.costless()];
    let found = use_kinds.into_iter().chain(shadow_kinds).chain(refusal_kinds);
    found.chain(others.into_iter().flatten()).collect()
}

struct Judge<'e> {
    evidence: &'e LimitEvidence,
    minimum: EvidenceMinimum,
}

/// A finding without what all findings have.
struct FindingParts<const N: usize> {
    kind: FindingKind,
    seconds: u64,
    summary: String,
    figures: [Figure; N],
    suggestion: Suggestion,
}

impl Judge<'_> {
    fn recent(&self) -> &SpanCounts {
        &self.evidence.recent
    }

    fn has_recent(&self) -> bool {
        let SpanCounts { seconds, .. } = self.evidence.recent;
        seconds >= self.minimum.seconds && self.recent().hits() >= self.minimum.hits
    }

    /// The demand, if callers have counters of their own and there is enough of it.
    fn caller_demand(&self) -> Option<&DemandSummary> {
        let terms = &self.evidence.terms;
        let usable = terms.per_caller && !terms.holds_slots() && self.has_recent();
        self.evidence.demand.as_ref().filter(|demand| usable && demand.sampled > 0)
    }

    /// Of all refusals, those of the one and of the three most refused callers.
    fn busiest(&self) -> Option<(f64, f64)> {
        if let Some(busiest) = &self.evidence.busiest {
            let of = |part| share(part, busiest.refusals);
            return Some((of(busiest.first), of(busiest.three)));
        }
        let demand = self.evidence.demand.as_ref()?;
        let of = |part| share(part, demand.refusals);
        // The sample tells about the busiest only if it holds every caller.
        (demand.callers <= demand.sampled)
            .then(|| (of(demand.top_refusals), of(demand.top3_refusals)))
    }

    fn refuses_enough(&self) -> bool {
        self.recent().over >= 10 && self.recent().refused_share() >= REFUSED_MIN
    }

    fn finding<const N: usize>(&self, parts: FindingParts<N>) -> LimitFinding {
        let FindingParts { kind, seconds, summary, figures, suggestion } = parts;
        let replay = suggestion.diff.is_some().then(|| {
            "tidegate simulate traffic --log decisions.jsonl --against rules/ --rules changed/"
                .to_owned()
        });
        LimitFinding {
            kind,
            limit: self.evidence.limit.clone(),
            seconds,
            summary,
            figures: figures.into(),
            confidence: self.confidence(kind),
            suggestion,
            replay,
        }
    }

    fn confidence(&self, kind: FindingKind) -> Confidence {
        let by_callers = !matches!(
            kind,
            FindingKind::NeverMatched
                | FindingKind::Dominated
                | FindingKind::StoreBound
                | FindingKind::Costless
                | FindingKind::SoftAlways
        );
        let callers = self.evidence.demand.as_ref().map_or(0, |demand| demand.callers);
        match callers {
            _ if self.evidence.recent.seconds < DAY => Confidence::Low,
            _ if !by_callers => Confidence::High,
            0..100 => Confidence::Low,
            100..1_000 => Confidence::Medium,
            _ => Confidence::High,
        }
    }

    fn never_matched(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, whole, domain_hits, .. } = self.evidence;
        let unmet = whole.hits() == 0 && whole.refunded == 0 && *domain_hits > 0;
        (unmet && whole.seconds >= 7 * DAY).then(|| {
            self.finding(FindingParts {
                kind: FindingKind::NeverMatched,
                seconds: whole.seconds,
                summary: "no request met this limit, although its domain had requests".to_owned(),
                figures: [
                    Figure::count("hits", 0),
                    Figure::count("hits of the domain", *domain_hits),
                    Figure::seconds("watched", whole.seconds),
                ],
                suggestion: Suggestion::remove(
                    "remove it, or find the rule that takes its requests with \
                     `tidegate rules explain`",
                    limit,
                    terms,
                ),
            })
        })
    }

    fn idle(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, whole, demand, note, .. } = self.evidence;
        let unused = whole.over == 0 && whole.near == 0 && note.is_none() && terms.mode != "shadow";
        if !unused || whole.seconds < 14 * DAY || whole.hits() < self.minimum.hits {
            return None;
        }
        if terms.holds_slots() {
            return None;
        }
        let demand = demand.as_ref()?;
        let peak = demand.peaks.max;
        if as_f64(peak) > as_f64(terms.quota) * 0.5 {
            return None;
        }
        let lower = crate::demand_summary::round_up(demand.peaks.p999.saturating_mul(2).max(1));
        let changed = ChangedLimit { quota: lower, ..present(terms) };
        Some(self.finding(FindingParts {
            kind: FindingKind::Idle,
            seconds: whole.seconds,
            summary: format!("callers never use more than {peak} of {}", terms.quota),
            figures: [
                Figure::count("highest use of a window", peak),
                Figure::count("limit", terms.quota),
                Figure::count("hits", whole.hits()),
                Figure::count("callers", demand.callers),
                Figure::seconds("watched", whole.seconds),
            ],
            suggestion: Suggestion::add(
                format!("lower it to {lower}, or keep it and say why in `metadata: {{note: …}}`"),
                limit,
                terms,
                &changed,
            ),
        }))
    }

    fn one_abuser(&self) -> Option<LimitFinding> {
        let demand = self.caller_demand()?;
        let (first, three) = self.busiest()?;
        let callers = demand.refused_callers_share();
        // In a small group of callers, one of them is more than one in a hundred.
        let few = callers < FEW_CALLERS || (demand.refused_callers <= 3 && demand.sampled >= 20);
        (self.refuses_enough() && three > ABUSERS_REFUSALS && few).then(|| {
            self.finding(FindingParts {
                kind: FindingKind::OneAbuser,
                seconds: self.recent().seconds,
                summary: "one to three callers have nearly all refusals: the limit works"
                    .to_owned(),
                figures: [
                    Figure::share("refusals of the busiest caller", first),
                    Figure::share("refusals of the three busiest", three),
                    Figure::share("refused callers", callers),
                    Figure::share("refused hits", self.recent().refused_share()),
                    Figure::count("callers", demand.callers),
                ],
                suggestion: Suggestion::advice(
                    "look at the caller at `/top`; give it a rule of its own, or block it before \
                     it reaches the service",
                ),
            })
        })
    }

    fn bursty(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, .. } = self.evidence;
        let demand = self.caller_demand()?;
        let part = share(demand.bursty_refusals, demand.refusals);
        let spread = demand.refused_callers_share() >= FEW_CALLERS && demand.refused_callers >= 3;
        if !self.refuses_enough() || part <= 0.5 || !spread {
            return None;
        }
        let burst = demand.burst_needed.max(terms.capacity.saturating_add(1));
        let changed =
            ChangedLimit { algorithm: "token_bucket", burst: Some(burst), ..present(terms) };
        let changed = ChangedLimit { count_refused: false, ..changed };
        Some(self.finding(FindingParts {
            kind: FindingKind::Bursty,
            seconds: self.recent().seconds,
            summary:
                "refused callers stay below the limit on average, and come in bursts".to_owned(),
            figures: [
                Figure::share("refusals of callers with a low mean", part),
                Figure::count("burst that 99 % of them need", demand.burst_needed),
                Figure::count("limit", terms.quota),
                Figure::share("refused callers", demand.refused_callers_share()),
                Figure::share("refused hits", self.recent().refused_share()),
            ],
            suggestion: Suggestion::add(
                format!("keep the rate and allow bursts of {burst} with a token bucket"),
                limit,
                terms,
                &changed,
            ),
        }))
    }

    fn stubborn_callers(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, .. } = self.evidence;
        let demand = self.caller_demand()?;
        let part = share(demand.stubborn_callers, demand.refused_callers);
        let spread = demand.stubborn_callers >= 3;
        if !self.refuses_enough() || part <= 0.5 || !spread || terms.count_refused {
            return None;
        }
        let text = "let refused requests count, so that callers that do not wait stay refused; or \
                    limit their connections";
        let counts =
            matches!(terms.algorithm.as_str(), "fixed_window" | "sliding_window" | "sliding_log");
        let suggestion = if counts {
            let changed = ChangedLimit { count_refused: true, ..present(terms) };
            Suggestion::add(text, limit, terms, &changed)
        } else {
            let changed = ChangedLimit {
                algorithm: "sliding_window",
                burst: None,
                count_refused: true,
                ..present(terms)
            };
            Suggestion::add(text, limit, terms, &changed)
        };
        Some(self.finding(FindingParts {
            kind: FindingKind::StubbornCallers,
            seconds: self.recent().seconds,
            summary: "refused callers go on above the limit without waiting".to_owned(),
            figures: [
                Figure::share("refused callers that do not wait", part),
                Figure::count("such callers in the sample", demand.stubborn_callers),
                Figure::share("refused callers", demand.refused_callers_share()),
                Figure::share("refused hits", self.recent().refused_share()),
                Figure::count("callers", demand.callers),
            ],
            suggestion,
        }))
    }

    fn too_strict(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, utilization_max, .. } = self.evidence;
        let demand = self.caller_demand()?;
        let refused = demand.refused_callers_share();
        let first = self.busiest().map_or(0.0, |(first, _)| first);
        let many = refused > STRICT_CALLERS && first < 0.5;
        let roomy = utilization_max.is_some_and(|used| used < ROOMY_UTILIZATION)
            && refused > FEW_CALLERS
            && first < 0.5;
        if !self.refuses_enough() || !(many || roomy) {
            return None;
        }
        let quota = demand.relaxed(terms.quota);
        let changed = ChangedLimit { quota, ..present(terms) };
        let burst = changed.burst.map(|burst| burst.max(quota));
        Some(self.finding(FindingParts {
            kind: FindingKind::TooStrict,
            seconds: self.recent().seconds,
            summary: "the limit refuses many callers, none of which stands out".to_owned(),
            figures: [
                Figure::share("refused callers", refused),
                Figure::share("refused hits", self.recent().refused_share()),
                Figure::share("refusals of the busiest caller", first),
                Figure::count("99.9th percentile of callers' peaks", demand.peaks.p999),
                Figure::count("limit", terms.quota),
            ],
            suggestion: Suggestion::add(
                format!("raise it to {quota}, above the peaks of the usual callers"),
                limit,
                terms,
                &ChangedLimit { burst, ..changed },
            ),
        }))
    }

    fn boundary(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, .. } = self.evidence;
        let demand = self.caller_demand()?;
        let most = as_f64(terms.quota) * 1.5;
        // In shadow every caller passes, whatever the algorithm counts.
        let enforced = terms.mode == "enforce";
        let windowed = terms.algorithm == "fixed_window" && !terms.soft && enforced;
        if !windowed || as_f64(demand.boundary_peak) <= most {
            return None;
        }
        let changed = ChangedLimit { algorithm: "sliding_window", ..present(terms) };
        Some(self.finding(FindingParts {
            kind: FindingKind::Boundary,
            seconds: self.recent().seconds,
            summary: format!(
                "a caller was admitted {} in one period around the end of a window",
                demand.boundary_peak
            ),
            figures: [
                Figure::count("most admitted in one period", demand.boundary_peak),
                Figure::count("limit", terms.quota),
                Figure::count("callers", demand.callers),
            ],
            suggestion: Suggestion::add(
                "use a sliding window, which admits no more around the end of a window",
                limit,
                terms,
                &changed,
            ),
        }))
    }

    /// Whether what it would refuse are only abusers, and few hits.
    fn is_harmless(&self) -> bool {
        let recent = self.recent();
        let callers =
            self.evidence.demand.as_ref().map_or(0.0, DemandSummary::refused_callers_share);
        let abusers = self.busiest().is_some_and(|(_, three)| three > ABUSERS_REFUSALS);
        recent.over == 0 || (recent.refused_share() < 0.001 && callers < FEW_CALLERS && abusers)
    }

    fn in_shadow(&self) -> Option<u64> {
        let LimitEvidence { terms, mode_seconds, .. } = self.evidence;
        mode_seconds.filter(|_| terms.mode == "shadow" && self.recent().hits() >= self.minimum.hits)
    }

    fn ready(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, .. } = self.evidence;
        let seconds = self.in_shadow().filter(|seconds| *seconds > 7 * DAY)?;
        self.is_harmless().then(|| {
            self.finding(FindingParts {
                kind: FindingKind::Ready,
                seconds,
                summary: "in shadow, it would refuse next to nothing".to_owned(),
                figures: [
                    Figure::seconds("in shadow", seconds),
                    Figure::count("hits", self.recent().hits()),
                    Figure::share("hits that it would refuse", self.recent().refused_share()),
                ],
                suggestion: Suggestion::set_mode("enforce it", limit, terms, "enforce"),
            })
        })
    }

    fn always_shadow(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, demand, .. } = self.evidence;
        let seconds = self.in_shadow().filter(|seconds| *seconds > 14 * DAY)?;
        let callers = demand.as_ref().map_or(0.0, DemandSummary::refused_callers_share);
        Some(self.finding(FindingParts {
            kind: FindingKind::AlwaysShadow,
            seconds,
            summary: "it has been in shadow for more than two weeks".to_owned(),
            figures: [
                Figure::seconds("in shadow", seconds),
                Figure::share("callers that it would refuse", callers),
                Figure::share("hits that it would refuse", self.recent().refused_share()),
                Figure::count("hits", self.recent().hits()),
            ],
            suggestion: Suggestion::set_mode(
                "enforce it for a tenth of the callers, and compare",
                limit,
                terms,
                "enforce 10%",
            ),
        }))
    }

    fn dominated(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, overlap, whole, .. } = self.evidence;
        let overlap = overlap.as_ref()?;
        let by_refusals = overlap.refused >= 100 && overlap.refused_by_both >= overlap.refused;
        (overlap.by_terms || by_refusals).then(|| {
            self.finding(FindingParts {
                kind: FindingKind::Dominated,
                seconds: whole.seconds,
                summary: format!("`{}` refuses whatever this limit would refuse", overlap.other),
                figures: [
                    Figure::count("refusals", overlap.refused),
                    Figure::count("refused by both", overlap.refused_by_both),
                    Figure::count("limit", terms.quota),
                ],
                suggestion: Suggestion::remove(
                    "remove it, or lower it below the other limit",
                    limit,
                    terms,
                ),
            })
        })
    }

    fn soft_always(&self) -> Option<LimitFinding> {
        let LimitEvidence { limit, terms, .. } = self.evidence;
        let part = share(self.recent().soft, self.recent().hits());
        if !terms.soft || !self.has_recent() || part <= 0.2 {
            return None;
        }
        let usual = self.evidence.demand.as_ref().map_or(0, |demand| demand.recommended);
        let quota = usual.max(terms.quota.saturating_add(terms.quota / 4).saturating_add(1));
        let changed = ChangedLimit { quota, ..present(terms) };
        Some(self.finding(FindingParts {
            kind: FindingKind::SoftAlways,
            seconds: self.recent().seconds,
            summary: "a large part of the hits is on the soft allowance".to_owned(),
            figures: [
                Figure::share("hits on the allowance", part),
                Figure::count("hits", self.recent().hits()),
                Figure::count("limit", terms.quota),
            ],
            suggestion: Suggestion::add(
                format!("raise the limit itself to {quota}"),
                limit,
                terms,
                &changed,
            ),
        }))
    }

    fn store_bound(&self) -> Option<LimitFinding> {
        let part = share(self.recent().approximate, self.recent().hits());
        (self.has_recent() && part > 0.001).then(|| {
            self.finding(FindingParts {
                kind: FindingKind::StoreBound,
                seconds: self.recent().seconds,
                summary: "the store could not count some of the hits".to_owned(),
                figures: [
                    Figure::share("hits without a counter of their own", part),
                    Figure::count("hits", self.recent().hits()),
                ],
                suggestion: Suggestion::advice(
                    "raise `store.memory.budget`, or look at Redis: `tidegate_remote_degraded`",
                ),
            })
        })
    }

    fn costless(&self) -> Option<LimitFinding> {
        let SpanCounts { within, refunded, charged_late, .. } = *self.recent();
        let refunds = share(refunded, within);
        let late = share(charged_late, within);
        (self.has_recent() && (refunds > 0.3 || late >= 9.0)).then(|| {
            self.finding(FindingParts {
                kind: FindingKind::Costless,
                seconds: self.recent().seconds,
                summary: "what the limit charges is not what requests cost".to_owned(),
                figures: [
                    Figure::share("refunded of charged", refunds),
                    Figure::share("charged late of charged", late),
                    Figure::count("hits", self.recent().hits()),
                ],
                suggestion: Suggestion::advice(
                    "estimate the cost better: the `cost` of the limit, or of the gateway's route",
                ),
            })
        })
    }
}

impl Figure {
    pub(crate) const fn count(name: &'static str, value: u64) -> Self {
        Figure { name, value: as_f64(value), unit: FigureUnit::Count }
    }

    pub(crate) const fn share(name: &'static str, value: f64) -> Self {
        Figure { name, value, unit: FigureUnit::Share }
    }

    pub(crate) const fn seconds(name: &'static str, value: u64) -> Self {
        Figure { name, value: as_f64(value), unit: FigureUnit::Seconds }
    }
}

#[cfg(test)]
mod tests;
