//! Histograms of times: counts in buckets, and their sum.
//!
//! The user of a histogram defines the upper bounds of its buckets; the last has none. A plain
//! [`Histogram`] is used under a lock. In [`HistogramCopies`] each thread records in its own copy,
//! and a reader adds them up.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_algorithms::Nanos;

use crate::shards::{SHARDS, Shard};

/// The end of a bucket that has none.
pub(crate) const UNBOUNDED: u64 = u64::MAX;

/// The ends of buckets, in milliseconds; the last is [`UNBOUNDED`].
pub(crate) const fn bucket_ends<const BUCKETS: usize>(millis: [u64; BUCKETS]) -> [Nanos; BUCKETS] {
    let mut ends = [Nanos::MAX; BUCKETS];
    let mut index = 0;
    while index < BUCKETS {
        ends[index] = Nanos::new(millis[index].saturating_mul(1_000_000));
        index += 1;
    }
    ends
}

/// The number of times in each bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const BUCKETS: usize> {
    /// The count of each bucket, not cumulative.
    pub counts: [u64; BUCKETS],
    /// The sum of all times.
    pub sum: Nanos,
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    /// The count of all buckets.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn record(&mut self, ends: &[Nanos; BUCKETS], time: Nanos) {
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

/// A histogram with a copy for each thread.
#[derive(Debug)]
pub(crate) struct HistogramCopies<const BUCKETS: usize>(Box<[HistogramCopy<BUCKETS>; SHARDS]>);

#[derive(Debug)]
#[repr(align(64))]
struct HistogramCopy<const BUCKETS: usize> {
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl<const BUCKETS: usize> HistogramCopies<BUCKETS> {
    #[inline]
    pub(crate) fn record(&self, ends: &[Nanos; BUCKETS], time: Nanos) {
        let shard = Shard::of_thread();
        let copy = shard.of(&self.0);
        if let Some(count) = copy.counts.get(bucket(ends, time)) {
            shard.add(count, 1);
        }
        shard.add(&copy.sum, time.get());
    }

    pub(crate) fn read(&self) -> Histogram<BUCKETS> {
        let mut all = Histogram::default();
        for copy in self.0.iter() {
            for (sum, count) in all.counts.iter_mut().zip(&copy.counts) {
                *sum += count.load(Relaxed);
            }
            all.sum = Nanos::new(all.sum.get().wrapping_add(copy.sum.load(Relaxed)));
        }
        all
    }
}

impl<const BUCKETS: usize> Default for HistogramCopies<BUCKETS> {
    fn default() -> Self {
        let copy = |_| HistogramCopy {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            sum: AtomicU64::new(0),
        };
        HistogramCopies(Box::new(std::array::from_fn(copy)))
    }
}

/// The first bucket that ends at this time or later.
#[inline]
fn bucket<const BUCKETS: usize>(ends: &[Nanos; BUCKETS], time: Nanos) -> usize {
    // Most times fall into the first.
    if ends.first().is_some_and(|end| time <= *end) {
        return 0;
    }
    ends.partition_point(|end| *end < time).min(BUCKETS.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [Nanos; 4] =
        [Nanos::ZERO, Nanos::from_millis(1), Nanos::from_millis(20), Nanos::MAX];

    #[test]
    fn times_fall_into_their_buckets_whoever_writes() {
        let (mut plain, cell) = (Histogram::default(), HistogramCopies::default());
        let times =
            [Nanos::ZERO, Nanos::from_millis(1), Nanos::from_millis(2), Nanos::from_secs(9)];
        for time in times {
            plain.record(&ENDS, time);
            cell.record(&ENDS, time);
        }
        assert_eq!(plain.counts, [1, 1, 1, 1]);
        assert_eq!(plain.sum, Nanos::from_millis(9_003));
        assert_eq!((cell.read(), plain.count()), (plain, 4));
    }

    #[test]
    fn no_time_is_too_long() {
        let mut plain = Histogram::default();
        (0..2).for_each(|_| plain.record(&ENDS, Nanos::MAX));
        assert_eq!((plain.counts, plain.sum), ([0, 0, 0, 2], Nanos::MAX));
    }
}
