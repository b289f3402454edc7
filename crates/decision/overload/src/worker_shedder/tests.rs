use super::*;
use crate::category::{Category, Cohort};

const TICK: Nanos = Nanos::from_millis(250);

/// A shedder in front of a server that answers its load at once.
struct Bench {
    shedder: WorkerShedder,
    now: Timestamp,
    /// Whether the gate counts the requests that enter; without them demand is unknown.
    counts_entered: bool,
    /// The part of a request that is not offered yet.
    due: f64,
}

impl Bench {
    fn new() -> Self {
        let shedder = WorkerShedder::new(WorkerSettings::default());
        Bench { shedder, now: Timestamp::from_secs(1_000), counts_entered: true, due: 0.0 }
    }

    /// Offers the same of every level, `times` what the server can do, for so many ticks.
    fn run(&mut self, times: f64, acting: CallerMode, ticks: u32) -> WorkerView {
        self.tick(1.0, times, acting, ticks)
    }

    /// Offers a fraction of what makes `times` the capacity, spread evenly over the levels.
    fn offer_fraction(&mut self, fraction: f64, times: f64, ticks: u32) -> WorkerView {
        self.tick(fraction, times, CallerMode::Enforce, ticks)
    }

    fn tick(&mut self, fraction: f64, times: f64, acting: CallerMode, ticks: u32) -> WorkerView {
        let mut view = self.shedder.view();
        for _ in 0..ticks {
            let mut admitted = 0;
            for level in levels() {
                self.due += fraction;
                if self.due < 1.0 {
                    continue;
                }
                self.due -= 1.0;
                let sequence = self.shedder.offer(level);
                let judged = self.shedder.judge(level, sequence);
                admitted += u32::from(judged || acting == CallerMode::Shadow);
            }
            let load = times * f64::from(admitted) / 512.0;
            let entered = if self.counts_entered { u64::from(admitted) } else { 0 };
            let signals =
                Signals { in_flight: load * 64.0, entered, limit: 64, ..Signals::default() };
            self.now = self.now.after(TICK);
            view = self.shedder.tick(self.now, &signals, acting);
        }
        view
    }
}

fn levels() -> impl Iterator<Item = Level> {
    Category::ALL.into_iter().flat_map(|category| {
        (0..128).map(move |cohort| Level::new(category, Cohort::numbered(cohort)))
    })
}

#[test]
fn a_healthy_process_sheds_no_request() {
    let mut bench = Bench::new();
    let view = bench.run(0.95, CallerMode::Enforce, 4 * 300);
    assert_eq!((view.admitted, view.shed_level), (1.0, 0));
}

#[test]
fn overload_sheds_the_lowest_levels_until_the_load_fits() {
    let mut bench = Bench::new();
    let view = bench.run(2.0, CallerMode::Enforce, 4 * 60);
    let load = 2.0 * view.admitted;
    assert!((0.95..=1.2).contains(&load), "{view:?}");
    assert!(view.shed_level > 128 && view.shed_level < 384);
    assert!(!bench.shedder.judge(Level::new(Category::Test, Cohort::numbered(127)), 1));
    assert!(bench.shedder.judge(Level::new(Category::Critical, Cohort::numbered(0)), 1));
}

#[test]
fn critical_requests_are_kept_however_deep_the_overload_is() {
    let mut bench = Bench::new();
    let view = bench.run(20.0, CallerMode::Enforce, 4 * 300);
    assert!(view.shed_level <= 384);
    assert!((view.admitted - 0.25).abs() < 0.01, "the share of critical traffic: {view:?}");
    assert!(levels().skip(384).all(|level| bench.shedder.judge(level, 9)));
}

/// How many of a category's levels are admitted.
fn admitted_of(bench: &Bench, category: Category) -> usize {
    let own = levels().filter(|level| level.category() == category);
    own.filter(|level| bench.shedder.judge(*level, 9)).count()
}

#[test]
fn four_categories_are_shed_in_order_and_restored_in_the_opposite_one() {
    let mut bench = Bench::new();
    let (mut shed, mut restored) = (Vec::new(), Vec::new());
    let order = [Category::Test, Category::Get, Category::Post, Category::Critical];
    // The load rises to twenty times the capacity, and falls again.
    for step in 0..4 * 240 {
        bench.run(1.0 + f64::from(step) / 50.0, CallerMode::Enforce, 1);
        for category in order {
            if admitted_of(&bench, category) == 0 && !shed.contains(&category) {
                shed.push(category);
            }
        }
    }
    assert_eq!(shed, order[..3], "critical requests are kept");
    for step in 0..4 * 240 {
        bench.offer_fraction(1.0 - f64::from(step) / 960.0, 20.0, 1);
        for category in shed.iter().rev() {
            if admitted_of(&bench, *category) == 128 && !restored.contains(category) {
                restored.push(*category);
            }
        }
    }
    assert_eq!(restored, [Category::Post, Category::Get, Category::Test]);
}

#[test]
fn everything_is_admitted_within_ten_seconds_after_an_overload_and_stays_admitted() {
    for load in [0.9, 0.5, 0.1, 0.01] {
        let mut bench = Bench::new();
        let shed = bench.run(2.0, CallerMode::Enforce, 4 * 120);
        assert!(shed.admitted < 0.6, "{shed:?}");
        bench.offer_fraction(load / 2.0, 2.0, 4 * 10);
        for _ in 0..4 * 60 {
            let view = bench.offer_fraction(load / 2.0, 2.0, 1);
            assert_eq!((view.admitted, view.shed_level), (1.0, 0), "down to {load}: {view:?}");
        }
    }
}

#[test]
fn a_load_that_still_exceeds_capacity_is_not_admitted_as_a_whole() {
    let mut bench = Bench::new();
    bench.run(10.0, CallerMode::Enforce, 4 * 120);
    for _ in 0..4 * 60 {
        let view = bench.offer_fraction(0.2, 10.0, 1);
        assert!(view.admitted * 2.0 < 1.3, "{view:?}");
    }
}

#[test]
fn everything_is_admitted_when_requests_stop_coming() {
    let mut bench = Bench::new();
    bench.run(2.0, CallerMode::Enforce, 4 * 60);
    assert_eq!(bench.offer_fraction(0.0, 2.0, 4 * 10).admitted, 1.0);
}

#[test]
fn too_few_arrivals_hold_the_level_while_demand_is_unknown() {
    let mut bench = Bench { counts_entered: false, ..Bench::new() };
    let shed = bench.run(2.0, CallerMode::Enforce, 4 * 60).admitted;
    for _ in 0..400 {
        bench.now = bench.now.after(TICK);
        let view = bench.shedder.tick(bench.now, &Signals::default(), CallerMode::Enforce);
        assert_eq!(view.admitted, shed);
    }
}

#[test]
fn a_watching_shedder_finds_the_level_that_an_enforcing_one_would() {
    let mut enforcing = Bench::new();
    let enforced = enforcing.run(3.0, CallerMode::Enforce, 4 * 120);
    let mut watching = Bench::new();
    levels().for_each(|level| watching.shedder.begin(level));
    // Everything runs, so the measured load stays at its stop.
    let watched = watching.run(3.0, CallerMode::Shadow, 4 * 120);
    assert_eq!(watched.utilization, 1.5);
    assert!(watched.predicted_utilization < 1.2, "{watched:?}");
    assert!((watched.admitted - enforced.admitted).abs() < 0.02, "{watched:?} {enforced:?}");
}

#[test]
fn ending_what_never_began_counts_nothing() {
    let bench = Bench::new();
    let level = Level::new(Category::Get, Cohort::numbered(0));
    bench.shedder.end(level);
    bench.shedder.begin(level);
    assert_eq!(bench.shedder.present[level.index()].load(Ordering::Relaxed), 1);
}

#[test]
fn a_reset_admits_everything_and_overload_has_to_last_anew() {
    let mut bench = Bench::new();
    bench.run(10.0, CallerMode::Enforce, 4 * 60);
    bench.shedder.reset();
    assert!(levels().all(|level| bench.shedder.judge(level, 3)));
    assert_eq!(bench.run(10.0, CallerMode::Enforce, 8).admitted, 1.0, "the hold is armed");
    assert!(bench.run(10.0, CallerMode::Enforce, 20).admitted < 1.0);
}

#[test]
fn the_same_traffic_is_judged_the_same_again() {
    let run = || {
        let mut bench = Bench::new();
        let view = bench.run(3.7, CallerMode::Enforce, 500);
        (view, bench.shedder.threshold())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_late_tick_is_told() {
    let mut bench = Bench::new();
    bench.run(0.5, CallerMode::Enforce, 1);
    bench.now = bench.now.after(Nanos::from_millis(400));
    let view = bench.shedder.tick(bench.now, &Signals::default(), CallerMode::Enforce);
    assert_eq!(view.tick_lag, Nanos::from_millis(150));
}

#[test]
fn a_process_recovers_for_a_minute_after_an_overload_and_not_before_one() {
    let mut bench = Bench::new();
    let enforce = CallerMode::Enforce;
    assert!(!bench.run(0.5, enforce, 4 * 60).recovers, "there was no overload");
    assert!(!bench.run(3.0, enforce, 4 * 60).recovers);
    // A sixth of the requests: half of the capacity.
    let view = bench.offer_fraction(1.0 / 6.0, 3.0, 4 * 5);
    assert!(view.recovers && view.admitted >= 1.0, "{view:?}");
    assert!(!bench.offer_fraction(1.0 / 6.0, 3.0, 4 * 61).recovers);
}
