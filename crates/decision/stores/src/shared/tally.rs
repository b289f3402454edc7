//! Eventual limits: counted in this process, and added up at the remote on a beat.
//!
//! Each key has the remote's last total plus this node's own charges, and the sum of the charges that the remote has not
//! received yet. On each beat the keys that changed are sent in one batch, and the returned totals replace the old
//! ones. Keys that refused are sent too: otherwise a refund by another node would not end the refusal.
//!
//! Only charges that still count are sent: a charge whose window ended while the remote was unreachable is dropped.

use tidegate_algorithms::{CheckInput, Decision, Limit, State, Timestamp};

use super::node_share::{state_after, used};
use super::sharded_map::ShardedMap;
use crate::batch::{Check, Key, Verb};
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
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    /// For this region's remote; 0 if only the total is needed.
    pub(crate) units: u64,
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
        self.with(check, |tally| {
            let ask = CheckInput { holder: check.holder, ..CheckInput::new(check.cost, now) };
            let decision = check.limit.check(&mut tally.state, ask);
            tally.charged(decision.taken);
            decision
        })
    }

    /// The decision that a check would get; `None` if its key is unknown.
    pub(crate) fn peek(&self, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        let mut shard = self.counts.lock(check.key.fingerprint);
        let tally = shard.values.get_mut(&check.key.fingerprint)?;
        Some(check.limit.peek(&mut tally.state, CheckInput::new(check.cost, now)))
    }

    /// Refunds a charge of a request that another check refused.
    pub(crate) fn uncharge(&self, check: &Check<'_>, now: Timestamp) {
        let mut shard = self.counts.lock(check.key.fingerprint);
        if let Some(tally) = shard.values.get_mut(&check.key.fingerprint) {
            check.limit.refund(&mut tally.state, CheckInput::new(check.cost, now));
            tally.unsent = tally.unsent.saturating_sub(check.cost);
            tally.region_units = tally.region_units.saturating_sub(check.cost);
        }
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
        let mut shard = self.counts.lock(key);
        if let Some(tally) = shard.values.get_mut(&key) {
            tally.state = state_after(&tally.limit, total, now);
            if tally.unsent > 0 {
                tally.limit.overcharge(&mut tally.state, CheckInput::new(tally.unsent, now));
            }
        }
    }

    /// Restores the units of a delta that was not sent.
    pub(crate) fn put_back(&self, delta: &Delta) {
        let key = delta.key.fingerprint;
        let mut shard = self.counts.lock(key);
        let shard = &mut *shard;
        if let Some(tally) = shard.values.get_mut(&key) {
            tally.unsent = tally.unsent.saturating_add(delta.units);
            if !tally.marked {
                tally.marked = true;
                shard.marked.push(key);
            }
        }
    }

    /// How much of a charge still counts; the rest need not be sent.
    pub(crate) fn still_counts(&self, key: Fingerprint, units: u64, now: Timestamp) -> u64 {
        let mut shard = self.counts.lock(key);
        shard
            .values
            .get_mut(&key)
            .map_or(0, |tally| units.min(used(&tally.limit, &mut tally.state, now)))
    }

    /// The state of a key, as the starting point of an outage.
    pub(crate) fn state(&self, key: Fingerprint) -> Option<State> {
        self.counts.lock(key).values.get(&key).map(|tally| tally.state.clone())
    }

    /// Updates the key after the remote applied a verb to it.
    pub(crate) fn follow(
        &self,
        verb: Verb,
        check: &Check<'_>,
        decision: &Decision,
        now: Timestamp,
    ) {
        match verb {
            Verb::Reset => {
                self.counts.lock(check.key.fingerprint).values.remove(&check.key.fingerprint);
            }
            _ => self.learn(check.key.fingerprint, decision, now),
        }
    }

    /// How many keys are counted.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    fn with<T>(&self, check: &Check<'_>, act: impl FnOnce(&mut Tally) -> T) -> Option<T> {
        let key = check.key.fingerprint;
        let mut shard = self.counts.lock(key);
        let shard = &mut *shard;
        let room = shard.has_room();
        let tally = match shard.values.get_mut(&key) {
            Some(tally) => tally,
            None if room => shard.values.entry(key).or_insert_with(|| Tally::new(check)),
            None => return None,
        };
        if tally.limit != *check.limit {
            // The algorithm adapts a state of other parameters.
            tally.limit = check.limit.clone();
        }
        let result = act(tally);
        if !tally.marked {
            tally.marked = true;
            shard.marked.push(key);
        }
        Some(result)
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

    fn charged(&mut self, units: u64) {
        self.unsent = self.unsent.saturating_add(units);
        self.region_units = self.region_units.saturating_add(units);
    }

    fn drain(&mut self, now: Timestamp) -> Delta {
        let counts = used(&self.limit, &mut self.state, now);
        self.marked = false;
        Delta {
            key: self.key,
            limit: self.limit.clone(),
            units: std::mem::take(&mut self.unsent).min(counts),
            region_units: std::mem::take(&mut self.region_units).min(counts),
        }
    }
}
