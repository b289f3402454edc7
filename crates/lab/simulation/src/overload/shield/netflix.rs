//! Netflix's concurrency-limits: a limit that follows round-trip times.
//!
//! A request above the limit is refused at once; there is no queue. With
//! partitions, a category may go above it as far as its own share. Facts from the
//! Java source at commit 78a74b9: `VegasLimit`, `Gradient2Limit`, `WindowedLimit`,
//! `AbstractPartitionedLimiter`.

mod gradient2;
mod vegas;

pub(crate) use gradient2::{Gradient2, Gradient2Settings};
pub(crate) use vegas::{Vegas, VegasSettings};

use super::{Answer, Controls, FinishedRequest, RefusalStage, ReleasedRequests, Shield};
use crate::overload::draw::whole;
use crate::overload::load::{PerCategory, Request};
use crate::time::SECOND;

/// `WindowedLimit`: windows of one second.
const WINDOW: u64 = SECOND;
/// `WindowedLimit`: samples that a window needs.
const SAMPLES_MIN: u64 = 10;
/// `WindowedLimit`: shorter round trips are ignored.
const RTT_MIN: u64 = 100_000;

/// Critical 1.0 and the others 0.0, as Netflix's service-level shedding (2024) sets them.
pub(crate) const CRITICAL_FIRST: PerCategory<f64> = [0.0, 0.0, 0.0, 1.0];

/// A law that sets the limit after each window of samples.
pub(crate) trait Law {
    fn limit(&self) -> f64;

    /// The mean round trip of a window in nanoseconds, the most in flight in it,
    /// and whether an answer was dropped.
    fn update(&mut self, rtt: f64, in_flight: u32, dropped: bool);
}

/// A limiter with one of the laws.
#[derive(Clone, Debug)]
pub(crate) struct Netflix<L> {
    law: L,
    partitions: Option<PerCategory<f64>>,
    inside: u32,
    busy: PerCategory<u32>,
    window: SampleWindow,
    update_at: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct SampleWindow {
    sum: u64,
    samples: u64,
    in_flight_max: u32,
    dropped: bool,
}

impl<L: Law> Netflix<L> {
    pub(crate) fn new(law: L, partitions: Option<PerCategory<f64>>) -> Self {
        Netflix {
            law,
            partitions,
            inside: 0,
            busy: [0; 4],
            window: SampleWindow::default(),
            update_at: WINDOW,
        }
    }

    /// Above the limit, a partition is full at its share of the limit, at least one.
    fn partition_full(&self, request: &Request) -> bool {
        let rank = request.category.rank();
        let Some(shares) = self.partitions else { return true };
        let own = whole((self.law.limit() * shares[rank]).ceil()).max(1);
        u64::from(self.busy[rank]) >= own
    }

    fn sample(&mut self, now: u64, done: &FinishedRequest) {
        if done.took < RTT_MIN {
            return;
        }
        if now > self.update_at && self.window.samples >= SAMPLES_MIN {
            let SampleWindow { sum, samples, in_flight_max, dropped } =
                std::mem::take(&mut self.window);
            self.law.update(sum as f64 / samples as f64, in_flight_max, dropped);
            self.update_at = now + WINDOW;
        }
        self.window.sum = self.window.sum.saturating_add(done.took);
        self.window.samples += 1;
        self.window.in_flight_max = self.window.in_flight_max.max(done.inside);
        self.window.dropped |= done.late;
    }
}

impl<L: Law> Shield for Netflix<L> {
    fn arrive(&mut self, _now: u64, request: &Request, _released: &mut ReleasedRequests) -> Answer {
        if u64::from(self.inside) >= whole(self.law.limit()) && self.partition_full(request) {
            return Answer::Refuse(RefusalStage::Gate);
        }
        self.inside += 1;
        self.busy[request.category.rank()] += 1;
        Answer::Enter
    }

    fn finished(&mut self, now: u64, done: &FinishedRequest, _released: &mut ReleasedRequests) {
        self.inside = self.inside.saturating_sub(1);
        let busy = &mut self.busy[done.category.rank()];
        *busy = busy.saturating_sub(1);
        self.sample(now, done);
    }

    fn wake_at(&self) -> u64 {
        u64::MAX
    }

    fn wake(&mut self, _now: u64, _released: &mut ReleasedRequests) {}

    fn controls(&self) -> Controls {
        Controls { level: 1.0, limit: self.law.limit() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use tidegate_overload::Category;

    #[derive(Debug)]
    struct FixedLaw(f64);

    impl Law for FixedLaw {
        fn limit(&self) -> f64 {
            self.0
        }

        fn update(&mut self, _rtt: f64, in_flight: u32, _dropped: bool) {
            self.0 = f64::from(in_flight) + 100.0;
        }
    }

    #[test]
    fn without_partitions_the_limit_is_for_everyone() {
        let mut bench = Bench::new(Netflix::new(FixedLaw(2.0), None));
        assert_eq!(bench.arrive(Category::Test), Answer::Enter);
        assert_eq!(bench.arrive(Category::Test), Answer::Enter);
        assert_eq!(bench.arrive(Category::Critical), Answer::Refuse(RefusalStage::Gate));
    }

    #[test]
    fn a_partition_goes_above_the_limit_as_far_as_its_share() {
        let mut bench = Bench::new(Netflix::new(FixedLaw(2.0), Some(CRITICAL_FIRST)));
        for _ in 0..2 {
            assert_eq!(bench.arrive(Category::Test), Answer::Enter);
        }
        assert_eq!(bench.arrive(Category::Test), Answer::Refuse(RefusalStage::Gate));
        // A share of zero still has one slot.
        assert_eq!(bench.arrive(Category::Post), Answer::Enter);
        assert_eq!(bench.arrive(Category::Critical), Answer::Enter);
        assert_eq!(bench.arrive(Category::Critical), Answer::Enter);
        assert_eq!(bench.arrive(Category::Critical), Answer::Refuse(RefusalStage::Gate));
    }

    #[test]
    fn the_law_is_asked_once_a_window_with_enough_samples() {
        let mut bench = Bench::new(Netflix::new(FixedLaw(5.0), None));
        for _ in 0..11 {
            bench.arrive(Category::Get);
            bench.finish(Category::Get, 20_000_000);
        }
        assert_eq!(bench.shield.controls().limit, 5.0);
        bench.pass(2 * SECOND);
        bench.arrive(Category::Get);
        bench.finish(Category::Get, 20_000_000);
        assert_eq!(bench.shield.controls().limit, 101.0);
    }
}
