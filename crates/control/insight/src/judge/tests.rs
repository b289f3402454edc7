use super::*;
use crate::demand_summary::PeakQuantiles;
use crate::evidence::{BusiestCallers, LimitName, LimitTerms, OverlapEvidence};

/// A limit of 100 a minute for each user, met by 1,000 callers that stay around half of it.
fn clean() -> LimitEvidence {
    let counts = SpanCounts { seconds: DAY, within: 100_000, near: 500, ..SpanCounts::default() };
    LimitEvidence {
        limit: LimitName { domain: "api".into(), rule: "user".into(), limit: "1".into() },
        terms: LimitTerms {
            algorithm: "fixed_window".into(),
            quota: 100,
            period_ns: 60_000_000_000,
            capacity: 100,
            mode: "enforce".into(),
            per_caller: true,
            levels: vec![("user".into(), None)],
            ..LimitTerms::default()
        },
        recent: counts,
        whole: SpanCounts { seconds: 14 * DAY, within: 1_400_000, near: 7_000, ..counts },
        domain_hits: 1_400_000,
        demand: Some(DemandSummary {
            callers: 1_000,
            sampled: 256,
            peaks: PeakQuantiles { p50: 20, p90: 40, p99: 60, p999: 80, max: 80 },
            recommended: 100,
            ..DemandSummary::default()
        }),
        ..LimitEvidence::default()
    }
}

fn kinds(evidence: &LimitEvidence) -> Vec<&'static str> {
    judge(evidence, EvidenceMinimum::default()).iter().map(|found| found.kind.as_str()).collect()
}

/// The clean limit with refusals, whose demand is changed.
fn refusing(over: u64, change: impl FnOnce(&mut DemandSummary)) -> LimitEvidence {
    let mut evidence = clean();
    evidence.recent.over = over;
    evidence.whole.over = over;
    change(evidence.demand.as_mut().expect("it has demand"));
    evidence
}

#[test]
fn a_limit_that_fits_its_callers_has_no_finding() {
    assert_eq!(kinds(&clean()), [""; 0]);
}

#[test]
fn a_limit_that_nothing_meets_is_never_matched() {
    let mut evidence = clean();
    evidence.whole = SpanCounts { seconds: 8 * DAY, ..SpanCounts::default() };
    evidence.recent = SpanCounts { seconds: DAY, ..SpanCounts::default() };
    assert_eq!(kinds(&evidence), ["never_matched"]);
    evidence.domain_hits = 0;
    assert_eq!(kinds(&evidence), [""; 0]);
}

#[test]
fn a_limit_far_above_all_peaks_is_idle_unless_a_note_explains_it() {
    let mut evidence = clean();
    evidence.whole.near = 0;
    evidence.terms.quota = 1_000;
    assert_eq!(kinds(&evidence), ["idle"]);
    evidence.note = Some("for the worst day".into());
    assert_eq!(kinds(&evidence), [""; 0]);
}

#[test]
fn a_limit_that_refuses_many_callers_is_too_strict() {
    let evidence = refusing(5_000, |demand| {
        demand.refused_callers = 40;
        demand.refusals = 1_000;
        demand.top_refusals = 50;
        demand.top3_refusals = 140;
        demand.recommended = 200;
    });
    let found = judge(&evidence, EvidenceMinimum::default());
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!(found.kind, FindingKind::TooStrict);
    let diff = found.suggestion.diff.as_deref().unwrap();
    let expected = " domain: api\n descriptors:\n - key: user\n   limits:\n   \
                    - {algorithm: fixed_window, per: 1m, requests_per_unit: 100}\n\
                    +  - {name: limit_1_suggested, algorithm: fixed_window, per: 1m, requests_per_unit: \
                    200, mode: shadow}\n";
    assert_eq!(diff, expected);
    assert!(found.replay.is_some());
}

#[test]
fn one_caller_with_all_refusals_is_an_abuser_and_no_fault() {
    let mut evidence = refusing(5_000, |_| {});
    evidence.busiest = Some(BusiestCallers { refusals: 5_000, first: 4_900, three: 4_950 });
    assert_eq!(kinds(&evidence), ["one_abuser"]);
    assert!(!FindingKind::OneAbuser.is_fault());
}

#[test]
fn refused_callers_with_a_low_mean_are_bursty() {
    let evidence = refusing(5_000, |demand| {
        demand.refused_callers = 40;
        demand.refusals = 1_000;
        demand.bursty_refusals = 900;
        demand.burst_needed = 300;
    });
    let found = judge(&evidence, EvidenceMinimum::default());
    assert_eq!(found[0].kind, FindingKind::Bursty);
    let diff = found[0].suggestion.diff.as_deref().unwrap();
    assert!(diff.contains("algorithm: token_bucket, per: 1m, requests_per_unit: 100, burst: 300"));
}

#[test]
fn refused_callers_that_do_not_wait_are_stubborn() {
    let mut evidence = refusing(5_000, |demand| {
        demand.refused_callers = 40;
        demand.refusals = 1_000;
        demand.stubborn_callers = 30;
    });
    assert_eq!(kinds(&evidence), ["stubborn_callers"]);
    // The suggestion is in place already.
    evidence.terms.count_refused = true;
    assert_eq!(kinds(&evidence), ["too_strict"]);
}

#[test]
fn twice_the_limit_around_the_end_of_a_window_is_a_finding_only_for_fixed_windows() {
    let mut evidence = clean();
    evidence.demand.as_mut().unwrap().boundary_peak = 160;
    assert_eq!(kinds(&evidence), ["boundary"]);
    evidence.terms.mode = "shadow".into();
    assert_eq!(kinds(&evidence), [""; 0], "a limit in shadow admits everything");
    evidence.terms.mode = "enforce".into();
    evidence.terms.algorithm = "sliding_window".into();
    assert_eq!(kinds(&evidence), [""; 0]);
}

#[test]
fn a_limit_in_shadow_is_ready_or_there_for_too_long() {
    let mut evidence = clean();
    evidence.terms.mode = "shadow".into();
    evidence.mode_seconds = Some(8 * DAY);
    assert_eq!(kinds(&evidence), ["ready"]);
    evidence.recent.over = 9_000;
    assert_eq!(kinds(&evidence), [""; 0]);
    evidence.mode_seconds = Some(15 * DAY);
    assert_eq!(kinds(&evidence), ["always_shadow"]);
}

#[test]
fn a_limit_whose_refusals_another_always_shares_is_dominated() {
    let mut evidence = clean();
    let other = LimitName { limit: "2".into(), ..evidence.limit.clone() };
    evidence.overlap =
        Some(OverlapEvidence { other, by_terms: false, refused: 200, refused_by_both: 200 });
    assert_eq!(kinds(&evidence), ["dominated"]);
    evidence.overlap.as_mut().unwrap().refused_by_both = 199;
    assert_eq!(kinds(&evidence), [""; 0]);
}

#[test]
fn soft_use_store_trouble_and_wrong_costs_are_found_by_their_counts() {
    let mut evidence = clean();
    evidence.terms.soft = true;
    evidence.recent.soft = 30_000;
    assert_eq!(kinds(&evidence), ["soft_always"]);
    evidence.recent.soft = 0;
    evidence.recent.approximate = 200;
    assert_eq!(kinds(&evidence), ["store_bound"]);
    evidence.recent.approximate = 0;
    evidence.recent.refunded = 40_000;
    assert_eq!(kinds(&evidence), ["costless"]);
    evidence.recent.refunded = 0;
    evidence.recent.charged_late = 1_000_000;
    assert_eq!(kinds(&evidence), ["costless"]);
}

#[test]
fn little_evidence_gives_no_finding() {
    let mut evidence = refusing(5_000, |demand| demand.refused_callers = 100);
    evidence.recent.seconds = 3_600;
    assert_eq!(kinds(&evidence), [""; 0]);
    let minimum = EvidenceMinimum { seconds: 600, hits: 1_000 };
    let found = judge(&evidence, minimum);
    assert_eq!(found[0].confidence, Confidence::Low);
}

#[test]
fn a_limit_that_is_off_has_no_finding() {
    let mut evidence = refusing(5_000, |demand| demand.refused_callers = 100);
    evidence.terms.mode = "off".into();
    assert_eq!(kinds(&evidence), [""; 0]);
}

#[test]
fn evidence_survives_json() {
    let evidence = RulesEvidence {
        version: crate::EVIDENCE_VERSION,
        rules_version: "abc".into(),
        limits: vec![clean()],
    };
    let text = serde_json::to_string(&evidence).unwrap();
    assert_eq!(serde_json::from_str::<RulesEvidence>(&text).unwrap(), evidence);
}
