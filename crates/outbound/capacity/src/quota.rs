//! Limits over more than a minute: members take chunks of a counter that the document keeps.
//!
//! A member takes a chunk, a hundredth of the amount, ahead of what it sends, and spends it within the chunk's term; what
//! is left then is void. The document counts a chunk until its term and a whole window have passed.
//!
//! Bound: no window of the limit's length holds more than the amount. The chunks that were spent in a window were all
//! counted when the last of them was taken, and the chunks that are counted never add up to more than the amount.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tidegate_algorithms::{Nanos, Timestamp};

use crate::limits::TargetLimit;

/// The parts that an amount is taken in.
const CHUNKS: u64 = 100;
/// The shortest term of a chunk.
const TERM_MIN: Nanos = Nanos::from_secs(30);
/// Chunks that the document lists for one limit; beyond it the two oldest are counted as one.
const LISTED_MAX: usize = 200;

/// The chunks of one limit that count now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuotaLedger {
    chunks: Vec<QuotaChunk>,
}

/// Its number, its units, and until when it counts by the store's clock; zero if the store has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuotaChunk(u64, u64, u64);

impl QuotaChunk {
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// Until when it counts by the store's clock; zero if the store has none.
    pub(crate) const fn ends_ms(self) -> u64 {
        self.2
    }
}

/// What a member asks of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaDemand {
    /// The units that it can use soon.
    pub(crate) wants: u64,
    /// The units without which it cannot send its next record.
    pub(crate) needs: u64,
}

/// How long a member may spend a chunk of this limit.
pub(crate) fn term(limit: &TargetLimit) -> Nanos {
    Nanos::new(limit.window().get() / CHUNKS).max(TERM_MIN)
}

/// The largest chunk, unless one record costs more.
pub(crate) fn chunk_units(limit: &TargetLimit) -> u64 {
    (limit.amount / CHUNKS).max(1)
}

impl QuotaLedger {
    /// The units that count.
    pub(crate) fn taken(&self) -> u64 {
        self.chunks.iter().fold(0, |sum, chunk| sum.saturating_add(chunk.1))
    }

    pub(crate) fn chunks(&self) -> &[QuotaChunk] {
        &self.chunks
    }

    /// Drops the chunks that no longer count.
    pub(crate) fn drop_passed(&mut self, has_passed: impl Fn(&QuotaChunk) -> bool) {
        self.chunks.retain(|chunk| !has_passed(chunk));
    }

    /// Takes a chunk of the units that are wanted, and at least those that are needed, if so many are free. Returns its
    /// units.
    pub(crate) fn take(
        &mut self,
        limit: &TargetLimit,
        number: u64,
        demand: QuotaDemand,
        store_time_ms: Option<u64>,
    ) -> u64 {
        let free = limit.amount.saturating_sub(self.taken());
        let units = demand.wants.min(chunk_units(limit)).max(demand.needs).min(free);
        if units == 0 || units < demand.needs {
            return 0;
        }
        let counts_for = term(limit).get().saturating_add(limit.window().get()) / 1_000_000 + 1;
        let ends_ms = store_time_ms.map_or(0, |time| time.saturating_add(counts_for));
        self.chunks.push(QuotaChunk(number, units, ends_ms));
        if self.chunks.len() > LISTED_MAX {
            // Both count until the later end of the two: never less than they should.
            let oldest = self.chunks.remove(0);
            if let Some(next) = self.chunks.first_mut() {
                next.1 = next.1.saturating_add(oldest.1);
                next.2 = next.2.max(oldest.2);
            }
        }
        units
    }

    /// Adds the chunks that another ledger of the same limit knows: the store lost its document.
    pub(crate) fn merge(&mut self, known: &QuotaLedger) {
        for chunk in &known.chunks {
            if self.chunks.len() < 2 * LISTED_MAX && !self.chunks.iter().any(|own| own.0 == chunk.0)
            {
                self.chunks.push(*chunk);
            }
        }
        self.chunks.sort_by_key(|chunk| chunk.0);
    }
}

/// The chunks that a member may still spend.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaBudget {
    parts: VecDeque<(u64, Timestamp)>,
}

impl QuotaBudget {
    /// A chunk to be spent before `until`.
    pub(crate) fn add(&mut self, units: u64, until: Timestamp) {
        if units > 0 {
            self.parts.push_back((units, until));
        }
    }

    /// The units that it may spend now.
    pub(crate) fn available(&self, now: Timestamp) -> u64 {
        let valid = self.parts.iter().filter(|(_, until)| now < *until);
        valid.fold(0, |sum, (units, _)| sum.saturating_add(*units))
    }

    /// Spends units, those that end first before the others. More than there are leave nothing.
    pub(crate) fn spend(&mut self, cost: u64, now: Timestamp) {
        self.parts.retain(|(_, until)| now < *until);
        let mut left = cost;
        while let Some((units, _)) = self.parts.front_mut() {
            let part = left.min(*units);
            *units -= part;
            left -= part;
            if *units > 0 {
                break;
            }
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
