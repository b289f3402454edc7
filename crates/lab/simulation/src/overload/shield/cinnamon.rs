//! In the style of Uber's Cinnamon: a PI controller in front of a priority queue.
//!
//! Facts from the three posts (2023) and notes on them: every 500 ms the error
//! (inflow − outflow − free slots) / outflow, gains 0.1 and 1.4, a ratio that the
//! last 1000 levels turn into a threshold, shedding only once the queue has not been
//! empty for 10 s, waits of at most a third of the timeout. Inflow is what passed
//! the threshold: the sum would never settle otherwise. The limit of its
//! auto-tuner is given to it: it is the number of workers.

use super::level_queue::LevelQueue;
use super::{Answer, Controls, FinishedRequest, RefusalStage, ReleasedRequests, Shield};
use crate::overload::draw::whole;
use crate::overload::load::Request;
use crate::time::{MILLISECOND, SECOND};
use tidegate_overload::LEVELS;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CinnamonSettings {
    pub(crate) proportional: f64,
    pub(crate) integral: f64,
    /// Sheds after the queue was not empty for this time: 10 s.
    pub(crate) patience: u64,
    /// The longest wait: a third of the timeout of 500 ms.
    pub(crate) wait_max: u64,
}

impl Default for CinnamonSettings {
    fn default() -> Self {
        CinnamonSettings {
            proportional: 0.1,
            integral: 1.4,
            patience: 10 * SECOND,
            wait_max: 500 * MILLISECOND / 3,
        }
    }
}

const PERIOD: u64 = 500 * MILLISECOND;
/// The number of recent levels.
const RECENT: usize = 1_000;

#[derive(Clone, Debug)]
pub(crate) struct Cinnamon {
    settings: CinnamonSettings,
    workers: u32,
    inside: u32,
    queue: LevelQueue,
    recent: Vec<u16>,
    recent_next: usize,
    inflow: u64,
    outflow: u64,
    sum: f64,
    ratio: f64,
    threshold: u16,
    empty_at: u64,
    tick_at: u64,
    expire_at: u64,
}

impl Cinnamon {
    pub(crate) fn new(workers: u32, settings: CinnamonSettings) -> Self {
        Cinnamon {
            settings,
            workers,
            inside: 0,
            queue: LevelQueue::new(),
            recent: Vec::with_capacity(RECENT),
            recent_next: 0,
            inflow: 0,
            outflow: 0,
            sum: 0.0,
            ratio: 0.0,
            threshold: 0,
            empty_at: 0,
            tick_at: PERIOD,
            expire_at: u64::MAX,
        }
    }

    fn remember(&mut self, level: u16) {
        if self.recent.len() < RECENT {
            self.recent.push(level);
        } else {
            self.recent[self.recent_next] = level;
            self.recent_next = (self.recent_next + 1) % RECENT;
        }
    }

    fn tick(&mut self, now: u64) {
        let (inflow, outflow) = (self.inflow as f64, (self.outflow as f64).max(1.0));
        (self.inflow, self.outflow) = (0, 0);
        self.tick_at = now + PERIOD;
        if now.saturating_sub(self.empty_at) < self.settings.patience {
            (self.ratio, self.sum, self.threshold) = (0.0, 0.0, 0);
            return;
        }
        let free = f64::from(self.workers.saturating_sub(self.inside));
        let error = (inflow - outflow - free) / outflow;
        let CinnamonSettings { proportional, integral, .. } = self.settings;
        let seconds = PERIOD as f64 / SECOND as f64;
        // Bounded, or the integral would take too long to fall again.
        self.sum = (self.sum + error * seconds).clamp(0.0, 1.0 / integral);
        self.ratio = (proportional * error + integral * self.sum).clamp(0.0, 1.0);
        self.threshold = self.quantile();
    }

    /// The level below which `ratio` of the recent requests lie.
    fn quantile(&self) -> u16 {
        let mut counts = [0_u64; LEVELS];
        for level in &self.recent {
            counts[usize::from(*level)] += 1;
        }
        let mut left = whole(self.ratio * self.recent.len() as f64);
        for (level, count) in (0_u16..).zip(counts) {
            if left < count || left == 0 {
                return level;
            }
            left -= count;
        }
        u16::try_from(LEVELS).unwrap_or(u16::MAX)
    }

    fn note_expiry(&mut self) {
        let wait_max = self.settings.wait_max;
        let oldest = self.queue.oldest();
        self.expire_at = oldest.map_or(u64::MAX, |since| since.saturating_add(wait_max));
    }
}

impl Shield for Cinnamon {
    fn arrive(&mut self, now: u64, request: &Request, _released: &mut ReleasedRequests) -> Answer {
        let level = request.level.number();
        self.remember(level);
        if request.level.number() < self.threshold {
            return Answer::Refuse(RefusalStage::Threshold);
        }
        self.inflow += 1;
        if self.inside < self.workers {
            self.inside += 1;
            self.outflow += 1;
            self.empty_at = now;
            return Answer::Enter;
        }
        if self.queue.len() == 0 {
            self.empty_at = now;
            self.expire_at = now.saturating_add(self.settings.wait_max);
        }
        self.queue.push(level, request.slot, now);
        Answer::Wait
    }

    fn finished(&mut self, now: u64, _done: &FinishedRequest, released: &mut ReleasedRequests) {
        match self.queue.pop() {
            Some((slot, _)) => {
                self.outflow += 1;
                released.entered.push(slot);
            }
            None => self.inside = self.inside.saturating_sub(1),
        }
        if self.queue.len() == 0 {
            self.empty_at = now;
            self.expire_at = u64::MAX;
        }
    }

    fn wake_at(&self) -> u64 {
        self.tick_at.min(self.expire_at)
    }

    fn wake(&mut self, now: u64, released: &mut ReleasedRequests) {
        if now >= self.tick_at {
            self.tick(now);
        }
        self.note_expiry();
        while self.expire_at <= now
            && let Some(slot) = self.queue.pop_oldest()
        {
            released.refused.push((slot, RefusalStage::Gate));
            self.note_expiry();
        }
    }

    fn controls(&self) -> Controls {
        Controls { level: 1.0 - self.ratio, limit: f64::from(self.workers) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use tidegate_overload::Category;

    #[test]
    fn the_highest_waits_least_and_nobody_longer_than_a_third_of_the_timeout() {
        let mut bench = Bench::new(Cinnamon::new(1, CinnamonSettings::default()));
        bench.arrive(Category::Get);
        bench.arrive(Category::Test);
        bench.arrive(Category::Critical);
        assert_eq!(bench.finish(Category::Get, 1).entered, [3]);
        assert_eq!(bench.pass(200 * MILLISECOND).refused, [(2, RefusalStage::Gate)]);
    }

    #[test]
    fn sheds_the_lowest_once_the_queue_stands() {
        let mut bench = Bench::new(Cinnamon::new(1, CinnamonSettings::default()));
        bench.arrive(Category::Post);
        let mut shed = 0;
        for step in 0_u16..2_400 {
            let cohort = u8::try_from(step % 128).unwrap();
            bench.pass(5 * MILLISECOND);
            let refused = Answer::Refuse(RefusalStage::Threshold);
            shed += u32::from(bench.arrive_as(Category::Test, cohort).0 == refused);
            bench.arrive_as(Category::Post, cohort);
            if step == 1_500 {
                assert_eq!(shed, 0, "not yet");
            }
        }
        assert!(shed > 0);
    }
}
