//! A limit that adapts to the measured latency and throughput. Off by default.
//!
//! Latency alone cannot show whether a limit is too high: in a long overload the baseline becomes
//! the latency of the overload, and the limit climbs without end. So the baseline comes from calm
//! windows only, and throughput has a veto: the limit falls only if more requests in flight did
//! not increase throughput, rises only if they did, and otherwise stays. The rest is Vegas: a
//! queue length estimated from latency, small steps, and a large one when capacity was lost.
//!
//! Pure: windows in, a limit out. The gate measures and applies.

use std::collections::VecDeque;

use tidegate_algorithms::{Nanos, Timestamp};

use crate::mix::whole;

/// Windows whose throughput is compared with the requests in flight.
const COMPARED: usize = 50;
/// With fewer windows the limit stays.
const COMPARED_MIN: usize = 10;
/// A smaller covariance is a rounding error: throughput is on a plateau.
const GAIN_MIN: f64 = 1e-6;
/// The most calm windows that are kept.
const CALM_MAX: usize = 512;
/// Below this utilization a window is calm.
const CALM_BELOW: f64 = 0.5;
/// How long a calm window counts for the baseline.
const CALM_FOR: Nanos = Nanos::from_secs(3600);
/// Windows whose peak of requests in flight bounds the limit.
const PEAKS: usize = 30;
/// The largest limit, as a multiple of that peak.
const PEAK_TIMES: f64 = 5.0;
/// Capacity is lost after so many windows with a wait of [`LOST_TIMES`] the target.
const LOST_AFTER: u32 = 3;
const LOST_TIMES: u64 = 5;
const LOST_FACTOR: f64 = 0.8;

/// The settings of an adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveSettings {
    /// The smallest limit; at least one.
    pub min: u64,
    /// The largest limit.
    pub max: u64,
    /// The length of a window.
    pub window: Nanos,
    /// Windows with fewer successes are ignored.
    pub successes_min: u64,
    /// How much longer than the baseline a request may take; at least a tenth of the baseline.
    pub wait_target: Nanos,
}

impl AdaptiveSettings {
    /// The defaults, up to a largest limit.
    pub const fn new(max: u64) -> Self {
        AdaptiveSettings {
            min: 1,
            max,
            window: Nanos::from_secs(1),
            successes_min: 10,
            wait_target: Nanos::from_millis(5),
        }
    }
}

/// The measurements of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowSample {
    /// The 90th percentile of the successes' latency.
    pub p90: Nanos,
    /// Requests done in time.
    pub successes: u64,
    /// The length of the window.
    pub length: Nanos,
    /// The mean number of requests in flight.
    pub in_flight: f64,
    /// The most requests in flight.
    pub in_flight_max: u64,
    /// The mean wait at the gate.
    pub queue_wait: Nanos,
}

/// A limit that adapts to windows.
#[derive(Debug)]
pub struct AdaptiveLimit {
    settings: AdaptiveSettings,
    limit: f64,
    compared: VecDeque<(f64, f64)>,
    calm: VecDeque<(Timestamp, Nanos)>,
    peaks: VecDeque<u64>,
    lost_for: u32,
}

impl AdaptiveLimit {
    /// Starts from a limit.
    pub fn new(settings: AdaptiveSettings, limit: u64) -> Self {
        let mut search = AdaptiveLimit {
            settings,
            limit: 1.0,
            compared: VecDeque::new(),
            calm: VecDeque::new(),
            peaks: VecDeque::new(),
            lost_for: 0,
        };
        search.move_to(limit as f64);
        search
    }

    /// The settings.
    pub const fn settings(&self) -> &AdaptiveSettings {
        &self.settings
    }

    /// The present limit.
    pub fn limit(&self) -> u64 {
        whole(self.limit)
    }

    /// Takes a window in and returns the limit.
    pub fn step(&mut self, now: Timestamp, seen: &WindowSample) -> u64 {
        push(&mut self.peaks, seen.in_flight_max, PEAKS);
        if seen.successes < self.settings.successes_min {
            return self.limit();
        }
        let throughput = seen.successes as f64 / seen.length.get().max(1) as f64;
        // In a calm window more requests always mean more throughput, whatever the limit.
        if seen.in_flight / self.limit < CALM_BELOW {
            push(&mut self.calm, (now, seen.p90), CALM_MAX);
        } else {
            push(&mut self.compared, (seen.in_flight, throughput), COMPARED);
        }
        self.calm.retain(|(when, _)| now.since(*when) <= CALM_FOR);
        if let Some(baseline) = self.baseline() {
            self.judge(seen, baseline);
        }
        self.limit()
    }

    fn judge(&mut self, seen: &WindowSample, baseline: Nanos) {
        let longer = seen.p90.get().saturating_sub(baseline.get()).max(seen.queue_wait.get());
        let target = self.settings.wait_target.get().max(baseline.get() / 10);
        let lost = longer > target.saturating_mul(LOST_TIMES);
        self.lost_for = if lost { self.lost_for.saturating_add(1) } else { 0 };
        let binding = seen.in_flight_max >= self.limit();
        let Some(gain) = self.gain().filter(|_| binding) else { return };
        let step = self.limit.log10().max(1.0);
        let waiting = self.limit * (1.0 - baseline.get() as f64 / seen.p90.get().max(1) as f64);
        if gain <= 0.0 && self.lost_for >= LOST_AFTER {
            self.lost_for = 0;
            self.move_to(self.limit * LOST_FACTOR);
        } else if gain <= 0.0 && waiting > 6.0 * step {
            self.move_to(self.limit - step);
        } else if gain > 0.0 && waiting < 3.0 * step {
            let peak = self.peaks.iter().copied().max().unwrap_or_default() as f64;
            self.move_to((self.limit + step).min((peak * PEAK_TIMES).max(self.limit)));
        }
    }

    /// The latency without queueing: the lowest tenth of calm windows.
    fn baseline(&self) -> Option<Nanos> {
        let mut calm: Vec<Nanos> = self.calm.iter().map(|(_, p90)| *p90).collect();
        calm.sort_unstable();
        calm.get(calm.len() / 10).copied()
    }

    /// Whether more requests in flight meant more throughput: their covariance over the product of
    /// their means. None with too few windows.
    fn gain(&self) -> Option<f64> {
        if self.compared.len() < COMPARED_MIN {
            return None;
        }
        let count = self.compared.len() as f64;
        let (in_flight, done) =
            self.compared.iter().fold((0.0, 0.0), |sum, seen| (sum.0 + seen.0, sum.1 + seen.1));
        let (in_flight, done) = (in_flight / count, done / count);
        let products = self.compared.iter().map(|seen| (seen.0 - in_flight) * (seen.1 - done));
        let gain = products.sum::<f64>() / count / (in_flight * done);
        Some(if gain > GAIN_MIN { gain } else { 0.0 })
    }

    fn move_to(&mut self, limit: f64) {
        let least = self.settings.min.max(1) as f64;
        self.limit = limit.clamp(least, (self.settings.max as f64).max(least));
    }
}

/// Appends, and drops the first item of a list that is full.
fn push<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(item);
}

#[cfg(test)]
mod tests;
