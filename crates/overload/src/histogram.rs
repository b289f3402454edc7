//! How times are spread: counts in buckets, and their sum.
//!
//! One shape for everything that is measured in time. What the ends of the buckets are is said
//! beside what is measured; the last has none. Under a lock a plain one will do, elsewhere a
//! [`HistogramCell`] takes times in and gives a plain one to whoever reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_algorithms::Nanos;

/// How many times fell into each bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const BUCKETS: usize> {
    /// How many fell into each; not summed up.
    pub counts: [u64; BUCKETS],
    /// All times together.
    pub sum: Nanos,
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    /// How many there are in all buckets.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn take_in(&mut self, ends: &[Nanos; BUCKETS], time: Nanos) {
        if let Some(count) = self.counts.get_mut(bucket(ends, time)) {
            *count += 1;
        }
        self.sum = Nanos::new(self.sum.get().saturating_add(time.get()));
    }
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Histogram { counts: [0; BUCKETS], sum: Nanos::ZERO }
    }
}

/// A histogram that many threads write.
#[derive(Debug)]
pub(crate) struct HistogramCell<const BUCKETS: usize> {
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl<const BUCKETS: usize> HistogramCell<BUCKETS> {
    pub(crate) fn take_in(&self, ends: &[Nanos; BUCKETS], time: Nanos) {
        if let Some(count) = self.counts.get(bucket(ends, time)) {
            count.fetch_add(1, Relaxed);
        }
        self.sum.fetch_add(time.get(), Relaxed);
    }

    pub(crate) fn read(&self) -> Histogram<BUCKETS> {
        let counts = std::array::from_fn(|bucket| self.counts[bucket].load(Relaxed));
        Histogram { counts, sum: Nanos::new(self.sum.load(Relaxed)) }
    }
}

impl<const BUCKETS: usize> Default for HistogramCell<BUCKETS> {
    fn default() -> Self {
        HistogramCell { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

/// The first bucket that ends at this time or later.
fn bucket<const BUCKETS: usize>(ends: &[Nanos; BUCKETS], time: Nanos) -> usize {
    ends.partition_point(|end| *end < time).min(BUCKETS.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [Nanos; 4] =
        [Nanos::ZERO, Nanos::from_millis(1), Nanos::from_millis(20), Nanos::MAX];

    #[test]
    fn times_fall_into_their_buckets_whoever_writes() {
        let (mut plain, cell) = (Histogram::default(), HistogramCell::default());
        let times =
            [Nanos::ZERO, Nanos::from_millis(1), Nanos::from_millis(2), Nanos::from_secs(9)];
        for time in times {
            plain.take_in(&ENDS, time);
            cell.take_in(&ENDS, time);
        }
        assert_eq!(plain.counts, [1, 1, 1, 1]);
        assert_eq!(plain.sum, Nanos::from_millis(9_003));
        assert_eq!((cell.read(), plain.count()), (plain, 4));
    }

    #[test]
    fn no_time_is_too_long() {
        let mut plain = Histogram::default();
        (0..2).for_each(|_| plain.take_in(&ENDS, Nanos::MAX));
        assert_eq!((plain.counts, plain.sum), ([0, 0, 0, 2], Nanos::MAX));
    }
}
