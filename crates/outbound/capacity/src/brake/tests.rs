use super::*;

fn seconds(count: u64) -> Timestamp {
    Timestamp::from_secs(1_000 + count)
}

/// Plays seconds in which the target accepts `capacity` of at most 500 requests; returns how many were throttled.
fn play(brake: &mut Brake, from: u64, to: u64, capacity: u32) -> u32 {
    let mut refused = 0;
    for second in from..to {
        let sent = 500 * u64::from(brake.level_ppm(seconds(second))) / u64::from(Pace::WHOLE);
        for request in 0..sent {
            let fits = request < u64::from(capacity);
            let answer = if fits {
                TargetAnswer::Accepted
            } else {
                TargetAnswer::Throttled { retry_after: None }
            };
            refused += u32::from(!fits);
            let _ = brake.record(answer, seconds(second));
        }
        brake.tick(500.0, true, seconds(second + 1));
    }
    refused
}

#[test]
fn a_rival_that_takes_two_fifths_costs_few_refusals_and_the_rate_returns_after_it() {
    let mut brake = Brake::new(Brake::HOLD_MAX_DEFAULT);
    assert_eq!(play(&mut brake, 0, 10, 500), 0);
    let refused = play(&mut brake, 10, 70, 300);
    assert!(refused < 60 * 300 / 50, "{refused} refused in sixty seconds");
    let used = brake.level_ppm(seconds(70));
    assert!((500_000..=600_000).contains(&used), "{used}");
    play(&mut brake, 70, 100, 500);
    assert!(brake.level_ppm(seconds(100)) >= 950_000);
}

#[test]
fn a_few_throttled_answers_among_few_change_nothing() {
    let mut brake = Brake::new(Brake::HOLD_MAX_DEFAULT);
    for _ in 0..10 {
        let _ = brake.record(TargetAnswer::Throttled { retry_after: None }, seconds(0));
    }
    brake.tick(500.0, true, seconds(1));
    assert_eq!(brake.own_level_ppm(), Pace::WHOLE);
}

#[test]
fn a_time_to_wait_closes_the_target_and_opens_it_slowly() {
    let mut brake = Brake::new(Nanos::from_secs(60));
    let wait = Some(Nanos::from_secs(30));
    let hold = brake.record(TargetAnswer::Throttled { retry_after: wait }, seconds(0));
    assert_eq!(hold, wait);
    assert_eq!(brake.level_ppm(seconds(29)), 0);
    assert_eq!(brake.closed_until(seconds(29)), Some(seconds(30)));
    assert_eq!(brake.level_ppm(seconds(30)), 100_000);
    assert!(brake.level_ppm(seconds(32)) < 500_000);
    assert_eq!(brake.level_ppm(seconds(35)), Pace::WHOLE);
}

#[test]
fn a_hold_is_never_longer_than_its_maximum_and_never_shortens_one() {
    let mut brake = Brake::new(Nanos::from_secs(60));
    assert_eq!(brake.hold(Nanos::from_secs(1_800), seconds(0)), Some(Nanos::from_secs(60)));
    assert_eq!(brake.hold(Nanos::from_secs(10), seconds(0)), None);
    assert_eq!(brake.closed_until(seconds(0)), Some(seconds(60)));
}

#[test]
fn a_member_that_does_not_probe_follows_the_shared_level_but_keeps_a_fall_of_its_own() {
    let mut brake = Brake::new(Brake::HOLD_MAX_DEFAULT);
    brake.follow(600_000, Pace::WHOLE);
    assert_eq!(brake.own_level_ppm(), 600_000);
    for request in 0..100 {
        let answer = if request < 50 {
            TargetAnswer::Accepted
        } else {
            TargetAnswer::Throttled { retry_after: None }
        };
        let _ = brake.record(answer, seconds(0));
    }
    brake.tick(100.0, false, seconds(1));
    let fallen = brake.own_level_ppm();
    assert!(fallen < 600_000);
    brake.follow(600_000, 600_000);
    assert_eq!(brake.own_level_ppm(), fallen);
}
