//! WeChat's DAGOR: a cursor over business and user levels, moved by queueing time.
//!
//! Facts from the paper (SoCC 2018) by way of notes on it: a window of one second
//! or 2000 requests, overload when their mean wait is above 20 ms, 5 % fewer of the
//! admitted when overloaded, 1 % of the incoming more when not, and a histogram of
//! levels that turns the count into a cursor. The business level is our category,
//! the user level our cohort. Workers serve first come, first served, and nothing
//! leaves the queue. The cursor is not sent upstream: the simulation has one server.

use std::collections::VecDeque;

use super::{
    Answer, Controls, FinishedRequest, RefusalStage, ReleasedRequests, SOCKETS_MAX, Shield,
};
use crate::overload::load::Request;
use crate::time::{MILLISECOND, SECOND};
use tidegate_overload::LEVELS;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DagorSettings {
    /// The mean wait that means overload: 20 ms (section 4.1).
    pub(crate) wait: u64,
    /// How much less of the admitted when overloaded: 5 % (section 4.2).
    pub(crate) less: f64,
    /// How much more of the incoming when not: 1 % (section 4.2).
    pub(crate) more: f64,
    /// Requests after which a window ends before its second: 2000 (section 4.1).
    pub(crate) window: u64,
}

impl Default for DagorSettings {
    fn default() -> Self {
        DagorSettings { wait: 20 * MILLISECOND, less: 0.05, more: 0.01, window: 2_000 }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Dagor {
    settings: DagorSettings,
    workers: u32,
    inside: u32,
    queue: VecDeque<(u32, u64)>,
    /// Levels below it are refused.
    cursor: usize,
    histogram: Vec<u64>,
    incoming: u64,
    admitted: u64,
    waited: u64,
    started: u64,
    window_end: u64,
    level: f64,
}

impl Dagor {
    pub(crate) fn new(workers: u32, settings: DagorSettings) -> Self {
        Dagor {
            settings,
            workers,
            inside: 0,
            queue: VecDeque::new(),
            cursor: 0,
            histogram: vec![0; LEVELS],
            incoming: 0,
            admitted: 0,
            waited: 0,
            started: 0,
            window_end: SECOND,
            level: 1.0,
        }
    }

    fn overloaded(&self, now: u64) -> bool {
        // Without a started request the longest wait counts.
        let oldest = || self.queue.front().map_or(0, |(_, since)| now.saturating_sub(*since));
        self.waited.checked_div(self.started).unwrap_or_else(oldest) > self.settings.wait
    }

    fn close_window(&mut self, now: u64) {
        let mut admitted = self.admitted as f64;
        if self.overloaded(now) {
            let wanted = admitted * (1.0 - self.settings.less);
            while admitted > wanted && self.cursor < LEVELS {
                admitted -= self.histogram[self.cursor] as f64;
                self.cursor += 1;
            }
        } else {
            let wanted = admitted + self.incoming as f64 * self.settings.more;
            while admitted < wanted && self.cursor > 0 {
                self.cursor -= 1;
                admitted += self.histogram[self.cursor] as f64;
            }
        }
        self.level = (admitted / self.incoming.max(1) as f64).clamp(0.0, 1.0);
        self.histogram.fill(0);
        (self.incoming, self.admitted, self.waited, self.started) = (0, 0, 0, 0);
        self.window_end = now + SECOND;
    }
}

impl Shield for Dagor {
    fn arrive(&mut self, now: u64, request: &Request, _released: &mut ReleasedRequests) -> Answer {
        if self.incoming >= self.settings.window {
            self.close_window(now);
        }
        let level = usize::from(request.level.number());
        self.incoming += 1;
        self.histogram[level] += 1;
        if level < self.cursor {
            return Answer::Refuse(RefusalStage::Threshold);
        }
        if self.queue.len() >= SOCKETS_MAX {
            return Answer::Refuse(RefusalStage::Socket);
        }
        self.admitted += 1;
        if self.inside < self.workers {
            self.inside += 1;
            self.started += 1;
            return Answer::Enter;
        }
        self.queue.push_back((request.slot, now));
        Answer::Wait
    }

    fn finished(&mut self, now: u64, _done: &FinishedRequest, released: &mut ReleasedRequests) {
        let Some((slot, since)) = self.queue.pop_front() else {
            self.inside = self.inside.saturating_sub(1);
            return;
        };
        self.started += 1;
        self.waited += now.saturating_sub(since);
        released.entered.push(slot);
    }

    fn wake_at(&self) -> u64 {
        self.window_end
    }

    fn wake(&mut self, now: u64, _released: &mut ReleasedRequests) {
        self.close_window(now);
    }

    fn controls(&self) -> Controls {
        Controls { level: self.level, limit: f64::from(self.workers) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use tidegate_overload::Category;

    #[test]
    fn refuses_the_lowest_levels_once_requests_wait_long() {
        let mut bench = Bench::new(Dagor::new(1, DagorSettings::default()));
        bench.arrive(Category::Critical);
        for cohort in 0..100 {
            assert_eq!(bench.arrive_as(Category::Test, cohort).0, Answer::Wait);
        }
        bench.pass(100 * MILLISECOND);
        bench.finish(Category::Critical, 1);
        bench.pass(SECOND);
        // 5 % of 101 admitted, one on each level.
        assert_eq!(bench.shield.cursor, 6);
        assert_eq!(bench.arrive_as(Category::Test, 5).0, Answer::Refuse(RefusalStage::Threshold));
        assert_eq!(bench.arrive_as(Category::Test, 6).0, Answer::Wait);
    }

    #[test]
    fn lets_them_back_in_a_little_at_a_time() {
        let mut bench = Bench::new(Dagor::new(1_000, DagorSettings::default()));
        bench.shield.cursor = 128;
        for cohort in 0..128 {
            bench.arrive_as(Category::Test, cohort);
            bench.arrive_as(Category::Get, cohort);
        }
        bench.pass(SECOND);
        assert_eq!(bench.shield.cursor, 125, "1 % of 256, one on each level");
    }
}
