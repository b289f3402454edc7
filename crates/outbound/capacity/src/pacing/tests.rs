use proptest::prelude::*;

use super::*;
use crate::limits::Dimension;

const SECOND: u64 = 1_000_000_000;

fn target(amount: u64, slots: u16) -> TargetLimits {
    let limit = TargetLimit::per_second(Dimension::Units, amount);
    TargetLimits::with_slots(vec![limit], slots).unwrap()
}

fn pace(slots: u16) -> Pace {
    Pace { slots, level_ppm: Pace::UTILISATION_DEFAULT }
}

/// Sends records one after another, each up to `lateness` after its time; returns the times with the costs.
fn send_all(
    pacer: &mut TargetPacer,
    start: Timestamp,
    records: impl IntoIterator<Item = (u64, u64)>,
) -> Vec<(u64, u64)> {
    let mut now = start;
    let mut sent = Vec::new();
    for (cost, lateness) in records {
        let Departure::At(at) = pacer.earliest(Cost::units(cost), now, Timestamp::MAX) else {
            panic!("a share and an endless lease permit every record");
        };
        now = at.after(Nanos::new(lateness));
        pacer.depart(Cost::units(cost), now);
        sent.push((now.as_nanos(), cost));
    }
    sent
}

/// The most units in any half-open window of this length.
fn most_in_a_window(sent: &[(u64, u64)], window: u64) -> u64 {
    let (mut first, mut inside, mut most) = (0, 0, 0);
    for (at, cost) in sent {
        inside += cost;
        while sent[first].0 + window <= *at {
            inside -= sent[first].1;
            first += 1;
        }
        most = most.max(inside);
    }
    most
}

#[test]
fn the_import_of_the_texts_takes_little_more_than_five_seconds() {
    let mut pacer = TargetPacer::new(&target(20_000, 100));
    pacer.set_pace(pace(100), Timestamp::from_secs(1));
    let sent = send_all(&mut pacer, Timestamp::from_secs(1), (0..10_000).map(|_| (10, 0)));
    let took = sent.last().unwrap().0 - SECOND;
    assert!((5 * SECOND..52 * SECOND / 10).contains(&took), "{took}");
    assert!(most_in_a_window(&sent, SECOND) <= 20_000);
}

#[test]
fn slow_and_fast_limits_keep_their_rate_within_two_percent_and_a_half() {
    for amount in [1, 2, 3, 25, 100, 999, 20_000] {
        let mut pacer = TargetPacer::new(&target(amount, 1));
        pacer.set_pace(pace(1), Timestamp::EPOCH);
        let count = amount * 60;
        let sent = send_all(&mut pacer, Timestamp::EPOCH, (0..count).map(|_| (1, 0)));
        let rate = (count - 1) as f64 / ((sent.last().unwrap().0 - sent[0].0) as f64 / 1e9);
        let ratio = rate / amount as f64;
        assert!((0.975..=1.0).contains(&ratio), "{amount}: {ratio}");
        assert!(most_in_a_window(&sent, SECOND) <= amount, "{amount}");
    }
}

#[test]
fn nothing_leaves_without_a_slot() {
    let pacer = TargetPacer::new(&target(100, 10));
    assert_eq!(
        pacer.earliest(Cost::units(1), Timestamp::EPOCH, Timestamp::MAX),
        Departure::NoShare
    );
}

#[test]
fn a_record_whose_interval_outlasts_the_lease_waits() {
    let mut pacer = TargetPacer::new(&target(10, 1));
    pacer.set_pace(pace(1), Timestamp::EPOCH);
    let deadline = Timestamp::from_secs(1);
    assert_eq!(pacer.earliest(Cost::units(9), Timestamp::EPOCH, deadline), Departure::AfterLease);
    assert!(matches!(pacer.earliest(Cost::units(3), Timestamp::EPOCH, deadline), Departure::At(_)));
}

#[test]
fn a_brake_does_not_make_a_record_outlast_its_lease() {
    let mut pacer = TargetPacer::new(&target(10, 10));
    // One unit a second, of which the brake leaves a twentieth.
    pacer.set_pace(Pace { slots: 1, level_ppm: 49_000 }, Timestamp::EPOCH);
    let now = Timestamp::from_secs(60);
    let deadline = Timestamp::from_secs(70);
    assert!(matches!(pacer.earliest(Cost::units(1), now, deadline), Departure::At(_)));
}

#[test]
fn all_limits_bind_at_once() {
    let limits = vec![
        TargetLimit::per_second(Dimension::Operations, 20),
        TargetLimit::per_minute(Dimension::Bytes, 2 << 30),
        TargetLimit::per_second(Dimension::Units, 20_000),
    ];
    let limits = TargetLimits::with_slots(limits, 1).unwrap();
    let mut pacer = TargetPacer::new(&limits);
    pacer.set_pace(pace(1), Timestamp::EPOCH);
    let by_operations = Cost { operations: 1, bytes: 1_000, units: 10 };
    let by_bytes = Cost { operations: 1, bytes: 100 << 20, units: 10 };
    let by_units = Cost { operations: 1, bytes: 1_000, units: 19_000 };
    for (cost, binding) in [(by_operations, 0), (by_bytes, 1), (by_units, 2)] {
        assert_eq!(pacer.binding_limit(cost, Timestamp::EPOCH), Some(binding), "{cost:?}");
    }
}

#[test]
fn a_real_cost_above_the_count_delays_the_next_record_and_below_brings_it_forward() {
    let mut pacer = TargetPacer::new(&target(1_000, 1));
    pacer.set_pace(pace(1), Timestamp::EPOCH);
    let start = Timestamp::from_secs(1);
    let next = |pacer: &TargetPacer| match pacer.earliest(Cost::units(10), start, Timestamp::MAX) {
        Departure::At(at) => at.since(start).get(),
        other => panic!("{other:?}"),
    };
    pacer.depart(Cost::units(10), start);
    let counted = next(&pacer);
    let mut dearer = pacer.clone();
    dearer.correct(Cost::units(10), Cost::units(50), start);
    assert!(next(&dearer) > 4 * counted);
    pacer.correct(Cost::units(10), Cost::units(1), start);
    assert!(next(&pacer) < counted);
}

#[test]
fn half_the_slots_double_the_remaining_wait() {
    let mut pacer = TargetPacer::new(&target(10, 2));
    pacer.set_pace(pace(2), Timestamp::EPOCH);
    let start = Timestamp::from_secs(10);
    pacer.depart(Cost::units(1), start);
    let wait = |pacer: &TargetPacer| match pacer.earliest(Cost::units(1), start, Timestamp::MAX) {
        Departure::At(at) => at.since(start).get(),
        other => panic!("{other:?}"),
    };
    let before = wait(&pacer);
    pacer.set_pace(pace(1), start);
    assert!(wait(&pacer).abs_diff(2 * before) < 2_000, "{before} and {}", wait(&pacer));
}

#[test]
fn late_records_do_not_slow_the_pace() {
    let mut pacer = TargetPacer::new(&target(2_000, 100));
    pacer.set_pace(pace(100), Timestamp::from_secs(1));
    // The process waits for a processor for nine milliseconds, twenty times a second.
    let lateness = |record: u64| if record.is_multiple_of(100) { 9_000_000 } else { 0 };
    let sent = send_all(&mut pacer, Timestamp::from_secs(1), (0..10_000).map(|n| (1, lateness(n))));
    let took = sent.last().unwrap().0 - SECOND;
    assert!(took < 5_130_000_000, "{took}");
    assert!(most_in_a_window(&sent, SECOND) <= 2_000);
}

/// Nanoseconds by which a record leaves late: mostly a timer's, sometimes a busy processor's.
fn lateness() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..=2_000_000, 1 => 0u64..=40_000_000]
}

proptest! {
    #[test]
    fn no_window_holds_more_than_the_share(
        amount in 20u64..5_000,
        held in 1u16..=20,
        records in prop::collection::vec((1u64..=20, lateness()), 1..400),
        uniform in any::<bool>(),
    ) {
        let limits = target(amount * 20, 20);
        let mut pacer = TargetPacer::new(&limits);
        pacer.set_pace(pace(held), Timestamp::EPOCH);
        let first = records[0].0;
        let records = records.into_iter().map(|(cost, late)| (if uniform { first } else { cost }, late));
        let sent = send_all(&mut pacer, Timestamp::from_secs(5), records);
        let share = amount * u64::from(held);
        prop_assert!(most_in_a_window(&sent, SECOND) <= share, "{} of {share}", most_in_a_window(&sent, SECOND));
    }

    #[test]
    fn members_that_share_the_slots_keep_the_limit_together(
        amount in 40u64..2_000,
        seeds in prop::collection::vec((0u64..1_000_000_000, prop::collection::vec((1u64..=4, lateness()), 1..200)), 2..6),
    ) {
        let members = u16::try_from(seeds.len()).unwrap();
        let limits = target(amount * u64::from(members), members);
        let mut sent = Vec::new();
        for (start, records) in seeds {
            let mut pacer = TargetPacer::new(&limits);
            pacer.set_pace(pace(1), Timestamp::from_nanos(start));
            sent.extend(send_all(&mut pacer, Timestamp::from_nanos(start), records));
        }
        sent.sort_unstable();
        prop_assert!(most_in_a_window(&sent, SECOND) <= amount * u64::from(members));
    }

    #[test]
    fn a_slot_that_changes_its_owner_is_never_used_twice(
        amount in 40u64..2_000,
        handover in 1_000_000_000u64..3_000_000_000,
        first in prop::collection::vec((1u64..=4, lateness()), 1..600),
        second in prop::collection::vec((1u64..=4, lateness()), 1..600),
    ) {
        let limits = target(amount, 1);
        let deadline = Timestamp::from_nanos(handover);
        let mut pacer = TargetPacer::new(&limits);
        pacer.set_pace(pace(1), Timestamp::EPOCH);
        let mut sent = Vec::new();
        let mut now = Timestamp::EPOCH;
        for (cost, late) in first {
            let Departure::At(at) = pacer.earliest(Cost::units(cost), now, deadline) else { continue };
            now = at.after(Nanos::new(late)).min(deadline);
            let Departure::At(at) = pacer.earliest(Cost::units(cost), now, deadline) else { continue };
            if at > now { continue }
            pacer.depart(Cost::units(cost), now);
            sent.push((now.as_nanos(), cost));
        }
        let mut next_owner = TargetPacer::new(&limits);
        next_owner.set_pace(pace(1), deadline);
        sent.extend(send_all(&mut next_owner, deadline, second));
        prop_assert!(most_in_a_window(&sent, SECOND) <= amount, "{}", most_in_a_window(&sent, SECOND));
    }
}
