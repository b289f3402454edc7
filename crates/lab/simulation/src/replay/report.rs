//! What a replay found, as plain data.

use serde::Serialize;
use tidegate_algorithms::Timestamp;
use tidegate_engine::Snapshot;
use tidegate_insight::{
    BusiestCallers, CurvePoint, DemandSummary, EVIDENCE_VERSION, EvidenceMinimum, LimitEvidence,
    LimitFinding, LimitName, LimitTerms, PeakQuantiles, RulesEvidence, SpanCounts,
    dominating_limit, judge,
};
use xxhash_rust::xxh3::xxh3_64;

use super::rule_set::{LimitTotals, RuleSet, SetTotals};
use super::run::{IntakeNotes, Sides, version_text};
use super::timeline::TimelinePoint;

/// Callers in a list of the report.
const CALLERS_SHOWN: usize = 20;
/// Limits with charts of their demand.
const DEMANDS_SHOWN: usize = 6;
/// A replay of less than ten minutes gives no findings.
const MINIMUM: EvidenceMinimum = EvidenceMinimum { seconds: 600, hits: 1_000 };

/// What was read of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogSummary {
    /// Its name.
    pub name: String,
    /// Its format.
    pub format: String,
    /// All lines.
    pub lines: u64,
    /// Lines that are requests.
    pub read: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Lines without text.
    pub empty: u64,
    /// Lines that are too long to be requests.
    pub too_long: u64,
    /// Whether a compressed file ends too early.
    pub cut_off: bool,
    /// Some of the lines that could not be read.
    pub examples: Vec<String>,
}

/// The answers of one set of rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SetResult {
    /// The version of the rules.
    pub rules: String,
    /// Requests.
    pub requests: u64,
    /// Refused requests.
    pub refused: u64,
    /// Refused requests of all.
    pub refused_share: f64,
    /// Requests that a limit in shadow would refuse.
    pub would_refuse: u64,
    /// Requests that passed on a soft allowance.
    pub soft: u64,
    /// Requests that met no limit.
    pub unlimited: u64,
}

/// The answers of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitResult {
    /// Admitted hits.
    pub admitted: u64,
    /// Of those, on the soft allowance.
    pub soft: u64,
    /// Refused hits.
    pub refused: u64,
    /// Hits that it would refuse, in shadow.
    pub would_refuse: u64,
    /// Callers with a refusal, in shadow too.
    pub callers_refused: u64,
}

/// A limit under both sets of rules.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitRow {
    /// Which.
    pub limit: LimitName,
    /// Under the old rules.
    pub old: Option<LimitResult>,
    /// Under the new rules.
    pub new: Option<LimitResult>,
}

/// A caller whose requests flip.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallerRow {
    /// The descriptor.
    pub caller: String,
    /// Its requests, if they were counted.
    pub requests: u64,
    /// Requests that only the new rules refuse.
    pub newly_refused: u64,
    /// Requests that only the old rules refuse.
    pub newly_admitted: u64,
    /// When the first of them came.
    pub first: String,
}

/// A caller that a limit refuses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefusedRow {
    /// The descriptor.
    pub caller: String,
    /// Refused hits.
    pub refused: u64,
    /// When the first of them came.
    pub first: String,
    /// The limit that refuses.
    pub limit: Option<LimitName>,
}

/// Requests that the two sets answer differently.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlipReport {
    /// Requests that only the new rules refuse.
    pub newly_refused: u64,
    /// Requests that only the old rules refuse.
    pub newly_admitted: u64,
    /// Callers whose requests flip.
    pub callers: u64,
    /// Those most affected.
    pub most: Vec<CallerRow>,
}

/// The errors of a sliding window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowRow {
    /// Which limit.
    pub limit: LimitName,
    /// Requests compared with an exact log.
    pub judged: u64,
    /// Share that was wrongly admitted.
    pub wrongly_admitted: f64,
    /// Share that was wrongly refused.
    pub wrongly_refused: f64,
}

/// The demand of the callers of a limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DemandRow {
    /// Which limit.
    pub limit: LimitName,
    /// Its number.
    pub quota: u64,
    /// Callers.
    pub callers: u64,
    /// Quantiles of their peaks.
    pub peaks: PeakQuantiles,
    /// Callers refused by other numbers.
    pub curve: Vec<CurvePoint>,
    /// The number that fits.
    pub recommended: u64,
}

/// Requests and refusals over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimelineReport {
    /// Seconds in a step.
    pub step_seconds: u64,
    /// Requests in each step.
    pub requests: Vec<u64>,
    /// Refused by the new rules.
    pub new_refused: Vec<u64>,
    /// Refused by the old rules.
    pub old_refused: Vec<u64>,
}

/// How verdicts compare with those of a decision log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerdictComparison {
    /// Verdicts that were compared.
    pub compared: u64,
    /// Verdicts that differ.
    pub different: u64,
}

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    /// What was read.
    pub logs: Vec<LogSummary>,
    /// When the first request began.
    pub from: String,
    /// When the last request began.
    pub to: String,
    /// The time between, in seconds.
    pub seconds: u64,
    /// Requests that the log says were refused by a rate limit.
    pub logged_refused: u64,
    /// What limits how far the numbers can be trusted.
    pub notes: Vec<String>,
    /// Whether numbers are those of all requests; a sampled log gives only shares.
    pub is_complete: bool,
    /// The new rules, with every line as it was logged.
    pub new: SetResult,
    /// The old rules.
    pub old: Option<SetResult>,
    /// The new rules, with clients that wait.
    pub obedient: Option<SetResult>,
    /// The new rules, with clients that wait or insist as they did under the old rules: the prediction.
    pub expected: Option<SetResult>,
    /// Every limit that was met.
    pub limits: Vec<LimitRow>,
    /// Requests that flip.
    pub flips: Option<FlipReport>,
    /// The callers that the new rules refuse most.
    pub worst: Vec<RefusedRow>,
    /// Sliding windows beside exact logs.
    pub windows: Vec<WindowRow>,
    /// The comparison with the verdicts of a decision log.
    pub verdicts: Option<VerdictComparison>,
    /// Findings on the new rules.
    pub findings: Vec<LimitFinding>,
    /// The demand of the busiest limits.
    pub demand: Vec<DemandRow>,
    /// Requests and refusals over time.
    pub timeline: TimelineReport,
    /// What is known of each limit of the new rules; a file of its own.
    #[serde(skip)]
    pub evidence: RulesEvidence,
}

impl ReplayReport {
    pub(crate) fn new(
        sides: &Sides,
        logs: Vec<LogSummary>,
        missing: &[(String, u64)],
        late: u64,
        notes: &IntakeNotes,
        anonymise: bool,
    ) -> Self {
        let first = sides.first.unwrap_or_default();
        let seconds = sides.last.since(first).get() / 1_000_000_000;
        let name = CallerNames { anonymise };
        let evidence = evidence_of(&sides.new, seconds);
        let findings = evidence.iter().flat_map(|one| judge(one, MINIMUM)).collect();
        let points = sides.timeline.points();
        let column = |of: fn(&TimelinePoint) -> u64| points.iter().map(of).collect();
        ReplayReport {
            notes: note_texts(notes, missing, late, sides, &logs),
            logs,
            from: time_text(first),
            to: time_text(sides.last),
            seconds,
            logged_refused: sides.logged_refused,
            is_complete: notes.one_of <= 1,
            new: set_result(&sides.new),
            old: sides.old.as_ref().map(set_result),
            obedient: sides.obedient.as_ref().map(|obedient| set_result(&obedient.rules)),
            expected: sides.expected.as_ref().map(|expected| set_result(&expected.rules)),
            limits: limit_rows(&sides.new, sides.old.as_ref()),
            flips: sides.old.as_ref().map(|_| flip_report(sides, &name)),
            worst: worst_callers(&sides.new, &name),
            windows: window_rows(&sides.new),
            verdicts: (sides.log.compared > 0).then_some(VerdictComparison {
                compared: sides.log.compared,
                different: sides.log.different,
            }),
            findings,
            demand: demand_rows(&evidence),
            timeline: TimelineReport {
                step_seconds: sides.timeline.step_seconds(),
                requests: column(|point| point.requests),
                new_refused: column(|point| point.new_refused),
                old_refused: column(|point| point.old_refused),
            },
            evidence: RulesEvidence {
                version: EVIDENCE_VERSION,
                rules_version: version_text(sides.new.snapshot().version()),
                limits: evidence,
            },
        }
    }

    /// Lines that could not be read, of all logs.
    pub fn unreadable(&self) -> u64 {
        self.logs.iter().map(|log| log.unreadable + log.too_long).sum()
    }
}

/// Callers as the report shows them.
struct CallerNames {
    anonymise: bool,
}

impl CallerNames {
    fn show(&self, name: &str) -> String {
        if !self.anonymise {
            return name.to_owned();
        }
        let entries = name.split(' ').map(|entry| match entry.split_once('=') {
            Some((key, value)) => format!("{key}=#{:012x}", xxh3_64(value.as_bytes()) >> 16),
            None => format!("#{:012x}", xxh3_64(entry.as_bytes()) >> 16),
        });
        entries.collect::<Vec<_>>().join(" ")
    }
}

fn set_result(set: &RuleSet) -> SetResult {
    let SetTotals { requests, refused, would_refuse, soft, unlimited, .. } = set.totals;
    SetResult {
        rules: version_text(set.snapshot().version()),
        requests,
        refused,
        refused_share: share(refused, requests),
        would_refuse,
        soft,
        unlimited,
    }
}

fn limit_result(totals: &LimitTotals) -> LimitResult {
    LimitResult {
        admitted: totals.admitted,
        soft: totals.soft,
        refused: totals.refused,
        would_refuse: totals.would_refuse,
        callers_refused: u64::try_from(totals.refused_callers.len()).unwrap_or(u64::MAX),
    }
}

/// The limits of a set that were met, by name.
fn named_limits(set: &RuleSet) -> Vec<(LimitName, &LimitTotals)> {
    let snapshot = set.snapshot();
    let limits = snapshot.limits().iter().zip(&set.limits);
    let met =
        limits.filter(|(_, totals)| totals.admitted + totals.refused + totals.would_refuse > 0);
    met.filter_map(|(limit, totals)| {
        let rule = snapshot.rule(limit.rule)?;
        Some((LimitName::of(snapshot, rule, limit), totals))
    })
    .collect()
}

fn limit_rows(new: &RuleSet, old: Option<&RuleSet>) -> Vec<LimitRow> {
    let mut rows = std::collections::BTreeMap::<LimitName, LimitRow>::new();
    let row = |limit: &LimitName| LimitRow { limit: limit.clone(), old: None, new: None };
    for (limit, totals) in old.map(named_limits).unwrap_or_default() {
        rows.entry(limit.clone()).or_insert_with(|| row(&limit)).old = Some(limit_result(totals));
    }
    for (limit, totals) in named_limits(new) {
        rows.entry(limit.clone()).or_insert_with(|| row(&limit)).new = Some(limit_result(totals));
    }
    rows.into_values().collect()
}

fn flip_report(sides: &Sides, names: &CallerNames) -> FlipReport {
    let flips = &sides.flips;
    let mut most: Vec<_> = flips.callers.iter().collect();
    most.sort_by(|(_, a), (_, b)| {
        let count = |one: &super::flips::FlippedCaller| one.newly_refused + one.newly_admitted;
        count(b).cmp(&count(a)).then_with(|| a.name.cmp(&b.name))
    });
    let row = |(hash, caller): &(&u64, &super::flips::FlippedCaller)| CallerRow {
        caller: names.show(&caller.name),
        requests: flips.requests_of(**hash),
        newly_refused: caller.newly_refused,
        newly_admitted: caller.newly_admitted,
        first: time_text(caller.first),
    };
    FlipReport {
        newly_refused: flips.newly_refused,
        newly_admitted: flips.newly_admitted,
        callers: u64::try_from(flips.callers.len()).unwrap_or(u64::MAX),
        most: most.iter().take(CALLERS_SHOWN).map(row).collect(),
    }
}

fn worst_callers(set: &RuleSet, names: &CallerNames) -> Vec<RefusedRow> {
    let mut worst: Vec<_> = set.refused.values().collect();
    worst.sort_by(|a, b| {
        b.refused.cmp(&a.refused).then_with(|| (&a.name, a.limit).cmp(&(&b.name, b.limit)))
    });
    let snapshot = set.snapshot();
    let row = |caller: &&super::rule_set::RefusedCaller| {
        let limit = snapshot.limits().get(caller.limit);
        let limit = limit
            .and_then(|limit| Some(LimitName::of(snapshot, snapshot.rule(limit.rule)?, limit)));
        RefusedRow {
            caller: names.show(&caller.name),
            refused: caller.refused,
            first: time_text(caller.first),
            limit,
        }
    };
    worst.iter().take(CALLERS_SHOWN).map(row).collect()
}

fn window_rows(set: &RuleSet) -> Vec<WindowRow> {
    let rows = named_limits(set).into_iter().filter_map(|(limit, totals)| {
        let errors = totals.window.as_ref()?.counts;
        Some(WindowRow {
            limit,
            judged: errors.judged,
            wrongly_admitted: share(errors.wrongly_admitted, errors.judged),
            wrongly_refused: share(errors.wrongly_refused, errors.judged),
        })
    });
    rows.collect()
}

/// The evidence that a replay gives for each limit.
fn evidence_of(set: &RuleSet, seconds: u64) -> Vec<LimitEvidence> {
    let snapshot: &Snapshot = set.snapshot();
    let mut busiest = vec![Vec::new(); set.limits.len()];
    for caller in set.refused.values() {
        if let Some(counts) = busiest.get_mut(caller.limit) {
            counts.push(caller.refused);
        }
    }
    let evidence = snapshot.limits().iter().zip(&set.limits).zip(busiest);
    let evidence = evidence.filter_map(|((limit, totals), mut busiest)| {
        let rule = snapshot.rule(limit.rule)?;
        let terms = LimitTerms::of(rule, limit);
        let counts = SpanCounts {
            seconds,
            within: totals.admitted,
            near: totals.near,
            soft: totals.soft,
            over: totals.refused + totals.would_refuse,
            shadow: totals.would_refuse,
            refunded: totals.refunded,
            charged_late: 0,
            approximate: totals.approximate,
        };
        busiest.sort_unstable_by(|a: &u64, b| b.cmp(a));
        Some(LimitEvidence {
            limit: LimitName::of(snapshot, rule, limit),
            demand: Some(DemandSummary::of(&totals.demand, &terms)),
            terms,
            recent: counts,
            whole: counts,
            domain_hits: set.totals.requests,
            busiest: (counts.over > 0).then(|| BusiestCallers {
                refusals: counts.over,
                first: busiest.first().copied().unwrap_or(0),
                three: busiest.iter().take(3).sum(),
            }),
            overlap: dominating_limit(snapshot, rule, limit),
            ..LimitEvidence::default()
        })
    });
    evidence.collect()
}

fn demand_rows(evidence: &[LimitEvidence]) -> Vec<DemandRow> {
    let mut shown: Vec<_> = evidence
        .iter()
        .filter_map(|one| Some((one, one.demand.as_ref()?)))
        .filter(|(one, demand)| one.terms.per_caller && demand.callers > 1)
        .collect();
    shown.sort_by(|(a, _), (b, _)| {
        b.recent.over.cmp(&a.recent.over).then(b.recent.hits().cmp(&a.recent.hits()))
    });
    let row = |(one, demand): &(&LimitEvidence, &DemandSummary)| DemandRow {
        limit: one.limit.clone(),
        quota: one.terms.quota,
        callers: demand.callers,
        peaks: demand.peaks,
        curve: demand.curve.clone(),
        recommended: demand.recommended,
    };
    shown.iter().take(DEMANDS_SHOWN).map(row).collect()
}

fn note_texts(
    notes: &IntakeNotes,
    missing: &[(String, u64)],
    late: u64,
    sides: &Sides,
    logs: &[LogSummary],
) -> Vec<String> {
    let mut texts = Vec::new();
    let mut add = |applies: bool, text: String| {
        if applies {
            texts.push(text);
        }
    };
    let holds_slots = |set: &RuleSet| {
        set.snapshot().limits().iter().any(|one| one.limit.algorithm().holds_slots())
    };
    add(
        notes.one_of > 1,
        format!(
            "the log has one of {} decisions: shares can be compared, absolute numbers cannot",
            notes.one_of
        ),
    );
    add(notes.lost > 0, format!("{} decisions are missing in the log", notes.lost));
    add(
        notes.coarse,
        "the log has whole seconds: the requests of a second are spread evenly over it".to_owned(),
    );
    add(
        holds_slots(&sides.new) && !notes.has_durations,
        "the log has no durations: limits of requests in flight never refuse".to_owned(),
    );
    add(
        notes.hashed,
        "values are hashed: rules for values that the old rules did not name do not match"
            .to_owned(),
    );
    add(
        notes.own_limits > 0,
        format!("{} requests brought their own limits, which are left out", notes.own_limits),
    );
    add(
        notes.without_descriptors > 0,
        format!(
            "{} requests have no descriptor, so that nothing limits them",
            notes.without_descriptors
        ),
    );
    add(
        notes.domains_beyond > 0,
        format!("{} requests are of too many domains and were left out", notes.domains_beyond),
    );
    add(late > 0, format!("{late} lines came more than 5 seconds late and were moved"));
    for (name, count) in missing {
        add(true, format!("`{name}` is missing in {count} requests"));
    }
    let unreadable: u64 = logs.iter().map(|log| log.unreadable + log.too_long).sum();
    add(unreadable > 0, format!("{unreadable} lines could not be read"));
    for log in logs.iter().filter(|log| log.cut_off) {
        add(true, format!("`{}` is cut off: what it has was played", log.name));
    }
    add(
        sides.new.totals.undecided > 0,
        format!("{} requests could not be decided", sides.new.totals.undecided),
    );
    texts
}

pub(crate) fn time_text(time: Timestamp) -> String {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(time.as_nanos()));
    moment.unwrap_or(jiff::Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

pub(crate) fn share(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
