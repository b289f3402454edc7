//! Rounds: sends every record that is left, waits for all answers, and starts again after a second.

use tidegate_algorithms::{Nanos, Timestamp};

use super::BaselineClient;

/// Sends all at once, in rounds.
#[derive(Clone, Debug)]
pub struct NaiveClient {
    remaining: Vec<usize>,
    refused: Vec<usize>,
    waiting: usize,
    round: Timestamp,
}

impl NaiveClient {
    const ROUND: Nanos = Nanos::from_secs(1);

    /// A client with this many records.
    pub fn new(records: usize) -> Self {
        NaiveClient {
            remaining: (0..records).collect(),
            refused: Vec::new(),
            waiting: 0,
            round: Timestamp::EPOCH,
        }
    }
}

impl BaselineClient for NaiveClient {
    fn send(&mut self, now: Timestamp) -> Vec<usize> {
        if self.waiting > 0 || now < self.round || self.remaining.is_empty() {
            return Vec::new();
        }
        self.round = now.after(Self::ROUND);
        self.waiting = self.remaining.len();
        std::mem::take(&mut self.remaining)
    }

    fn answer(&mut self, record: usize, accepted: bool, _now: Timestamp) {
        self.waiting -= 1;
        if !accepted {
            self.refused.push(record);
        }
        if self.waiting == 0 {
            self.remaining = std::mem::take(&mut self.refused);
        }
    }

    fn next_send(&self) -> Option<Timestamp> {
        (self.waiting == 0 && !self.remaining.is_empty()).then_some(self.round)
    }

    fn has_finished(&self) -> bool {
        self.waiting == 0 && self.remaining.is_empty()
    }
}
