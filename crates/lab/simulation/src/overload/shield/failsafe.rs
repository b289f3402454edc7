//! failsafe-go's adaptive limiter with priorities.
//!
//! A limit that follows the 90th percentile of round trips, a queue of two to
//! three times that limit, and a threshold of levels set at each calibration from
//! how full the queue is. Facts from the Go source at commit 5759a5e:
//! `adaptivelimiter` and `priority`. Levels are recorded when a request is admitted, not when it
//! arrives, and a calm queue resets the threshold at once.
//! Its five priorities are our four categories, its hundred levels in each our cohorts.

mod limit;

use std::collections::VecDeque;

use self::limit::AdaptiveLimit;
use super::{Answer, Controls, FinishedRequest, RefusalStage, ReleasedRequests, Shield};
use crate::overload::draw::whole;
use crate::overload::load::Request;
use crate::time::MILLISECOND;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FailsafeSettings {
    /// The queue from which requests are refused, as a multiple of the limit: 2.
    pub(crate) queue_from: f64,
    /// The queue at which all are refused: 3.
    pub(crate) queue_max: f64,
    /// How often the threshold is set. The caller chooses; 500 ms here.
    pub(crate) period: u64,
    /// The limit to begin with: 20.
    pub(crate) initial: f64,
    /// The highest limit: 200.
    pub(crate) max: f64,
}

impl Default for FailsafeSettings {
    fn default() -> Self {
        FailsafeSettings {
            queue_from: 2.0,
            queue_max: 3.0,
            period: 500 * MILLISECOND,
            initial: 20.0,
            max: 200.0,
        }
    }
}

/// The number of levels in the tracker.
const RECENT: usize = 1_000;

#[derive(Clone, Debug)]
pub(crate) struct Failsafe {
    settings: FailsafeSettings,
    limit: AdaptiveLimit,
    inside: u32,
    queue: VecDeque<(u32, u16)>,
    recent: VecDeque<u16>,
    rate: f64,
    threshold: u16,
    tick_at: u64,
}

impl Failsafe {
    pub(crate) fn new(settings: FailsafeSettings) -> Self {
        Failsafe {
            settings,
            limit: AdaptiveLimit::new(settings.initial, settings.max),
            inside: 0,
            queue: VecDeque::new(),
            recent: VecDeque::with_capacity(RECENT),
            rate: 0.0,
            threshold: 0,
            tick_at: settings.period,
        }
    }

    fn full(&self) -> bool {
        u64::from(self.inside) >= whole(self.limit.get())
    }

    fn let_in(&mut self, level: u16) {
        self.inside += 1;
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(level);
    }

    fn calibrate(&mut self) {
        let queued = self.queue.len() as f64;
        let from = (self.limit.get() * self.settings.queue_from).floor();
        let all = (self.limit.get() * self.settings.queue_max).floor();
        self.rate = if queued < from {
            0.0
        } else if queued >= all {
            1.0
        } else {
            (queued - from) / (all - from)
        };
        self.threshold = if self.rate > 0.0 { self.quantile() } else { 0 };
    }

    /// The level below which the share `rate` of the admitted requests lies.
    fn quantile(&self) -> u16 {
        let mut levels: Vec<u16> = self.recent.iter().copied().collect();
        levels.sort_unstable();
        let index = whole(self.rate * levels.len().saturating_sub(1) as f64);
        levels.get(usize::try_from(index).unwrap_or(0)).copied().unwrap_or(0)
    }

    fn fill(&mut self, released: &mut ReleasedRequests) {
        while !self.full()
            && let Some((slot, level)) = self.queue.pop_front()
        {
            self.let_in(level);
            released.entered.push(slot);
        }
    }
}

impl Shield for Failsafe {
    fn arrive(&mut self, _now: u64, request: &Request, _released: &mut ReleasedRequests) -> Answer {
        if !self.full() {
            self.let_in(request.level.number());
            return Answer::Enter;
        }
        let queue_max = whole(self.limit.get() * self.settings.queue_max);
        if self.queue.len() as u64 >= queue_max {
            return Answer::Refuse(RefusalStage::Gate);
        }
        if request.level.number() < self.threshold {
            return Answer::Refuse(RefusalStage::Threshold);
        }
        self.queue.push_back((request.slot, request.level.number()));
        Answer::Wait
    }

    fn finished(&mut self, now: u64, done: &FinishedRequest, released: &mut ReleasedRequests) {
        let full = self.full();
        self.limit.sample(now, done.took, done.inside, full);
        self.inside = self.inside.saturating_sub(1);
        self.fill(released);
    }

    fn wake_at(&self) -> u64 {
        self.tick_at
    }

    fn wake(&mut self, now: u64, _released: &mut ReleasedRequests) {
        self.calibrate();
        self.tick_at = now + self.settings.period;
    }

    fn controls(&self) -> Controls {
        Controls { level: 1.0 - self.rate, limit: self.limit.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use tidegate_overload::Category;

    #[test]
    fn queues_beyond_its_limit_and_refuses_everyone_at_three_times_that() {
        let mut bench = Bench::new(Failsafe::new(FailsafeSettings::default()));
        for _ in 0..20 {
            assert_eq!(bench.arrive(Category::Test), Answer::Enter);
        }
        for _ in 0..60 {
            assert_eq!(bench.arrive(Category::Test), Answer::Wait);
        }
        assert_eq!(bench.arrive(Category::Critical), Answer::Refuse(RefusalStage::Gate));
    }

    #[test]
    fn the_threshold_lies_among_those_let_in_and_falls_with_the_queue() {
        let mut bench = Bench::new(Failsafe::new(FailsafeSettings::default()));
        for cohort in 0..20 {
            bench.arrive_as(Category::Test, cohort);
        }
        for _ in 0..50 {
            bench.arrive_as(Category::Get, 0);
        }
        bench.pass(500 * MILLISECOND);
        assert_eq!(bench.shield.threshold, 9, "half way between 40 and 60: the median");
        assert_eq!(bench.arrive_as(Category::Test, 8).0, Answer::Refuse(RefusalStage::Threshold));
        assert_eq!(bench.arrive_as(Category::Test, 9).0, Answer::Wait);
        for _ in 0..15 {
            bench.finish(Category::Test, 1);
        }
        bench.pass(500 * MILLISECOND);
        assert_eq!(bench.shield.threshold, 0);
    }
}
