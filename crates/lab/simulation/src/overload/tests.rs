use super::*;

/// Small enough for a test: a quarter of the workers, a minute of overload.
fn small(contenders: &[Contender]) -> Options {
    Options {
        workers: 16,
        overload_seconds: 60,
        contenders: contenders.to_vec(),
        seeds: 2,
        ..Options::default()
    }
}

/// Everybody, on four workers for ten seconds.
fn tiny() -> Options {
    Options { workers: 4, overload_seconds: 10, seeds: 1, ..small(&Contender::ALL) }
}

const OURS: [Contender; 2] = [Contender::Tidegate, Contender::GateOnly];

fn standing(report: &Report, contender: Contender) -> &ContenderResult {
    report.rounds.first().and_then(|round| round.of(contender)).expect("it took part")
}

fn worst(report: &Report, metric: Metric) -> f64 {
    standing(report, Contender::Tidegate).spread(metric).expect("it means something").worst
}

fn quiet(_progress: Progress) {}

#[test]
fn critical_requests_are_served_at_ten_times_capacity() {
    let report = run(&small(&[Contender::Tidegate, Contender::Unprotected]), &quiet);
    assert!(worst(&report, Metric::CriticalSteady) >= 0.995);
    assert!(worst(&report, Metric::CriticalOnset) >= 0.97);
    assert!(worst(&report, Metric::Goodput) >= 0.91);
    assert!(worst(&report, Metric::P99Ratio) <= 1.5);
    assert!(worst(&report, Metric::Reversals) <= 1.0);
    assert!(worst(&report, Metric::RestoredAfter) <= 10.0);
    let unprotected = standing(&report, Contender::Unprotected);
    let critical = unprotected.spread(Metric::CriticalSteady).expect("critical ones came");
    assert!(critical.median < 0.05, "it collapses without protection");
}

#[test]
fn everything_is_admitted_within_ten_seconds_after_each_step_down_and_nothing_is_shed_again() {
    for after in [0.9, 0.5, 0.1] {
        let options =
            Options { workers: 32, overload_seconds: 30, seeds: 1, after, ..small(&OURS) };
        let report = run(&options, &quiet);
        let seconds = &standing(&report, Contender::Tidegate).seconds;
        let end = 60 + 30;
        assert!(!seconds[end - 1].is_open(), "the shedder sheds in the overload");
        assert!(seconds[end + 10..].iter().all(Second::is_open), "down to {after}");
        assert_eq!(worst(&report, Metric::ShedAgain), 0.0, "down to {after}");
        assert!(worst(&report, Metric::ServedOfGate) >= 0.999, "down to {after}");
    }
}

#[test]
fn every_category_is_served_within_ten_seconds_after_a_step_down_to_nine_tenths_with_each_seed() {
    let options = Options {
        workers: 64,
        overload_seconds: 30,
        seeds: 3,
        after: 0.9,
        ..small(&[Contender::Tidegate])
    };
    let report = run(&options, &quiet);
    assert!(worst(&report, Metric::RestoredAfter) <= 10.0);
    assert_eq!(worst(&report, Metric::ShedAgain), 0.0);
}

#[test]
fn critical_requests_are_never_refused_while_others_are_admitted() {
    let options =
        Options { workers: 64, overload_seconds: 15, seeds: 1, ..small(&[Contender::Tidegate]) };
    let report = run(&options, &quiet);
    assert_eq!(worst(&report, Metric::Inversion), 0.0);
    assert_eq!(worst(&report, Metric::RefusedCritical), 0.0);
}

#[test]
fn a_seed_replays_bit_for_bit_with_any_number_of_threads() {
    let once = run(&tiny(), &quiet);
    let again = run(&Options { threads: 3, ..tiny() }, &quiet);
    assert_eq!(once.rounds, again.rounds);
    assert_eq!(once.render(Format::Json), again.render(Format::Json));
    let other = run(&Options { first_seed: 77, ..tiny() }, &quiet);
    assert_ne!(once.rounds, other.rounds);
}

#[test]
fn every_request_is_admitted_or_refused_or_still_waits() {
    let report = run(&tiny(), &quiet);
    for contender in Contender::ALL {
        let mut left = [0_i64; 2];
        for second in &standing(&report, contender).seconds {
            let sum = |counts: [u32; 4]| counts.iter().map(|count| i64::from(*count)).sum::<i64>();
            left[0] += sum(second.offered) - sum(second.admitted) - sum(second.refused);
            left[1] += sum(second.admitted) - sum(second.good) - sum(second.late);
            assert!(left.iter().all(|left| *left >= 0), "{contender:?}");
        }
        // At half of capacity little waits, and no more is served than there are places.
        assert!(left[0] <= 4 && left[1] <= 70_000, "{contender:?}: {left:?}");
    }
}

#[test]
fn a_report_is_told_as_text_as_markdown_and_in_charts() {
    let options = Options { contenders: vec![Contender::Tidegate, Contender::Stripe], ..tiny() };
    let report = run(&options, &quiet);
    assert!(report.render(Format::Text).contains("S1 step, capacity 200 requests/s"));
    assert!(report.render(Format::Markdown).contains("| tidegate | "));
    let round = report.round(Scenario::Step).expect("it was played");
    for chart in Chart::ALL {
        let svg = chart.draw(round);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<g class=\"data\">").count(), 2, "a panel for each");
        assert_eq!(svg.matches("<path class=\"reference\"").count(), 3, "ours, and the legend");
        assert_eq!(svg.matches("<rect class=\"overload\"").count(), 2, "each shades the overload");
        assert!(svg.contains("Sheds low categories at a threshold"), "a sentence about ours");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}

#[test]
fn nonsense_is_taken_for_the_nearest_that_makes_sense() {
    let options = Options {
        factor: f64::NAN,
        workers: 0,
        seeds: 0,
        overload_seconds: 0,
        threads: 0,
        contenders: vec![Contender::Static],
        ..Options::default()
    };
    let report = run(&options, &quiet);
    assert_eq!(standing(&report, Contender::Static).seeds.len(), 1);
}
