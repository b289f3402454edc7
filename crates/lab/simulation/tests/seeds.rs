//! A fixed set of seeds, run on every change.

use std::collections::BTreeMap;
use std::ops::Range;

use tidegate_simulation::{RunReport, Simulation, Size};

/// Runs seeds; a promise that does not hold fails the test with its seed.
fn run(seeds: Range<u64>) -> Vec<RunReport> {
    let run = |seed| Simulation::new(seed, Size::default()).run();
    seeds.map(|seed| run(seed).unwrap_or_else(|violation| panic!("{violation}"))).collect()
}

fn total(reports: &[RunReport], count: impl Fn(&RunReport) -> u64) -> u64 {
    reports.iter().map(count).sum()
}

// Four tests of ten seeds, so that they run beside one another.

#[test]
fn every_promise_holds_for_the_first_ten_seeds() {
    let reports = run(0..10);
    assert!(total(&reports, |report| report.refused) > 1_000);
}

#[test]
fn every_promise_holds_for_the_second_ten_seeds() {
    let reports = run(10..20);
    assert!(total(&reports, |report| report.on_shared_counters) > 0, "no store was full");
}

#[test]
fn every_promise_holds_for_the_third_ten_seeds() {
    let reports = run(20..30);
    assert!(total(&reports, |report| report.on_no_counter) > 0, "no store was full");
}

#[test]
fn every_promise_holds_for_the_fourth_ten_seeds_and_each_is_put_to_the_test() {
    const PROMISES: [&str; 21] = [
        "a peek agrees with the check",
        "a retry is honest",
        "a share of keys stays the same",
        "a switch reaches its limits",
        "an outcome follows from its rulings",
        "charged once and in full, or not at all",
        "concurrency: the limit in flight",
        "every request is decided",
        "fixed window: the limit in one window",
        "leaky bucket: departures are spaced",
        "leaky bucket: no more than the queue waits",
        "memory stays within the budget",
        "never means too large",
        "only what does not fit is refused",
        "rules meet whom they should, by mode",
        "sliding log: the limit in any period",
        "sliding window: its two bounds",
        "slots in use: admitted less given back",
        "soft: an allowance closes and rests",
        "the kill switch admits everything",
        "token bucket: burst + rate × time",
    ];
    let mut made: BTreeMap<&str, u64> = BTreeMap::new();
    for report in run(30..40) {
        for (promise, checks) in report.checks {
            *made.entry(promise).or_default() += checks;
        }
    }
    for promise in PROMISES {
        assert!(made.get(promise).is_some_and(|checks| *checks >= 50), "{promise}: {made:#?}");
    }
    assert_eq!(made.len(), PROMISES.len(), "{made:#?}");
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let size = Size { steps: 150, ..Size::default() };
    let run = |seed| Simulation::new(seed, size).run().expect("every promise holds");
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).checks, run(4).checks);
}

#[test]
fn a_longer_run_begins_like_a_shorter_one() {
    let run = |steps| {
        let size = Size { steps, ..Size::default() };
        Simulation::new(5, size).run().expect("every promise holds")
    };
    let (shorter, longer) = (run(40), run(80));
    assert!(shorter.requests > 0 && shorter.requests < longer.requests);
    assert_eq!(shorter.seed, longer.seed);
}
