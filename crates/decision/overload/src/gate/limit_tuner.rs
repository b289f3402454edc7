//! Windows of latency and throughput, measured by the gate for the adaptive limit.

use tidegate_algorithms::{Nanos, Timestamp};

use super::measure::TimeMean;
use crate::adaptive_limit::{AdaptiveLimit, AdaptiveSettings, WindowSample};

/// Latency buckets: eight for each doubling, so the error of a quantile is less than an eighth.
const BUCKETS: usize = 64 * 8;

/// An adaptive limit and the present window.
#[derive(Debug)]
pub(super) struct LimitTuner {
    search: AdaptiveLimit,
    latencies: Box<[u32; BUCKETS]>,
    successes: u64,
    in_flight: TimeMean,
    in_flight_max: u64,
    waits: (u64, u64),
    since: Timestamp,
}

impl LimitTuner {
    pub(super) fn new(settings: AdaptiveSettings, limit: u64, now: Timestamp) -> Self {
        LimitTuner {
            search: AdaptiveLimit::new(settings, limit),
            latencies: Box::new([0; BUCKETS]),
            successes: 0,
            in_flight: TimeMean::new(now),
            in_flight_max: 0,
            waits: (0, 0),
            since: now,
        }
    }

    pub(super) fn succeeded(&mut self, took: Nanos) {
        self.successes += 1;
        let count = &mut self.latencies[bucket(took)];
        *count = count.saturating_add(1);
    }

    pub(super) fn waited(&mut self, wait: Nanos) {
        self.waits = (self.waits.0.saturating_add(wait.get()), self.waits.1 + 1);
    }

    pub(super) fn in_flight(&mut self, now: Timestamp, count: u64) {
        self.in_flight.set(now, count);
        self.in_flight_max = self.in_flight_max.max(count);
    }

    /// The new limit at the end of a window.
    pub(super) fn tick(&mut self, now: Timestamp, in_flight: u64) -> Option<u64> {
        let length = now.since(self.since);
        if length < self.search.settings().window {
            return None;
        }
        let seen = WindowSample {
            p90: self.p90(),
            successes: self.successes,
            length,
            in_flight: self.in_flight.take_mean(now),
            in_flight_max: self.in_flight_max,
            queue_wait: Nanos::new(self.waits.0 / self.waits.1.max(1)),
        };
        self.latencies.fill(0);
        (self.successes, self.waits) = (0, (0, 0));
        (self.in_flight_max, self.since) = (in_flight, now);
        Some(self.search.step(now, &seen))
    }

    fn p90(&self) -> Nanos {
        let rank = self.successes - self.successes / 10;
        let mut below = 0;
        let found = self.latencies.iter().position(|count| {
            below += u64::from(*count);
            below >= rank
        });
        middle(found.unwrap_or_default())
    }
}

/// The bucket of a latency: its highest bit and the three below it.
const fn bucket(time: Nanos) -> usize {
    let nanos = if time.get() < 8 { 8 } else { time.get() };
    let top = 63 - nanos.leading_zeros();
    let below = (nanos >> (top - 3)) & 7;
    (top * 8) as usize + below as usize
}

/// The middle of a bucket.
const fn middle(bucket: usize) -> Nanos {
    let (top, below) = (bucket / 8, bucket as u64 % 8);
    if top < 4 {
        return Nanos::new(8);
    }
    Nanos::new(((8 + below) << (top - 3)) + (1 << (top - 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_less_than_an_eighth_off() {
        for nanos in [9u64, 100, 12_345, 20_000_000, 7_777_777_777, u64::MAX / 2] {
            let found = middle(bucket(Nanos::new(nanos))).get();
            assert!(found.abs_diff(nanos) <= nanos / 8 + 4, "{nanos}: {found}");
        }
        assert!(bucket(Nanos::MAX) < BUCKETS && bucket(Nanos::ZERO) < BUCKETS);
        assert!(middle(bucket(Nanos::MAX)) > Nanos::new(u64::MAX / 2));
    }

    #[test]
    fn nine_of_ten_are_at_most_the_quantile() {
        let mut tuning = LimitTuner::new(AdaptiveSettings::new(100), 10, Timestamp::EPOCH);
        for millis in 1..=100 {
            tuning.succeeded(Nanos::from_millis(millis));
        }
        let p90 = tuning.p90();
        assert!((Nanos::from_millis(80)..Nanos::from_millis(100)).contains(&p90), "{p90}");
    }
}
