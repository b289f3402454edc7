//! Puts requests in the order in which they began.
//!
//! Logs are written when requests end, and by several processes: neighbouring lines may be seconds out of order. Requests
//! wait in the bucket of their second until the logs are five seconds further.

use std::collections::BTreeMap;

use tidegate_algorithms::Timestamp;

use super::pending::{PendingRequests, RequestTerms};

/// A line may be this many seconds late.
pub(crate) const SECONDS_LATE_MAX: u64 = 5;
/// The most requests that wait, about 200 bytes each; then the oldest second is played early.
const WAITING_MAX: usize = 2_000_000;
/// Empty buckets that are kept to be used again.
const SPARE_MAX: usize = 16;

/// Requests that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct RequestOrder {
    /// Seconds before this one are over.
    next: u64,
    buckets: BTreeMap<u64, PendingRequests>,
    spare: Vec<PendingRequests>,
    waiting: usize,
    /// Requests that came later than [`SECONDS_LATE_MAX`]; they are played at the earliest second that is left.
    late: u64,
}

impl RequestOrder {
    /// How many requests came too late to be sorted.
    pub(crate) const fn late(&self) -> u64 {
        self.late
    }

    /// The bucket for a request, and its terms with a time that is not over.
    pub(crate) fn bucket(&mut self, terms: RequestTerms) -> (&mut PendingRequests, RequestTerms) {
        let second = terms.time.as_nanos() / 1_000_000_000;
        let terms = if second < self.next {
            self.late += 1;
            let time = Timestamp::from_nanos(self.next.saturating_mul(1_000_000_000));
            RequestTerms { time, ..terms }
        } else {
            terms
        };
        self.waiting += 1;
        let spare = &mut self.spare;
        let bucket = self.buckets.entry(second.max(self.next));
        (bucket.or_insert_with(|| spare.pop().unwrap_or_default()), terms)
    }

    /// Plays all seconds that are over when the logs have reached this one.
    pub(crate) fn play(&mut self, reached: u64, mut each: impl FnMut(&PendingRequests)) {
        while let Some((second, _)) = self.buckets.first_key_value() {
            if second.saturating_add(SECONDS_LATE_MAX) >= reached && self.waiting <= WAITING_MAX {
                return;
            }
            self.play_first(&mut each);
        }
    }

    /// Plays everything that is left.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&PendingRequests)) {
        while !self.buckets.is_empty() {
            self.play_first(&mut each);
        }
    }

    fn play_first(&mut self, each: &mut impl FnMut(&PendingRequests)) {
        let Some((second, mut bucket)) = self.buckets.pop_first() else { return };
        bucket.sort(second);
        each(&bucket);
        self.waiting = self.waiting.saturating_sub(bucket.len());
        self.next = second.saturating_add(1);
        bucket.clear();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::logged_request::TimeResolution;
    use super::*;
    use proptest::prelude::*;

    /// The times in the order in which they are played, and how many came too late.
    fn played(times: &[u64]) -> (Vec<u64>, u64) {
        let mut order = RequestOrder::default();
        let mut played = Vec::new();
        let mut reached = 0;
        for nanos in times {
            let time = Timestamp::from_nanos(*nanos);
            let second = nanos / 1_000_000_000;
            let resolution = TimeResolution::Exact;
            let terms = RequestTerms { time, resolution, ..RequestTerms::default() };
            let (bucket, terms) = order.bucket(terms);
            bucket.end_request(terms);
            reached = reached.max(second);
            order.play(reached, |bucket| {
                played.extend(bucket.requests().map(|one| one.terms().time.as_nanos()));
            });
        }
        order.finish(|bucket| {
            played.extend(bucket.requests().map(|one| one.terms().time.as_nanos()));
        });
        (played, order.late())
    }

    #[test]
    fn hours_of_disorder_are_counted_and_nothing_is_lost() {
        let hour = 3_600_000_000_000;
        let (times, late) = played(&[100 * hour, 101 * hour, 100 * hour + 1, 102 * hour]);
        assert_eq!((times.len(), late), (4, 1));
        assert!(times.is_sorted());
    }

    proptest! {
        #[test]
        fn requests_up_to_five_seconds_late_are_sorted(
            steps in prop::collection::vec((0_u64..2_000_000_000, 0_u64..4_000_000_000), 1..200),
        ) {
            let mut clock = 1_000_000_000_000;
            let mut times = Vec::new();
            for (step, back) in steps {
                clock += step;
                times.push(clock - back);
            }
            let (played, late) = played(&times);
            times.sort_unstable();
            prop_assert_eq!(late, 0);
            prop_assert_eq!(played, times);
        }
    }
}
