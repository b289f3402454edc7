//! A fixed limit and a short queue; ignores categories.
//!
//! Most servers have this: a pool of workers and a bounded queue. [`Stripe`](super::Stripe) uses
//! it too.

use std::collections::VecDeque;

use super::{Answer, Controls, FinishedRequest, RefusalStage, ReleasedRequests, Shield};
use crate::overload::draw::whole;
use crate::overload::load::Request;
use crate::time::MILLISECOND;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StaticSettings {
    /// The length of the queue over the limit. A half, as the SRE book advises and Tidegate's gate
    /// has.
    pub(crate) queue: f64,
    /// The longest wait: 100 ms, as in Tidegate's gate.
    pub(crate) wait_max: u64,
}

impl Default for StaticSettings {
    fn default() -> Self {
        StaticSettings { queue: 0.5, wait_max: 100 * MILLISECOND }
    }
}

/// A limit and a first-come-first-served queue.
#[derive(Clone, Debug)]
pub(crate) struct StaticLimit {
    limit: u32,
    inside: u32,
    queue_max: usize,
    wait_max: u64,
    queue: VecDeque<(u32, u64)>,
}

impl StaticLimit {
    pub(crate) fn new(limit: u32, settings: StaticSettings) -> Self {
        let queue_max = whole(f64::from(limit) * settings.queue);
        StaticLimit {
            limit,
            inside: 0,
            queue_max: usize::try_from(queue_max).unwrap_or(usize::MAX),
            wait_max: settings.wait_max,
            queue: VecDeque::new(),
        }
    }

    pub(crate) const fn inside(&self) -> u32 {
        self.inside
    }
}

impl Shield for StaticLimit {
    fn arrive(&mut self, now: u64, request: &Request, _released: &mut ReleasedRequests) -> Answer {
        if self.inside < self.limit {
            self.inside += 1;
            Answer::Enter
        } else if self.queue.len() < self.queue_max {
            self.queue.push_back((request.slot, now));
            Answer::Wait
        } else {
            Answer::Refuse(RefusalStage::Gate)
        }
    }

    fn finished(&mut self, _now: u64, _done: &FinishedRequest, released: &mut ReleasedRequests) {
        match self.queue.pop_front() {
            Some((slot, _)) => released.entered.push(slot),
            None => self.inside = self.inside.saturating_sub(1),
        }
    }

    fn wake_at(&self) -> u64 {
        self.queue.front().map_or(u64::MAX, |(_, since)| since.saturating_add(self.wait_max))
    }

    fn wake(&mut self, now: u64, released: &mut ReleasedRequests) {
        while self.wake_at() <= now
            && let Some((slot, _)) = self.queue.pop_front()
        {
            released.refused.push((slot, RefusalStage::Gate));
        }
    }

    fn controls(&self) -> Controls {
        Controls { level: 1.0, limit: f64::from(self.limit) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use tidegate_overload::Category;

    #[test]
    fn fills_its_places_then_its_queue_then_refuses_whoever_comes() {
        let mut bench = Bench::new(StaticLimit::new(2, StaticSettings::default()));
        assert_eq!(bench.arrive(Category::Get), Answer::Enter);
        assert_eq!(bench.arrive(Category::Get), Answer::Enter);
        assert_eq!(bench.arrive(Category::Get), Answer::Wait);
        assert_eq!(bench.arrive(Category::Critical), Answer::Refuse(RefusalStage::Gate));
        assert_eq!(bench.finish(Category::Get, 1).entered, [3]);
        assert_eq!(bench.arrive(Category::Get), Answer::Wait);
        assert_eq!(bench.pass(100 * MILLISECOND).refused, [(5, RefusalStage::Gate)]);
    }
}
