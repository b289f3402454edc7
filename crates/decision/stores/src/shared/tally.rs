//! Eventual limits: counted in this process, and added up at the remote on a beat.
//!
//! Each key has the remote's last total plus this node's own charges, and the sum of the charges that the remote has
//! not received yet. On each beat the keys that changed are sent in one batch, and the returned totals replace the old
//! ones. Keys that refused are sent too: otherwise a refund by another node would not end the refusal.
//!
//! Only charges that still count are sent: a charge whose window ended while the remote was unreachable is dropped.

use tidegate_algorithms::{CheckInput, Decision, Limit, State, Timestamp};

use super::node_share::{state_after, used};
use super::sharded_map::ShardedMap;
use super::transfer::Transfer;
use crate::batch::{Check, Key};
use crate::fingerprint::Fingerprint;

/// This node's counts of every eventual key.
#[derive(Debug)]
pub(crate) struct Tallies {
    counts: ShardedMap<Tally>,
}

#[derive(Debug)]
struct Tally {
    key: Key,
    limit: Limit,
    /// The remote's last total, plus the charges of this node since.
    state: State,
    /// Charges not sent to this region's remote yet.
    unsent: u64,
    /// Charges not handed to the other regions yet.
    region_units: u64,
    marked: bool,
}

/// The charges of one key since the last beat.
#[derive(Debug)]
pub(crate) struct Delta {
    /// For this region's remote; of 0 units if only the total is needed.
    pub(crate) transfer: Transfer,
    /// For the other regions.
    pub(crate) region_units: u64,
}

impl Tallies {
    /// Counts of about `keys_max` keys.
    pub(crate) fn new(keys_max: usize) -> Self {
        Tallies { counts: ShardedMap::new(keys_max) }
    }

    /// Decides a check; `None` if the key is new and the map is full. `now` is the remote's clock, which windows end
    /// by.
    #[inline]
    pub(crate) fn check(&self, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        let key = check.key.fingerprint;
        let mut shard = self.counts.lock(key);
        let tally = shard.get_or_insert(key, || Tally::new(check))?;
        if tally.limit != *check.limit {
            // The algorithm adapts a state of other parameters.
            tally.limit = check.limit.clone();
        }
        let decision = check.limit.check(&mut tally.state, check.input(now));
        tally.unsent = tally.unsent.saturating_add(decision.taken);
        tally.region_units = tally.region_units.saturating_add(decision.taken);
        if !std::mem::replace(&mut tally.marked, true) {
            shard.marked.push(key);
        }
        Some(decision)
    }

    /// The decision that a check would get; `None` if its key is unknown.
    pub(crate) fn peek(&self, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        self.counts.with(check.key.fingerprint, |tally| {
            check.limit.peek(&mut tally.state, check.input(now))
        })
    }

    /// Refunds a charge of a request that another check refused.
    pub(crate) fn uncharge(&self, check: &Check<'_>, now: Timestamp) {
        self.counts.with(check.key.fingerprint, |tally| {
            check.limit.refund(&mut tally.state, check.input(now));
            tally.unsent = tally.unsent.saturating_sub(check.cost);
            tally.region_units = tally.region_units.saturating_sub(check.cost);
        });
    }

    /// Takes the deltas of up to `keys_max` changed keys. They count as sent.
    pub(crate) fn drain(&self, keys_max: usize, now: Timestamp) -> Vec<Delta> {
        let mut deltas = Vec::new();
        for mut shard in self.counts.shards_in_rotation() {
            let shard = &mut *shard;
            let some = shard.marked.len().min(keys_max.saturating_sub(deltas.len()));
            for key in shard.marked.drain(..some) {
                if let Some(tally) = shard.values.get_mut(&key) {
                    deltas.push(tally.drain(now));
                }
            }
        }
        deltas
    }

    /// Drops idle keys from every `turns`th shard, starting at number `turn`.
    pub(crate) fn sweep(&self, now: Timestamp, turn: usize, turns: usize) {
        for mut shard in self.counts.shards_of_turn(turn, turns) {
            shard.values.retain(|_, tally| tally.marked || tally.state.idle_at() > now);
        }
    }

    /// Replaces the total of a key by the remote's, and adds the charges since the drain.
    pub(crate) fn learn(&self, key: Fingerprint, total: &Decision, now: Timestamp) {
        self.counts.with(key, |tally| {
            tally.state = state_after(&tally.limit, total, now);
            if tally.unsent > 0 {
                tally.limit.overcharge(&mut tally.state, CheckInput::new(tally.unsent, now));
            }
        });
    }

    /// Restores units that were not sent.
    pub(crate) fn put_back(&self, transfer: &Transfer) {
        let key = transfer.key.fingerprint;
        let mut shard = self.counts.lock(key);
        let Some(tally) = shard.values.get_mut(&key) else { return };
        tally.unsent = tally.unsent.saturating_add(transfer.units);
        if !std::mem::replace(&mut tally.marked, true) {
            shard.marked.push(key);
        }
    }

    /// How much of a charge still counts; the rest need not be sent.
    pub(crate) fn still_counts(&self, key: Fingerprint, units: u64, now: Timestamp) -> u64 {
        let counted = self.counts.with(key, |tally| used(&tally.limit, &mut tally.state, now));
        units.min(counted.unwrap_or(0))
    }

    /// The state of a key, as the starting point of an outage.
    pub(crate) fn state(&self, key: Fingerprint) -> Option<State> {
        self.counts.with(key, |tally| tally.state.clone())
    }

    /// Removes a key.
    pub(crate) fn forget(&self, key: Fingerprint) {
        self.counts.lock(key).values.remove(&key);
    }

    /// How many keys are counted.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }
}

impl Tally {
    fn new(check: &Check<'_>) -> Self {
        Tally {
            key: check.key,
            limit: check.limit.clone(),
            state: State::Unused,
            unsent: 0,
            region_units: 0,
            marked: false,
        }
    }

    fn drain(&mut self, now: Timestamp) -> Delta {
        let counted = used(&self.limit, &mut self.state, now);
        self.marked = false;
        let units = std::mem::take(&mut self.unsent).min(counted);
        Delta {
            transfer: Transfer { key: self.key, limit: self.limit.clone(), units },
            region_units: std::mem::take(&mut self.region_units).min(counted),
        }
    }
}
