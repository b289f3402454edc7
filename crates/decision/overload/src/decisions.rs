//! Counters of the limiters' answers, and latencies.
//!
//! Each thread counts in its own copy, and a reader adds the copies up. The labels are closed
//! sets: no request can add one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_algorithms::{CallerMode, Nanos};
use tidegate_words::words;

use crate::category::Category;
use crate::histogram::{Histogram, HistogramCopies, UNBOUNDED, bucket_ends};
use crate::mode::Limiter;
use crate::shards::{SHARDS, Shard};

const COUNTS: usize = 3 * 2 * 4 * 4;

words! {
    /// The answer of a limiter.
    pub enum Answer {
        /// Admitted.
        Allow = "allow",
        /// Refused.
        Reject = "reject",
        /// Admitted, but an enforcing limiter would have refused.
        WouldReject = "would_reject",
        /// Admitted because the limiter failed.
        ErrorOpen = "error_open",
    }
}

/// How often a limiter gave an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionCount {
    /// The limiter.
    pub limiter: Limiter,
    /// Whether it enforced or only watched.
    pub acting: CallerMode,
    /// The category of the requests.
    pub category: Category,
    /// The answer.
    pub answer: Answer,
    /// The number of requests.
    pub count: u64,
}

/// The counts of all decisions.
#[derive(Debug)]
pub(crate) struct Decisions {
    copies: Box<[DecisionCounts; SHARDS]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct DecisionCounts([AtomicU64; COUNTS]);

impl Decisions {
    pub(crate) fn new() -> Self {
        let counts = |_| DecisionCounts(std::array::from_fn(|_| AtomicU64::new(0)));
        Decisions { copies: Box::new(std::array::from_fn(counts)) }
    }

    #[inline]
    pub(crate) fn count(
        &self,
        limiter: Limiter,
        acting: CallerMode,
        category: Category,
        answer: Answer,
    ) {
        let shard = Shard::of_thread();
        shard.add(&shard.of(&self.copies).0[index(limiter, acting, category, answer)], 1);
    }

    /// All counts since the start.
    pub(crate) fn read(&self) -> Vec<DecisionCount> {
        let mut found = Vec::with_capacity(COUNTS);
        for limiter in Limiter::ALL {
            for acting in [CallerMode::Enforce, CallerMode::Shadow] {
                for category in Category::ALL {
                    for answer in Answer::ALL {
                        let count = self.sum(index(limiter, acting, category, answer));
                        found.push(DecisionCount { limiter, acting, category, answer, count });
                    }
                }
            }
        }
        found
    }

    /// The number of refused requests.
    pub(crate) fn rejected(&self) -> u64 {
        let rejects = self.read().into_iter().filter(|count| count.answer == Answer::Reject);
        rejects.map(|count| count.count).sum()
    }

    fn sum(&self, index: usize) -> u64 {
        self.copies.iter().map(|counts| counts.0[index].load(Relaxed)).sum()
    }
}

#[inline]
const fn index(limiter: Limiter, acting: CallerMode, category: Category, answer: Answer) -> usize {
    let acting = match acting {
        CallerMode::Enforce => 0,
        CallerMode::Shadow => 1,
    };
    ((limiter.index() * 2 + acting) * 4 + category.rank()) * 4 + answer as usize
}

/// Upper bounds of the latency buckets; the last has none.
pub const LATENCY_BUCKETS: [Nanos; 12] =
    bucket_ends([1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, UNBOUNDED]);

/// Latencies of the requests of one category that were done in time, by [`LATENCY_BUCKETS`].
/// Without refusals: they are quick and would lower the quantiles.
pub type Latency = Histogram<12>;

/// The latencies of one category, in a copy for each thread.
pub(crate) type LatencyCopies = HistogramCopies<12>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_decision_has_a_count_of_its_own() {
        let decisions = Decisions::new();
        let kinds = decisions.read();
        assert_eq!(kinds.len(), COUNTS);
        for (number, kind) in kinds.iter().enumerate() {
            (0..=number).for_each(|_| {
                decisions.count(kind.limiter, kind.acting, kind.category, kind.answer);
            });
        }
        let counts: Vec<u64> = decisions.read().iter().map(|kind| kind.count).collect();
        assert_eq!(counts, (1..=96).collect::<Vec<u64>>());
    }
}
