//! Measurements of the gate: means over time, waits, the service time.

use tidegate_algorithms::{Nanos, Timestamp};

use crate::category::Category;
use crate::histogram::{Histogram, UNBOUNDED, bucket_ends};

/// The mean service time is that of the last requests: about so many.
const SERVICES: u64 = 128;
/// With fewer the service time is unknown.
const SERVICES_MIN: u64 = 16;

/// Upper bounds of the buckets of waits; the last has none.
pub const WAIT_BUCKETS: [Nanos; 9] = bucket_ends([0, 1, 2, 5, 10, 20, 50, 100, UNBOUNDED]);

/// Waits of the admitted requests of one category, by [`WAIT_BUCKETS`].
pub type Waits = Histogram<9>;

/// The mean of a number over time.
#[derive(Debug)]
pub(super) struct TimeMean {
    value: u64,
    since: Timestamp,
    area: u128,
    window: Timestamp,
}

impl TimeMean {
    pub(super) const fn new(now: Timestamp) -> Self {
        TimeMean { value: 0, since: now, area: 0, window: now }
    }

    /// A `now` before the last one changes the value and adds no time.
    pub(super) fn set(&mut self, now: Timestamp, value: u64) {
        if value != self.value {
            self.pass(now);
            self.value = value;
        }
    }

    /// The mean since the last call; the value itself when no time passed.
    pub(super) fn take_mean(&mut self, now: Timestamp) -> f64 {
        self.pass(now);
        let passed = now.since(self.window).get();
        let mean = if passed == 0 { self.value as f64 } else { self.area as f64 / passed as f64 };
        (self.area, self.window) = (0, self.since);
        mean
    }

    fn pass(&mut self, now: Timestamp) {
        let passed = now.since(self.since).get();
        let area = u128::from(self.value) * u128::from(passed);
        self.area = self.area.saturating_add(area);
        self.since = self.since.max(now);
    }
}

/// The mean service time of recent requests.
#[derive(Debug, Default)]
pub(super) struct ServiceTime {
    mean: u64,
    count: u64,
}

impl ServiceTime {
    pub(super) fn record(&mut self, time: Nanos) {
        self.count = (self.count + 1).min(SERVICES);
        // Without a sign: a division of 128 bits would be slow on this path.
        let (mean, time) = (self.mean, time.get());
        self.mean = if time >= mean {
            mean + (time - mean) / self.count
        } else {
            mean - (mean - time) / self.count
        };
    }

    /// Zero until enough were recorded.
    pub(super) const fn mean(&self) -> Nanos {
        if self.count < SERVICES_MIN { Nanos::ZERO } else { Nanos::new(self.mean) }
    }
}

/// Waits since the last tick and since the start.
#[derive(Debug, Default)]
pub(super) struct WaitTimes {
    by_category: [Waits; 4],
    window_sum: u64,
    window_count: u64,
}

impl WaitTimes {
    /// Records a request that entered without waiting.
    #[inline]
    pub(super) fn record_none(&mut self, category: Category) {
        self.by_category[category.rank()].counts[0] += 1;
        self.window_count += 1;
    }

    pub(super) fn record(&mut self, category: Category, wait: Nanos) {
        self.by_category[category.rank()].record(&WAIT_BUCKETS, wait);
        self.window_sum = self.window_sum.saturating_add(wait.get());
        self.window_count += 1;
    }

    pub(super) const fn of(&self, category: Category) -> Waits {
        self.by_category[category.rank()]
    }

    pub(super) fn take_mean(&mut self) -> Nanos {
        let mean = self.window_sum / self.window_count.max(1);
        (self.window_sum, self.window_count) = (0, 0);
        Nanos::new(mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH.after(Nanos::from_millis(millis))
    }

    #[test]
    fn the_mean_weighs_values_by_their_time() {
        let mut number = TimeMean::new(at(0));
        number.set(at(0), 10);
        number.set(at(100), 20);
        assert_eq!(number.take_mean(at(400)), 17.5);
        assert_eq!(number.take_mean(at(500)), 20.0);
        assert_eq!(number.take_mean(at(500)), 20.0);
    }

    #[test]
    fn late_readings_take_no_time_away() {
        let mut number = TimeMean::new(at(100));
        number.set(at(200), 5);
        number.set(at(150), 7);
        assert_eq!(number.take_mean(at(300)), 3.5);
    }

    #[test]
    fn the_service_time_is_unknown_until_enough_were_seen() {
        let mut service = ServiceTime::default();
        (0..15).for_each(|_| service.record(Nanos::from_millis(20)));
        assert_eq!(service.mean(), Nanos::ZERO);
        service.record(Nanos::from_millis(20));
        assert_eq!(service.mean(), Nanos::from_millis(20));
        (0..2_000).for_each(|_| service.record(Nanos::from_millis(5)));
        assert!(service.mean() < Nanos::from_millis(6));
        service.record(Nanos::MAX);
    }

    #[test]
    fn waits_fall_into_their_buckets() {
        let mut waits = WaitTimes::default();
        waits.record(Category::Get, Nanos::ZERO);
        waits.record(Category::Get, Nanos::from_millis(3));
        waits.record(Category::Get, Nanos::MAX);
        assert_eq!(waits.of(Category::Get).counts, [1, 0, 0, 1, 0, 0, 0, 0, 1]);
        assert_eq!(waits.of(Category::Post), Waits::default());
    }
}
