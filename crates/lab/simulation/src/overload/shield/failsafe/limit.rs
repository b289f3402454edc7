//! The limit of failsafe-go: steps by the ratio of round trips to their average, unless more
//! requests in flight no longer mean more throughput.

use std::collections::VecDeque;

use crate::overload::draw::whole;
use crate::time::SECOND;

/// The shortest window, and the samples it needs; `WithRecentWindow`.
const WINDOW: u64 = SECOND;
const WINDOW_MAX: u64 = 30 * SECOND;
const SAMPLES_MIN: usize = 50;
/// `WithRecentQuantile`.
const QUANTILE: f64 = 0.9;
/// Samples of the median filter and of the short average, and warm-up of the averages.
const SMOOTHED: f64 = 5.0;
const WARM_UP: u32 = 10;
/// `WithBaselineWindow`.
const BASELINE: f64 = 10.0;
/// `WithCorrelationWindow`.
const CORRELATED: usize = 50;
/// `WithMaxLimitFactor`.
const ABOVE_USED_MAX: f64 = 5.0;

#[derive(Clone, Debug)]
pub(crate) struct AdaptiveLimit {
    limit: f64,
    max: f64,
    samples: Vec<u64>,
    in_flight_max: u32,
    update_at: u64,
    medians: VecDeque<f64>,
    recent: Average,
    baseline: Average,
    /// In flight, throughput, round trip of the last windows.
    windows: VecDeque<[f64; 3]>,
}

impl AdaptiveLimit {
    pub(crate) fn new(initial: f64, max: f64) -> Self {
        AdaptiveLimit {
            limit: initial,
            max,
            samples: Vec::new(),
            in_flight_max: 0,
            update_at: 0,
            medians: VecDeque::new(),
            recent: Average::over(SMOOTHED),
            baseline: Average::over(BASELINE),
            windows: VecDeque::new(),
        }
    }

    pub(crate) const fn get(&self) -> f64 {
        self.limit
    }

    /// Records a round trip and the requests in flight when it began.
    pub(crate) fn sample(&mut self, now: u64, took: u64, in_flight: u32, full: bool) {
        self.samples.push(took);
        self.in_flight_max = self.in_flight_max.max(in_flight);
        if now <= self.update_at || self.samples.len() < SAMPLES_MIN {
            return;
        }
        let shortest = self.samples.iter().copied().min().unwrap_or(0);
        let index = whole(QUANTILE * (self.samples.len() - 1) as f64);
        let index = usize::try_from(index).unwrap_or(0);
        let (_, high, _) = self.samples.select_nth_unstable(index);
        let rtt = *high as f64;
        let median = self.median(rtt);
        let rtt = self.recent.add(median);
        self.update(rtt, f64::from(self.in_flight_max), full);
        self.samples.clear();
        self.in_flight_max = 0;
        self.update_at = now + (shortest.saturating_mul(2)).clamp(WINDOW, WINDOW_MAX);
    }

    fn median(&mut self, rtt: f64) -> f64 {
        self.medians.push_back(rtt);
        if self.medians.len() > 5 {
            self.medians.pop_front();
        }
        let mut sorted: Vec<f64> = self.medians.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(rtt)
    }

    fn update(&mut self, rtt: f64, in_flight: f64, full: bool) {
        let baseline = self.baseline.add(rtt);
        let queue = (self.limit * (1.0 - baseline / rtt)).ceil();
        if self.windows.len() >= CORRELATED {
            self.windows.pop_front();
        }
        self.windows.push_back([in_flight, in_flight / rtt, rtt]);
        let step = self.limit.log10().floor().max(1.0);
        let mut next = if queue > 6.0 * step || (full && self.overdone()) {
            self.limit - step
        } else if queue < 3.0 * step {
            self.limit + step
        } else {
            self.limit
        };
        if next > in_flight * ABOVE_USED_MAX {
            next = self.limit - step;
        }
        self.limit = next.clamp(1.0, self.max);
    }

    /// Whether more requests in flight meant no more throughput.
    fn overdone(&self) -> bool {
        if self.windows.len() < WARM_UP as usize {
            return false;
        }
        let (throughput, variation) = self.correlation(1);
        let (rtt, _) = self.correlation(2);
        throughput < 0.0 || (rtt > 0.5 && (throughput < 0.3 || variation < 0.2))
    }

    /// The correlation of a column with the requests in flight, and its variation.
    fn correlation(&self, column: usize) -> (f64, f64) {
        let count = self.windows.len() as f64;
        let mean = |of: usize| self.windows.iter().map(|row| row[of]).sum::<f64>() / count;
        let (x, y) = (mean(0), mean(column));
        let covariance = |a: usize, b: usize, x: f64, y: f64| {
            self.windows.iter().map(|row| (row[a] - x) * (row[b] - y)).sum::<f64>() / count
        };
        let (vx, vy) = (covariance(0, 0, x, x).sqrt(), covariance(column, column, y, y).sqrt());
        // A variation below a hundredth is noise.
        if vx / x < 0.01 || vy / y < 0.01 {
            return (0.0, vy / y);
        }
        (covariance(0, column, x, y) / (vx * vy), vy / y)
    }
}

/// An exponential average, arithmetic while it warms up.
#[derive(Clone, Copy, Debug)]
struct Average {
    window: f64,
    value: f64,
    sum: f64,
    count: u32,
}

impl Average {
    const fn over(window: f64) -> Self {
        Average { window, value: 0.0, sum: 0.0, count: 0 }
    }

    fn add(&mut self, value: f64) -> f64 {
        if self.count < WARM_UP {
            self.count += 1;
            self.sum += value;
            self.value = self.sum / f64::from(self.count);
        } else {
            let factor = 2.0 / (self.window + 1.0);
            self.value = self.value * (1.0 - factor) + value * factor;
        }
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of one second, all round trips alike.
    fn windows(limit: &mut AdaptiveLimit, from: u64, rtts: impl IntoIterator<Item = u64>) {
        for (second, rtt) in (from..).zip(rtts) {
            for sample in 0..60 {
                let in_flight = u32::try_from(whole(limit.get())).unwrap();
                limit.sample((second + 1) * 2 * SECOND + sample, rtt, in_flight, true);
            }
        }
    }

    #[test]
    fn grows_by_steps_while_round_trips_stay_and_shrinks_when_they_jump() {
        let mut limit = AdaptiveLimit::new(20.0, 200.0);
        windows(&mut limit, 0, [20_000_000; 5]);
        assert_eq!(limit.get(), 25.0);
        windows(&mut limit, 5, [20_000_000; 5]);
        windows(&mut limit, 10, [400_000_000; 10]);
        assert!(limit.get() < 30.0, "{}", limit.get());
    }

    #[test]
    fn stays_within_its_bounds() {
        let mut limit = AdaptiveLimit::new(198.0, 200.0);
        windows(&mut limit, 0, [20_000_000; 5]);
        assert_eq!(limit.get(), 200.0);
    }
}
