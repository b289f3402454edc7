use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const PERIOD: Nanos = Nanos::from_secs(10);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(1_800_000_000 + seconds)
}

fn hit(fingerprint: u64, refused: bool) -> DemandHit {
    DemandHit { fingerprint, cost: 1, refused }
}

/// The one caller of a sample that saw these hits, as (second, refused).
fn caller_of(hits: &[(u64, bool)]) -> CallerDemand {
    let mut sample = DemandSample::new(PERIOD);
    for (second, refused) in hits {
        sample.observe(&hit(7, *refused), at(*second));
    }
    *sample.callers().first().expect("one caller")
}

#[test]
fn a_caller_takes_forty_bytes() {
    assert_eq!(size_of::<CallerDemand>(), 40);
    assert_eq!(DemandSample::bytes_of(CALLERS_SAMPLED), 10 * 1_024);
}

#[test]
fn the_peak_is_that_of_one_window_and_the_mean_that_of_ten() {
    let mut hits = vec![(0, false); 3];
    hits.extend([(10, false); 8]);
    hits.extend([(20, false); 1]);
    hits.extend([(100, false); 5]);
    let caller = caller_of(&hits);
    assert_eq!((caller.hits(), caller.peak()), (17, 8));
    assert!((caller.mean() - 1.2).abs() < 1e-9, "{}", caller.mean());
}

#[test]
fn what_is_refused_counts_as_asked_for() {
    let caller = caller_of(&[(0, false), (1, true), (2, true), (11, false), (12, true)]);
    assert_eq!((caller.hits(), caller.refused(), caller.peak()), (5, 3, 3));
    assert!((caller.repeated_share() - 1.0 / 3.0).abs() < 1e-9);
}

#[test]
fn a_caller_that_waits_shows_its_pace_by_how_early_it_is_refused() {
    // Five units in half a window, then it waits for the next one.
    let caller =
        caller_of(&[(0, false), (1, false), (2, false), (3, false), (5, true), (16, false)]);
    assert_eq!((caller.peak(), caller.pace()), (5, 10));
    // Refused again later in the same window: the first refusal counts.
    let again = caller_of(&[(0, false), (4, true), (5, true), (6, true)]);
    assert_eq!((again.peak(), again.pace()), (4, 5));
    // Refused at once: the pace of a tenth of a window at least.
    assert_eq!(caller_of(&[(0, true)]).pace(), 10);
    assert_eq!(caller_of(&[(0, false)]).pace(), 0);
}

#[test]
fn a_late_hit_counts_in_the_present_window() {
    let caller = caller_of(&[(10, false), (9, false), (11, false)]);
    assert_eq!(caller.peak(), 3);
}

#[test]
fn what_passes_around_the_end_of_a_window_is_seen() {
    let mut sample = DemandSample::new(PERIOD);
    for second in [6, 7, 8, 10, 11, 16] {
        sample.observe(&hit(1, false), at(second));
    }
    sample.observe(&hit(1, true), at(12));
    assert_eq!(sample.boundary_peak(), 5);
}

#[test]
fn the_estimate_of_callers_is_exact_until_the_sample_is_full() {
    let mut sample = DemandSample::with_size(PERIOD, 4);
    for fingerprint in 1..=4_u64 {
        sample.observe(&hit(fingerprint << 60, false), at(0));
    }
    assert_eq!(sample.callers_estimate(), 4);
    sample.observe(&hit(15 << 60, false), at(0));
    assert_eq!(sample.callers().len(), 4);
    assert_eq!(sample.callers_estimate(), 12);
}

/// A hash that spreads small numbers.
fn spread(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[test]
fn a_full_sample_estimates_its_callers() {
    let mut sample = DemandSample::new(PERIOD);
    for number in 0..100_000 {
        sample.observe(&hit(spread(number), false), at(0));
    }
    let estimate = sample.callers_estimate();
    assert!((80_000..120_000).contains(&estimate), "{estimate}");
}

proptest! {
    #[test]
    fn a_sample_holds_the_callers_with_the_smallest_fingerprints(
        hits in prop::collection::vec((0_u64..40, 1_u64..4, any::<bool>(), 0_u64..3), 0..300),
        size in 2_usize..12,
    ) {
        let mut sample = DemandSample::with_size(PERIOD, size);
        let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (number, cost, refused, second) in hits {
            let fingerprint = spread(number);
            sample.observe(&DemandHit { fingerprint, cost, refused }, at(second));
            let caller = model.entry(fingerprint).or_default();
            caller.0 += cost;
            caller.1 += if refused { cost } else { 0 };
        }
        let expected: Vec<_> = model.into_iter().take(size).collect();
        let kept = sample.callers().iter();
        let kept: Vec<_> = kept
            .map(|caller| {
                let counts = (u64::from(caller.hits()), u64::from(caller.refused()));
                (caller.fingerprint(), counts)
            })
            .collect();
        prop_assert_eq!(kept, expected);
    }

    #[test]
    fn merged_samples_hold_the_callers_of_one_sample_of_all_hits(
        hits in prop::collection::vec((0_u64..40, any::<bool>(), any::<bool>()), 0..200),
        size in 2_usize..12,
    ) {
        let mut nodes = [DemandSample::with_size(PERIOD, size), DemandSample::with_size(PERIOD, size)];
        let mut whole = DemandSample::with_size(PERIOD, size);
        for (number, second_node, refused) in hits {
            let hit = hit(spread(number), refused);
            nodes[usize::from(second_node)].observe(&hit, at(0));
            whole.observe(&hit, at(0));
        }
        let [mut merged, other] = nodes;
        merged.merge(&other, SampleRelation::OtherNode);
        let key = |caller: &CallerDemand| (caller.fingerprint(), caller.hits(), caller.peak());
        let merged: Vec<_> = merged.callers().iter().map(key).collect();
        let whole: Vec<_> = whole.callers().iter().map(key).collect();
        prop_assert_eq!(merged, whole);
    }
}
