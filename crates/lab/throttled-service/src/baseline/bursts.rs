//! Bursts: a fixed number of records at each beat, such as a hundred each second or twenty each 200 ms.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_algorithms::{Nanos, Timestamp};

use super::BaselineClient;

/// Sends a batch at each beat; throttled records join the next one.
#[derive(Clone, Debug)]
pub struct BurstClient {
    waiting: VecDeque<usize>,
    size: usize,
    every: Nanos,
    next: Timestamp,
    unfinished: usize,
}

impl BurstClient {
    /// A client with this many records, which sends `size` of them at each beat.
    pub fn new(records: usize, size: usize, every: Duration) -> Self {
        BurstClient {
            waiting: (0..records).collect(),
            size,
            every: every.into(),
            next: Timestamp::EPOCH,
            unfinished: records,
        }
    }
}

impl BaselineClient for BurstClient {
    fn send(&mut self, now: Timestamp) -> Vec<usize> {
        if now < self.next {
            return Vec::new();
        }
        self.next = self.next.after(self.every);
        let count = self.size.min(self.waiting.len());
        self.waiting.drain(..count).collect()
    }

    fn answer(&mut self, record: usize, accepted: bool, _now: Timestamp) {
        if accepted {
            self.unfinished -= 1;
        } else {
            self.waiting.push_front(record);
        }
    }

    fn next_send(&self) -> Option<Timestamp> {
        (self.unfinished > 0).then_some(self.next)
    }

    fn has_finished(&self) -> bool {
        self.unfinished == 0
    }
}
