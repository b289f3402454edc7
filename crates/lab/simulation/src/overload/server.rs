//! The server behind the shield, with two ways to share its workers.
//!
//! Independent workers serve one request each, and further requests queue. Time sharing serves all
//! requests at once, more slowly the more there are, with a penalty for switching. Refusals are
//! work too: idle workers do it, and the rest is taken from busy ones.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::draw::whole;

/// How requests share the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Each worker serves one request, further requests queue. The default.
    Workers,
    /// All at once, slower by `1 + 0.1 × (n/c − 1)` beyond `n/c` for `n` above `c`.
    Sharing,
}

impl Discipline {
    /// Both disciplines.
    pub const ALL: [Discipline; 2] = [Discipline::Workers, Discipline::Sharing];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Discipline::Workers => "workers",
            Discipline::Sharing => "sharing",
        }
    }
}

/// The cost of switching between requests: a tenth for each further request per worker.
const CONTENTION: f64 = 0.1;

/// The workers and their requests.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    workers: u32,
    now: u64,
    /// The work of refusals that is not done yet, in nanoseconds of one worker.
    debt: f64,
    debt_taken_max: f64,
    line: Line,
}

#[derive(Clone, Debug)]
enum Line {
    Workers {
        /// When each request is done, and its slot.
        serving: BinaryHeap<Reverse<(u64, u32)>>,
        waiting: VecDeque<(u32, u64)>,
    },
    Sharing {
        /// The work done on a request since the start of the episode.
        progress: f64,
        /// The progress at which each request is done, as the bits of a positive number, and its
        /// slot.
        serving: BinaryHeap<Reverse<(u64, u32)>>,
        next_at: u64,
    },
}

impl Server {
    pub(crate) fn new(discipline: Discipline, workers: u32, mean: u64) -> Self {
        let line = match discipline {
            Discipline::Workers => {
                Line::Workers { serving: BinaryHeap::new(), waiting: VecDeque::new() }
            }
            Discipline::Sharing => {
                Line::Sharing { progress: 0.0, serving: BinaryHeap::new(), next_at: u64::MAX }
            }
        };
        Server { workers, now: 0, debt: 0.0, debt_taken_max: mean as f64, line }
    }

    /// Requests at the server, queued or served.
    pub(crate) fn inside(&self) -> usize {
        match &self.line {
            Line::Workers { serving, waiting } => serving.len() + waiting.len(),
            Line::Sharing { serving, .. } => serving.len(),
        }
    }

    /// Busy workers.
    pub(crate) fn busy(&self) -> u32 {
        let inside = u32::try_from(self.inside()).unwrap_or(u32::MAX);
        inside.min(self.workers)
    }

    /// When the next request is done, if nothing happens before.
    pub(crate) fn next_at(&self) -> u64 {
        match &self.line {
            Line::Workers { serving, .. } => {
                serving.peek().map_or(u64::MAX, |Reverse((done, _))| *done)
            }
            Line::Sharing { next_at, .. } => *next_at,
        }
    }

    /// Accepts a request with this work in nanoseconds.
    pub(crate) fn take(&mut self, now: u64, who: u32, work: u64) {
        self.advance(now);
        match &mut self.line {
            Line::Workers { waiting, .. } => waiting.push_back((who, work)),
            Line::Sharing { .. } => {
                let work = work as f64 + self.take_debt();
                self.share_with(who, work);
            }
        }
        self.settle();
    }

    /// The request that is done at `next_at`.
    pub(crate) fn finish(&mut self, now: u64) -> Option<u32> {
        self.advance(now);
        let done = match &mut self.line {
            Line::Workers { serving, .. } | Line::Sharing { serving, .. } => serving.pop(),
        };
        self.settle();
        done.map(|Reverse((_, who))| who)
    }

    /// Adds the work of a refusal.
    pub(crate) fn burden(&mut self, work: f64) {
        self.debt += work;
    }

    pub(crate) fn set_workers(&mut self, now: u64, workers: u32) {
        self.advance(now);
        self.workers = workers;
        self.settle();
    }

    fn advance(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.now) as f64;
        let idle = self.workers.saturating_sub(self.busy());
        self.debt = (self.debt - f64::from(idle) * elapsed).max(0.0);
        let speed = self.speed();
        if let Line::Sharing { progress, .. } = &mut self.line {
            *progress += elapsed * speed;
        }
        self.now = now;
    }

    /// The speed of each request under time sharing.
    fn speed(&self) -> f64 {
        let load = self.inside() as f64 / f64::from(self.workers.max(1));
        if load <= 1.0 { 1.0 } else { 1.0 / load / (1.0 + CONTENTION * (load - 1.0)) }
    }

    fn take_debt(&mut self) -> f64 {
        let taken = self.debt.min(self.debt_taken_max);
        self.debt -= taken;
        taken
    }

    fn share_with(&mut self, who: u32, work: f64) {
        if let Line::Sharing { progress, serving, .. } = &mut self.line {
            serving.push(Reverse(((*progress + work).to_bits(), who)));
        }
    }

    /// Gives idle workers their next request, or updates when the next request is done.
    fn settle(&mut self) {
        let workers = usize::try_from(self.workers).unwrap_or(usize::MAX);
        let speed = self.speed();
        match &mut self.line {
            Line::Workers { serving, waiting } => {
                while serving.len() < workers
                    && let Some((who, work)) = waiting.pop_front()
                {
                    let debt = self.debt.min(self.debt_taken_max);
                    self.debt -= debt;
                    let done = self.now.saturating_add(work).saturating_add(whole(debt));
                    serving.push(Reverse((done, who)));
                }
            }
            Line::Sharing { progress, serving, next_at } => {
                *next_at = serving.peek().map_or(u64::MAX, |Reverse((at, _))| {
                    let left = (f64::from_bits(*at) - *progress).max(0.0);
                    self.now.saturating_add(whole((left / speed).ceil()))
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(server: &mut Server) -> (u64, u32) {
        let at = server.next_at();
        (at, server.finish(at).expect("somebody is served"))
    }

    #[test]
    fn a_worker_serves_one_and_the_rest_waits_in_line() {
        let mut server = Server::new(Discipline::Workers, 1, 100);
        server.take(0, 1, 100);
        server.take(10, 2, 50);
        assert_eq!((server.inside(), server.busy()), (2, 1));
        assert_eq!(done(&mut server), (100, 1));
        assert_eq!(done(&mut server), (150, 2));
        assert_eq!(server.next_at(), u64::MAX);
    }

    #[test]
    fn sharing_slows_everybody_down_and_a_little_more() {
        let mut server = Server::new(Discipline::Sharing, 1, 100);
        server.take(0, 1, 100);
        server.take(0, 2, 100);
        // Two on one worker: half the speed, less a tenth.
        assert_eq!(done(&mut server), (220, 1));
        assert_eq!(done(&mut server), (220, 2));
    }

    #[test]
    fn refusing_is_free_while_workers_are_idle_and_costs_when_they_are_not() {
        let mut server = Server::new(Discipline::Workers, 1, 100);
        server.burden(40.0);
        server.take(50, 1, 100);
        assert_eq!(done(&mut server), (150, 1));
        server.take(150, 1, 100);
        server.burden(40.0);
        server.take(160, 2, 100);
        assert_eq!(done(&mut server), (250, 1));
        assert_eq!(done(&mut server), (390, 2));
    }

    #[test]
    fn workers_that_leave_finish_first_and_those_that_come_start_at_once() {
        let mut server = Server::new(Discipline::Workers, 2, 100);
        server.take(0, 1, 100);
        server.take(0, 2, 100);
        server.take(0, 3, 100);
        server.set_workers(50, 1);
        assert_eq!(done(&mut server), (100, 1));
        assert_eq!(done(&mut server), (100, 2));
        assert_eq!(server.next_at(), 200);
        server.take(110, 4, 100);
        server.set_workers(120, 2);
        assert_eq!(done(&mut server), (200, 3));
        assert_eq!(done(&mut server), (220, 4));
    }
}
