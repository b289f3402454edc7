//! The Vegas law: keep a short queue, judged by the shortest round trip.

use super::Law;
use crate::chance::Chance;
use crate::overload::draw::unit;

/// Defaults of `VegasLimit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct VegasSettings {
    pub(crate) initial: f64,
    pub(crate) max: f64,
    /// The queue below which the limit grows, in units of log10(limit).
    pub(crate) alpha: f64,
    /// The queue above which it shrinks, in the same unit.
    pub(crate) beta: f64,
}

impl Default for VegasSettings {
    fn default() -> Self {
        VegasSettings { initial: 20.0, max: 1_000.0, alpha: 3.0, beta: 6.0 }
    }
}

/// The shortest round trip is replaced after so many samples, times the limit.
const PROBE: f64 = 30.0;

#[derive(Clone, Debug)]
pub(crate) struct Vegas {
    settings: VegasSettings,
    limit: f64,
    shortest: f64,
    samples: f64,
    jitter: f64,
    chance: Chance,
}

impl Vegas {
    pub(crate) fn new(settings: VegasSettings, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let jitter = 0.5 + unit(&mut chance) / 2.0;
        Vegas { settings, limit: settings.initial, shortest: 0.0, samples: 0.0, jitter, chance }
    }

    fn next(&self, rtt: f64, in_flight: u32, dropped: bool) -> f64 {
        let limit = self.limit;
        let step = limit.log10().floor().max(1.0);
        let queue = (limit * (1.0 - self.shortest / rtt)).ceil();
        if dropped {
            limit - step
        } else if f64::from(in_flight) * 2.0 < limit {
            limit
        } else if queue <= step {
            limit + self.settings.beta * step
        } else if queue < self.settings.alpha * step {
            limit + step
        } else if queue > self.settings.beta * step {
            limit - step
        } else {
            limit
        }
    }
}

impl Law for Vegas {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn update(&mut self, rtt: f64, in_flight: u32, dropped: bool) {
        self.samples += 1.0;
        if self.jitter * PROBE * self.limit <= self.samples {
            self.jitter = 0.5 + unit(&mut self.chance) / 2.0;
            self.samples = 0.0;
            self.shortest = rtt;
        } else if self.shortest == 0.0 || rtt < self.shortest {
            self.shortest = rtt;
        } else {
            self.limit = self.next(rtt, in_flight, dropped).clamp(1.0, self.settings.max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vegas() -> Vegas {
        let mut vegas = Vegas::new(VegasSettings::default(), 1);
        vegas.update(10.0, 20, false);
        vegas
    }

    #[test]
    fn grows_fast_while_nothing_queues_and_shrinks_when_much_does() {
        let mut vegas = vegas();
        vegas.update(10.0, 20, false);
        assert_eq!(vegas.limit(), 26.0);
        vegas.update(14.0, 26, false);
        assert_eq!(vegas.limit(), 25.0);
        vegas.update(12.0, 25, false);
        assert_eq!(vegas.limit(), 25.0, "between the two it stays");
    }

    #[test]
    fn does_not_grow_beyond_what_is_used_and_shrinks_on_a_drop() {
        let mut vegas = vegas();
        vegas.update(10.0, 9, false);
        assert_eq!(vegas.limit(), 20.0);
        vegas.update(10.0, 9, true);
        assert_eq!(vegas.limit(), 19.0);
    }
}
