use super::*;

/// Small enough for a test: a quarter of the workers, a minute and a half of overload.
fn small(contenders: &[Contender]) -> Options {
    Options {
        workers: 16,
        overload_seconds: 90,
        contenders: contenders.to_vec(),
        seeds: 2,
        ..Options::default()
    }
}

fn median(report: &Report, contender: Contender, metric: Metric) -> f64 {
    let standing = report.rounds.first().and_then(|round| round.of(contender));
    standing.and_then(|standing| standing.spread(metric)).expect("it took part").median
}

fn worst(report: &Report, contender: Contender, metric: Metric) -> f64 {
    let standing = report.rounds.first().and_then(|round| round.of(contender));
    standing.and_then(|standing| standing.spread(metric)).expect("it took part").worst
}

fn quiet(_progress: Progress) {}

#[test]
fn critical_requests_are_served_at_ten_times_capacity() {
    let report = run(&small(&[Contender::Tidegate, Contender::Unprotected]), &quiet);
    assert!(worst(&report, Contender::Tidegate, Metric::CriticalSteady) >= 0.995);
    assert!(worst(&report, Contender::Tidegate, Metric::CriticalOnset) >= 0.97);
    assert!(worst(&report, Contender::Tidegate, Metric::Goodput) >= 0.88);
    assert!(worst(&report, Contender::Tidegate, Metric::P99Ratio) <= 1.5);
    assert!(median(&report, Contender::Unprotected, Metric::CriticalSteady) < 0.05);
}

#[test]
fn the_same_seeds_give_the_same_report_with_any_number_of_threads() {
    let options = Options { workers: 4, overload_seconds: 10, seeds: 1, ..small(&Contender::ALL) };
    let once = run(&options, &quiet);
    let again = run(&Options { threads: 3, ..options.clone() }, &quiet);
    assert_eq!(once.rounds, again.rounds);
    let other = run(&Options { first_seed: 77, ..options }, &quiet);
    assert_ne!(once.rounds, other.rounds);
}
