//! The Gradient2 law: the long-term round trip over the short-term one scales the limit.

use super::Law;

/// Defaults of `Gradient2Limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gradient2Settings {
    pub(crate) initial: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// How many times the long-term round trip is tolerated.
    pub(crate) tolerance: f64,
    /// Requests in flight above the scaled limit.
    pub(crate) queue: f64,
    pub(crate) smoothing: f64,
}

impl Default for Gradient2Settings {
    fn default() -> Self {
        Gradient2Settings {
            initial: 20.0,
            min: 20.0,
            max: 200.0,
            tolerance: 1.5,
            queue: 4.0,
            smoothing: 0.2,
        }
    }
}

/// `ExpAvgMeasurement(600, 10)`: the window of the long-term average, and its warm-up.
const LONG_WINDOW: f64 = 600.0;
const WARM_UP: u32 = 10;
/// The long-term average falls by this once it is twice the short-term one.
const DRIFT: f64 = 0.95;

#[derive(Clone, Debug)]
pub(crate) struct Gradient2 {
    settings: Gradient2Settings,
    limit: f64,
    long: f64,
    warmed: u32,
    sum: f64,
}

impl Gradient2 {
    pub(crate) const fn new(settings: Gradient2Settings) -> Self {
        Gradient2 { settings, limit: settings.initial, long: 0.0, warmed: 0, sum: 0.0 }
    }

    fn remember(&mut self, rtt: f64) {
        if self.warmed < WARM_UP {
            self.warmed += 1;
            self.sum += rtt;
            self.long = self.sum / f64::from(self.warmed);
        } else {
            let factor = 2.0 / (LONG_WINDOW + 1.0);
            self.long = self.long * (1.0 - factor) + rtt * factor;
        }
    }
}

impl Law for Gradient2 {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn update(&mut self, rtt: f64, in_flight: u32, _dropped: bool) {
        self.remember(rtt);
        let long = self.long;
        if long / rtt > 2.0 {
            self.long *= DRIFT;
        }
        if f64::from(in_flight) < self.limit / 2.0 {
            return;
        }
        let Gradient2Settings { min, max, tolerance, queue, smoothing, .. } = self.settings;
        let gradient = (tolerance * long / rtt).clamp(0.5, 1.0);
        let scaled = self.limit * gradient + queue;
        self.limit = (self.limit * (1.0 - smoothing) + scaled * smoothing).clamp(min, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_its_queue_while_round_trips_stay_as_they_were() {
        let mut law = Gradient2::new(Gradient2Settings::default());
        law.update(10.0, 20, false);
        assert!((law.limit() - 20.8).abs() < 1e-9, "{}", law.limit());
    }

    #[test]
    fn shrinks_when_they_get_longer_and_never_below_its_least() {
        let mut law = Gradient2::new(Gradient2Settings { initial: 100.0, ..Default::default() });
        for _ in 0..10 {
            law.update(10.0, 100, false);
        }
        let before = law.limit();
        law.update(100.0, 100, false);
        assert!(law.limit() < before);
        for _ in 0..100 {
            law.update(1_000.0, 200, false);
        }
        assert_eq!(law.limit(), 20.0);
    }

    #[test]
    fn a_long_overload_becomes_its_measure_of_what_is_usual() {
        let mut law = Gradient2::new(Gradient2Settings { initial: 64.0, ..Default::default() });
        for _ in 0..10 {
            law.update(20.0, 64, false);
        }
        // Round trips grow with the limit, as on 64 workers that are all busy.
        for _ in 0..900 {
            let rtt = 20.0 * (law.limit() / 64.0).max(1.0);
            law.update(rtt, 200, false);
        }
        assert!(law.limit() > 110.0, "the limit climbs: {}", law.limit());
    }
}
