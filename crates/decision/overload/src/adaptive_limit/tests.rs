use proptest::prelude::*;

use super::*;

/// A server that does `workers` at once, 20 ms each; more in flight only wait.
struct Server {
    search: AdaptiveLimit,
    workers: f64,
    now: Timestamp,
}

impl Server {
    fn new(limit: u64, workers: f64) -> Self {
        let search = AdaptiveLimit::new(AdaptiveSettings::new(200), limit);
        Server { search, workers, now: Timestamp::from_secs(1_000) }
    }

    /// A second with this demand, in requests at once.
    fn second(&mut self, demand: f64) -> u64 {
        let limit = self.search.limit() as f64;
        let in_flight = demand.min(limit);
        let done = in_flight.min(self.workers) * 50.0;
        let seconds = 0.02 * (in_flight / self.workers).max(1.0);
        self.now = self.now.after(Nanos::from_secs(1));
        let seen = WindowSample {
            p90: Nanos::new(whole(seconds * 1e9)),
            successes: whole(done),
            length: Nanos::from_secs(1),
            in_flight,
            in_flight_max: whole((in_flight * 1.1).min(limit)),
            queue_wait: Nanos::ZERO,
        };
        self.search.step(self.now, &seen)
    }

    /// Demand that comes and goes, so that there is something to compare.
    fn varied(&mut self, low: f64, high: f64, seconds: u32) -> u64 {
        (0..seconds).fold(0, |_, second| {
            let wave = f64::from(second % 10) / 9.0;
            self.second(low + (high - low) * wave)
        })
    }
}

#[test]
fn a_limit_that_is_too_high_falls_to_what_the_server_can_do() {
    let mut server = Server::new(150, 64.0);
    server.varied(10.0, 60.0, 60);
    let limit = (0..600).fold(0, |_, _| server.second(500.0));
    assert!((64..100).contains(&limit), "{limit}");
}

#[test]
fn a_limit_that_is_too_low_rises_while_more_in_flight_brings_more() {
    let mut server = Server::new(20, 64.0);
    let limit = server.varied(5.0, 60.0, 600);
    assert!(limit > 50, "{limit}");
}

#[test]
fn a_plateau_never_raises_the_limit() {
    let mut server = Server::new(64, 64.0);
    server.varied(10.0, 30.0, 60);
    let before = server.search.limit();
    let after = (0..3_600).fold(0, |_, _| server.second(77.0));
    assert!(after <= before, "{before} to {after}");
}

#[test]
fn a_long_overload_does_not_become_the_baseline() {
    let mut server = Server::new(150, 64.0);
    server.varied(10.0, 60.0, 30);
    (0..600).for_each(|_| _ = server.second(500.0));
    assert!(server.search.baseline() < Some(Nanos::from_millis(21)));
}

#[test]
fn lost_capacity_brings_the_limit_down_in_large_steps() {
    let mut server = Server::new(100, 100.0);
    server.varied(10.0, 100.0, 60);
    let before = server.search.limit();
    server.workers = 10.0;
    (0..COMPARED).for_each(|_| _ = server.second(500.0));
    let limit = (0..30).fold(0, |_, _| server.second(500.0));
    assert!(limit < before / 3, "{before} to {limit}");
}

#[test]
fn a_limit_that_is_not_reached_stays() {
    let mut server = Server::new(100, 64.0);
    assert_eq!(server.varied(5.0, 40.0, 300), 100);
}

#[test]
fn windows_with_few_successes_say_nothing() {
    let mut server = Server::new(30, 64.0);
    let seen = WindowSample {
        p90: Nanos::from_secs(9),
        successes: 9,
        in_flight_max: 30,
        ..WindowSample::default()
    };
    for _ in 0..100 {
        server.now = server.now.after(Nanos::from_secs(1));
        assert_eq!(server.search.step(server.now, &seen), 30);
    }
}

proptest! {
    #[test]
    fn the_limit_stays_between_its_bounds_whatever_is_seen(
        windows in prop::collection::vec(
            (any::<u64>(), any::<u64>(), any::<u64>(), any::<f64>(), any::<u64>()), 1..200,
        ),
    ) {
        let settings = AdaptiveSettings { min: 4, ..AdaptiveSettings::new(90) };
        let mut search = AdaptiveLimit::new(settings, 1_000);
        prop_assert_eq!(search.limit(), 90);
        let mut now = Timestamp::from_secs(1);
        for (p90, successes, length, in_flight, in_flight_max) in windows {
            now = now.after(Nanos::from_secs(1));
            let (p90, length) = (Nanos::new(p90), Nanos::new(length));
            let seen =
                WindowSample { p90, successes, length, in_flight, in_flight_max, queue_wait: p90 };
            prop_assert!((4..=90).contains(&search.step(now, &seen)));
        }
    }
}
