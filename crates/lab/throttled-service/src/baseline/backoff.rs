//! Exponential backoff with full jitter: each record retries after a random time below a doubling bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_algorithms::{Nanos, Timestamp};

use super::BaselineClient;
use crate::chance::Chance;

/// Retries each record after a random time.
#[derive(Clone, Debug)]
pub struct BackoffClient {
    due: BinaryHeap<Reverse<(Timestamp, usize)>>,
    attempts: Vec<u32>,
    unfinished: usize,
    chance: Chance,
}

impl BackoffClient {
    const BASE: Nanos = Nanos::from_millis(100);
    const CAP: Nanos = Nanos::from_secs(20);

    /// A client that has all its records at once.
    pub fn new(records: usize, seed: u64) -> Self {
        BackoffClient {
            due: (0..records).map(|record| Reverse((Timestamp::EPOCH, record))).collect(),
            attempts: vec![0; records],
            unfinished: records,
            chance: Chance::new(seed),
        }
    }
}

impl BaselineClient for BackoffClient {
    fn send(&mut self, now: Timestamp) -> Vec<usize> {
        let mut sent = Vec::new();
        while self.due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            sent.extend(self.due.pop().map(|Reverse((_, record))| record));
        }
        sent
    }

    fn answer(&mut self, record: usize, accepted: bool, now: Timestamp) {
        if accepted {
            self.unfinished -= 1;
            return;
        }
        let attempts = &mut self.attempts[record];
        let bound = Self::BASE.get().saturating_mul(1 << (*attempts).min(30));
        *attempts += 1;
        let wait = self.chance.below(bound.min(Self::CAP.get()));
        self.due.push(Reverse((now.after(Nanos::new(wait)), record)));
    }

    fn next_send(&self) -> Option<Timestamp> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    fn has_finished(&self) -> bool {
        self.unfinished == 0
    }
}
