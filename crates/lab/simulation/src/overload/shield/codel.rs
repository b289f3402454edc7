//! Controlled delay with adaptive LIFO, as Facebook described it.
//!
//! Facts from "Fail at scale" (Maurer, 2015) by way of notes on it: when the queue
//! has not been empty for 100 ms, a request may wait 5 ms, else 100 ms; and from
//! then on the newest is served first. Ignores categories.

use std::collections::VecDeque;

use super::{
    Answer, Controls, FinishedRequest, RefusalStage, ReleasedRequests, SOCKETS_MAX, Shield,
};
use crate::overload::load::Request;
use crate::time::MILLISECOND;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CodelSettings {
    /// A queue that was not empty for this time is a standing queue: N, 100 ms.
    pub(crate) interval: u64,
    /// The longest wait in a standing queue: M, 5 ms.
    pub(crate) target: u64,
}

impl Default for CodelSettings {
    fn default() -> Self {
        CodelSettings { interval: 100 * MILLISECOND, target: 5 * MILLISECOND }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Codel {
    settings: CodelSettings,
    workers: u32,
    inside: u32,
    queue: VecDeque<(u32, u64)>,
    empty_at: u64,
}

impl Codel {
    pub(crate) const fn new(workers: u32, settings: CodelSettings) -> Self {
        Codel { settings, workers, inside: 0, queue: VecDeque::new(), empty_at: 0 }
    }

    const fn standing(&self, now: u64) -> bool {
        now.saturating_sub(self.empty_at) > self.settings.interval
    }

    fn drop_old(&mut self, now: u64, released: &mut ReleasedRequests) {
        let CodelSettings { interval, target } = self.settings;
        let wait_max = if self.standing(now) { target } else { interval };
        while let Some((slot, since)) = self.queue.front()
            && now.saturating_sub(*since) > wait_max
        {
            released.refused.push((*slot, RefusalStage::Gate));
            self.queue.pop_front();
        }
    }
}

impl Shield for Codel {
    fn arrive(&mut self, now: u64, request: &Request, _released: &mut ReleasedRequests) -> Answer {
        if self.inside < self.workers {
            self.inside += 1;
            self.empty_at = now;
            return Answer::Enter;
        }
        if self.queue.len() >= SOCKETS_MAX {
            return Answer::Refuse(RefusalStage::Socket);
        }
        if self.queue.is_empty() {
            self.empty_at = now;
        }
        self.queue.push_back((request.slot, now));
        Answer::Wait
    }

    fn finished(&mut self, now: u64, _done: &FinishedRequest, released: &mut ReleasedRequests) {
        self.drop_old(now, released);
        let newest_first = self.standing(now);
        let next = if newest_first { self.queue.pop_back() } else { self.queue.pop_front() };
        match next {
            Some((slot, _)) => released.entered.push(slot),
            None => self.inside = self.inside.saturating_sub(1),
        }
        if self.queue.is_empty() {
            self.empty_at = now;
        }
    }

    fn wake_at(&self) -> u64 {
        u64::MAX
    }

    fn wake(&mut self, _now: u64, _released: &mut ReleasedRequests) {}

    fn controls(&self) -> Controls {
        Controls { level: 1.0, limit: f64::from(self.workers) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use tidegate_overload::Category;

    #[test]
    fn serves_the_oldest_first_until_the_queue_stands() {
        let mut bench = Bench::new(Codel::new(1, CodelSettings::default()));
        for _ in 0..4 {
            bench.arrive(Category::Get);
            bench.pass(MILLISECOND);
        }
        assert_eq!(bench.finish(Category::Get, 1).entered, [2]);
        bench.pass(98 * MILLISECOND);
        bench.arrive(Category::Get);
        bench.arrive(Category::Get);
        bench.pass(MILLISECOND);
        let released = bench.finish(Category::Get, 1);
        assert_eq!(released.entered, [6], "the newest");
        assert_eq!(
            released.refused,
            [(3, RefusalStage::Gate), (4, RefusalStage::Gate)],
            "over 5 ms"
        );
    }

    #[test]
    fn a_queue_that_empties_is_a_burst_and_may_wait_longer() {
        let mut bench = Bench::new(Codel::new(1, CodelSettings::default()));
        bench.arrive(Category::Get);
        bench.pass(200 * MILLISECOND);
        bench.arrive(Category::Get);
        bench.pass(50 * MILLISECOND);
        assert_eq!(bench.finish(Category::Get, 1).entered, [2]);
    }
}
