use super::*;

fn units_limit(amount: u64) -> TargetLimits {
    TargetLimits::new(vec![TargetLimit::per_second(Dimension::Units, amount)]).unwrap()
}

fn steady(seconds: usize, done: u64) -> RateHistory {
    let mut history = RateHistory::default();
    for _ in 0..seconds {
        history.push(SecondCounts {
            attempts: done,
            finished: done,
            done,
            arrived: 0,
            granted: 0.0,
        });
    }
    history
}

fn input(history: &RateHistory) -> ForecastInput<'_> {
    ForecastInput {
        left: Cost { operations: 10_000, bytes: 0, units: 100_000 },
        granted: Cost { operations: u64::MAX, bytes: u64::MAX, units: 19_600_000 },
        history,
        brake_ppm: 1_000_000,
        in_flight: 0,
        latency: Duration::from_millis(20),
        cause: BindingCause::Limit,
        stalled_for: None,
    }
}

#[test]
fn the_texts_import_is_planned_in_five_seconds() {
    let limits = units_limit(20_000);
    let plan = plan(&PlanInput {
        limits: &limits,
        utilisation_ppm: 980_000,
        records: 10_000,
        cost: Cost::units(10),
        in_flight_max: 256,
        latency: Duration::ZERO,
    });
    assert_eq!((plan.sends, plan.binding), (10_000, Some(limits.limits()[0])));
    assert!((plan.duration.as_secs_f64() - 5.102).abs() < 0.001, "{plan:?}");
}

#[test]
fn the_tightest_of_three_limits_binds_a_plan() {
    let limits = TargetLimits::new(vec![
        TargetLimit::per_second(Dimension::Operations, 20),
        TargetLimit::per_minute(Dimension::Bytes, 2 << 30),
        TargetLimit::per_second(Dimension::Units, 20_000),
    ])
    .unwrap();
    let bound_by = |cost: Cost| {
        let latency = Duration::ZERO;
        let input = PlanInput {
            limits: &limits,
            utilisation_ppm: 1_000_000,
            records: 100,
            cost,
            in_flight_max: 100,
            latency,
        };
        plan(&input).binding.unwrap().dimension
    };
    assert_eq!(bound_by(Cost { operations: 1, bytes: 10, units: 10 }), Dimension::Operations);
    assert_eq!(bound_by(Cost { operations: 1, bytes: 10 << 20, units: 10 }), Dimension::Bytes);
    assert_eq!(bound_by(Cost { operations: 1, bytes: 10, units: 5_000 }), Dimension::Units);
}

#[test]
fn a_slow_target_is_bound_by_requests_in_flight() {
    let limits = units_limit(20_000);
    let plan = plan(&PlanInput {
        limits: &limits,
        utilisation_ppm: 1_000_000,
        records: 100,
        cost: Cost::units(1),
        in_flight_max: 10,
        latency: Duration::from_secs(1),
    });
    assert_eq!(plan.binding, None);
    assert_eq!(plan.duration, Duration::from_secs(11));
}

#[test]
fn a_forecast_without_history_uses_the_granted_rate() {
    let history = RateHistory::default();
    let Outlook::Clears { expected, low, high } = forecast(&input(&history)) else {
        panic!("it clears");
    };
    assert!((expected.as_secs_f64() - 5.122).abs() < 0.001, "{expected:?}");
    assert!(low < expected && expected < high);
}

#[test]
fn a_steady_history_narrows_the_interval() {
    let history = steady(30, 1_960);
    let Outlook::Clears { expected, low, high } = forecast(&input(&history)) else {
        panic!("it clears");
    };
    assert!((expected.as_secs_f64() - 5.122).abs() < 0.05, "{expected:?}");
    let width = (high - low).as_secs_f64() / expected.as_secs_f64();
    assert!(width <= 0.041, "{width}");
}

#[test]
fn retries_lengthen_the_forecast() {
    let mut history = RateHistory::default();
    history.push(SecondCounts {
        attempts: 210,
        finished: 200,
        done: 100,
        arrived: 0,
        granted: 0.0,
    });
    let expected = forecast(&input(&history)).expected().unwrap();
    assert!((expected.as_secs_f64() - 10.224).abs() < 0.01, "{expected:?}");
}

#[test]
fn a_queue_that_gets_more_than_it_sends_grows() {
    let mut history = RateHistory::default();
    for _ in 0..10 {
        history.push(SecondCounts {
            attempts: 100,
            finished: 100,
            done: 100,
            arrived: 150,
            granted: 0.0,
        });
    }
    assert_eq!(forecast(&input(&history)), Outlook::Growing);
}

#[test]
fn a_single_import_does_not_count_as_growth() {
    let mut history = steady(4, 100);
    history.push(SecondCounts {
        attempts: 100,
        finished: 100,
        done: 100,
        arrived: 10_000,
        granted: 0.0,
    });
    assert!(matches!(forecast(&input(&history)), Outlook::Clears { .. }));
}

#[test]
fn a_closed_target_stalls_until_it_opens() {
    let history = steady(10, 100);
    let until = Some(Duration::from_secs(30));
    let held = ForecastInput { cause: BindingCause::Hold, stalled_for: until, ..input(&history) };
    assert_eq!(forecast(&held), Outlook::Stalled { until });
    let none = Cost { operations: 0, bytes: 0, units: 0 };
    let no_share = ForecastInput { granted: none, ..input(&history) };
    assert_eq!(forecast(&no_share), Outlook::Stalled { until: None });
    assert_eq!(forecast(&ForecastInput { left: none, ..held }), Outlook::Done);
    let text = forecast(&held).view(BindingCause::Hold).summary;
    assert_eq!(text, "stalled (hold) for another 30.0 s");
}

/// Seconds in which this many of the granted records were sent.
fn used(seconds: usize, attempts: u64, granted: f64) -> RateHistory {
    let mut history = RateHistory::default();
    for _ in 0..seconds {
        let counts =
            SecondCounts { attempts, finished: attempts, done: attempts, arrived: 0, granted };
        history.push(counts);
    }
    history
}

#[test]
fn a_machine_that_is_too_slow_for_its_share_lengthens_the_forecast_after_a_second() {
    let history = used(1, 980, 1_960.0);
    let expected = forecast(&input(&history)).expected().unwrap().as_secs_f64();
    assert!((10.0..10.3).contains(&expected), "{expected}");
}

#[test]
fn a_changed_share_shows_at_once() {
    // Twenty seconds at half of the slots, all of it used; now all slots are granted.
    let history = used(20, 980, 980.0);
    let expected = forecast(&input(&history)).expected().unwrap().as_secs_f64();
    assert!((expected - 5.122).abs() < 0.01, "{expected}");
}

#[test]
fn a_few_records_prove_little_about_the_rate() {
    let history = used(1, 0, 1.0);
    assert!(history.used_part() > 0.95, "{}", history.used_part());
}

#[test]
fn records_in_flight_need_only_their_answers() {
    let history = RateHistory::default();
    let all = ForecastInput { in_flight: 10_000, ..input(&history) };
    assert_eq!(forecast(&all).expected(), Some(Duration::from_millis(20)));
}

#[test]
fn the_interval_of_a_braked_target_reaches_to_the_time_without_the_brake() {
    let history = used(10, 980, 980.0);
    let granted = Cost { operations: u64::MAX, bytes: u64::MAX, units: 9_800_000 };
    let cause = BindingCause::Brake;
    let braked = ForecastInput { granted, cause, brake_ppm: 500_000, ..input(&history) };
    let Outlook::Clears { expected, low, high } = forecast(&braked) else { panic!("it clears") };
    assert!((expected.as_secs_f64() - 10.22).abs() < 0.02, "{expected:?}");
    assert!(low.as_secs_f64() < 5.2 && high > expected, "{low:?} to {high:?}");
}
