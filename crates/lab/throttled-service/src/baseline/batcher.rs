//! The arithmetic of go-batcher, version 2, for several processes that share partitions.
//!
//! Each process tries for one random partition that it does not hold, after a random time of up to half a second; a lease
//! lasts 15 seconds and is neither renewed nor given back. Every 100 ms it may send the whole part of a tenth of its
//! capacity, and stops only once it has passed that: the last record goes out however costly it is, and the excess is
//! forgotten. A throttled answer pauses the process for half a second. It keeps its records in memory.

use std::collections::VecDeque;

use tidegate_algorithms::{Nanos, Timestamp};

use super::BaselineClient;
use crate::chance::Chance;

/// The settings of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct BatcherSettings {
    /// The processes.
    pub processes: usize,
    /// The partitions that they share.
    pub partitions: usize,
    /// The units a second that a partition is worth.
    pub factor: u64,
    /// The units of each record.
    pub cost: u64,
    /// The seed.
    pub seed: u64,
}

/// Processes that share partitions. Each has an equal part of the records.
#[derive(Clone, Debug)]
pub struct BatcherFleet {
    settings: BatcherSettings,
    /// The holder of each partition, and when its lease ends.
    partitions: Vec<Option<(usize, Timestamp)>>,
    processes: Vec<BatcherProcess>,
    unfinished: usize,
    chance: Chance,
    attempts: u64,
    failed_attempts: u64,
    /// Held partitions times nanoseconds.
    held: u128,
    seen: Timestamp,
}

#[derive(Clone, Debug)]
struct BatcherProcess {
    buffer: VecDeque<usize>,
    next_flush: Timestamp,
    next_attempt: Timestamp,
    paused_until: Timestamp,
}

impl BatcherFleet {
    const FLUSH: Nanos = Nanos::from_millis(100);
    const LEASE: Nanos = Nanos::from_secs(15);
    const PAUSE: Nanos = Nanos::from_millis(500);
    const ATTEMPT_WITHIN: Nanos = Nanos::from_millis(500);

    /// A fleet with this many records.
    pub fn new(records: usize, settings: BatcherSettings) -> Self {
        let mut chance = Chance::new(settings.seed);
        let count = settings.processes.max(1);
        let processes = (0..count)
            .map(|process| BatcherProcess {
                buffer: (0..records).filter(|record| record % count == process).collect(),
                next_flush: Timestamp::EPOCH.after(Self::FLUSH),
                next_attempt: Timestamp::from_nanos(chance.below(Self::ATTEMPT_WITHIN.get())),
                paused_until: Timestamp::EPOCH,
            })
            .collect();
        BatcherFleet {
            settings,
            partitions: vec![None; settings.partitions],
            processes,
            unfinished: records,
            chance,
            attempts: 0,
            failed_attempts: 0,
            held: 0,
            seen: Timestamp::EPOCH,
        }
    }

    /// Attempts at a partition, and how many of them failed.
    pub const fn lease_attempts(&self) -> (u64, u64) {
        (self.attempts, self.failed_attempts)
    }

    /// The part of all partitions that was held on average, up to the last instant it was run.
    pub fn held_share(&self) -> f64 {
        let whole = u128::from(self.seen.as_nanos()) * self.partitions.len() as u128;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let share = self.held as f64 / whole.max(1) as f64;
        share
    }

    fn expire(&mut self, now: Timestamp) {
        let elapsed = u128::from(now.since(self.seen).get());
        self.held += elapsed * self.partitions.iter().flatten().count() as u128;
        self.seen = self.seen.max(now);
        for partition in &mut self.partitions {
            if partition.is_some_and(|(_, ends)| ends <= now) {
                *partition = None;
            }
        }
    }

    fn try_lease(&mut self, process: usize, now: Timestamp) {
        let state = &mut self.processes[process];
        let wait = Nanos::new(self.chance.below(Self::ATTEMPT_WITHIN.get()));
        state.next_attempt = now.after(wait);
        // A process asks for all capacity while it has records.
        if state.buffer.is_empty() {
            return;
        }
        let is_foreign = |holder: &Option<(usize, Timestamp)>| {
            holder.is_none_or(|(holder, _)| holder != process)
        };
        let open = self.partitions.iter().enumerate().filter(|(_, holder)| is_foreign(holder));
        let open: Vec<usize> = open.map(|(partition, _)| partition).collect();
        let drawn = self.chance.below(open.len() as u64);
        let drawn = usize::try_from(drawn).unwrap_or(0);
        let Some(&partition) = open.get(drawn) else { return };
        self.attempts += 1;
        match &mut self.partitions[partition] {
            Some(_) => self.failed_attempts += 1,
            free => *free = Some((process, now.after(Self::LEASE))),
        }
    }

    fn flush(&mut self, process: usize, now: Timestamp, sent: &mut Vec<usize>) {
        let held = self.partitions.iter().flatten().filter(|(holder, _)| *holder == process);
        let capacity = (held.count() as u64).saturating_mul(self.settings.factor);
        let state = &mut self.processes[process];
        state.next_flush = now.after(Self::FLUSH);
        if now < state.paused_until {
            return;
        }
        // Whole units only, and no memory of what was sent beyond.
        let quota = capacity / 10;
        let mut consumed = 0;
        while consumed < quota
            && let Some(record) = state.buffer.pop_front()
        {
            consumed += self.settings.cost;
            sent.push(record);
        }
    }
}

impl BaselineClient for BatcherFleet {
    fn send(&mut self, now: Timestamp) -> Vec<usize> {
        self.expire(now);
        let mut sent = Vec::new();
        for process in 0..self.processes.len() {
            if self.processes[process].next_attempt <= now {
                self.try_lease(process, now);
            }
            if self.processes[process].next_flush <= now {
                self.flush(process, now, &mut sent);
            }
        }
        sent
    }

    fn answer(&mut self, record: usize, accepted: bool, now: Timestamp) {
        if accepted {
            self.unfinished -= 1;
            return;
        }
        let process = record % self.processes.len();
        let state = &mut self.processes[process];
        state.buffer.push_back(record);
        state.paused_until = now.after(Self::PAUSE);
    }

    fn next_send(&self) -> Option<Timestamp> {
        if self.has_finished() {
            return None;
        }
        let times = self.processes.iter().map(|state| state.next_flush.min(state.next_attempt));
        times.min()
    }

    fn has_finished(&self) -> bool {
        self.unfinished == 0
    }
}
