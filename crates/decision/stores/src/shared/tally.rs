//! Limits that are counted here and added up on a beat.
//!
//! Each key keeps what the remote last told, with this node's own charges on
//! top, and beside it what the remote has not been told yet. On each beat the
//! keys that changed are told, in one batch, and the totals that come back take
//! the place of what was known. Keys that refused are asked for too: only so
//! does a refusal end when others gave something back.
//!
//! What is told is never more than still counts: a charge whose window is over
//! while the remote was away is forgotten, not delivered late.

use tidegate_algorithms::{CheckInput, Decision, Limit, State, Timestamp};

use super::keyed::Keyed;
use super::known::{state_after, used};
use crate::batch::{Check, Key, Verb};
use crate::fingerprint::Fingerprint;

/// This node's counts of every eventual key.
#[derive(Debug)]
pub(crate) struct Tallies {
    counts: Keyed<Tally>,
}

#[derive(Debug)]
struct Tally {
    key: Key,
    limit: Limit,
    /// The last known total and what was charged here since.
    state: State,
    /// Charged here and not told to this region's remote.
    untold: u64,
    /// Charged here and not handed to the other regions.
    outward: u64,
    marked: bool,
}

/// What a remote should be told of a key.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    /// For this region's remote; nothing when only the total is wanted.
    pub(crate) units: u64,
    /// For the other regions.
    pub(crate) outward: u64,
}

impl Tallies {
    /// Counts of about so many keys at the most.
    pub(crate) fn new(keys_max: usize) -> Self {
        Tallies { counts: Keyed::new(keys_max) }
    }

    /// Decides a check here; nothing when there is no place for its key.
    /// `now` is the remote's clock: windows end by it.
    #[inline]
    pub(crate) fn check(&self, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        self.with(check, |tally| {
            let ask = CheckInput { holder: check.holder, ..CheckInput::new(check.cost, now) };
            let decision = check.limit.check(&mut tally.state, ask);
            tally.charged(decision.taken);
            decision
        })
    }

    /// What a check would be told, if its key is counted here.
    pub(crate) fn peek(&self, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        let mut part = self.counts.lock(check.key.fingerprint);
        let tally = part.values.get_mut(&check.key.fingerprint)?;
        Some(check.limit.peek(&mut tally.state, CheckInput::new(check.cost, now)))
    }

    /// Takes a charge back: its request was refused after all.
    pub(crate) fn uncharge(&self, check: &Check<'_>, now: Timestamp) {
        let mut part = self.counts.lock(check.key.fingerprint);
        if let Some(tally) = part.values.get_mut(&check.key.fingerprint) {
            check.limit.refund(&mut tally.state, CheckInput::new(check.cost, now));
            tally.untold = tally.untold.saturating_sub(check.cost);
            tally.outward = tally.outward.saturating_sub(check.cost);
        }
    }

    /// What has changed, up to so many keys. From here on it counts as told.
    pub(crate) fn drain(&self, keys_max: usize, now: Timestamp) -> Vec<Delta> {
        let mut deltas = Vec::new();
        for mut part in self.counts.parts_in_turn() {
            let part = &mut *part;
            let some = part.marked.len().min(keys_max.saturating_sub(deltas.len()));
            for key in part.marked.drain(..some) {
                if let Some(tally) = part.values.get_mut(&key) {
                    deltas.push(tally.drain(now));
                }
            }
        }
        deltas
    }

    /// Drops keys that no longer matter, from the `turn`th of `turns` parts.
    pub(crate) fn sweep(&self, now: Timestamp, turn: usize, turns: usize) {
        for mut part in self.counts.parts_of_turn(turn, turns) {
            part.values.retain(|_, tally| tally.marked || tally.state.idle_at() > now);
        }
    }

    /// The remote told the total of a key: it takes the place of what was known,
    /// under what was charged since the drain.
    pub(crate) fn learn(&self, key: Fingerprint, told: &Decision, now: Timestamp) {
        let mut part = self.counts.lock(key);
        if let Some(tally) = part.values.get_mut(&key) {
            tally.state = state_after(&tally.limit, told, now);
            if tally.untold > 0 {
                tally.limit.overcharge(&mut tally.state, CheckInput::new(tally.untold, now));
            }
        }
    }

    /// The remote was not told after all.
    pub(crate) fn put_back(&self, delta: &Delta) {
        let key = delta.key.fingerprint;
        let mut part = self.counts.lock(key);
        let part = &mut *part;
        if let Some(tally) = part.values.get_mut(&key) {
            tally.untold = tally.untold.saturating_add(delta.units);
            if !tally.marked {
                tally.marked = true;
                part.marked.push(key);
            }
        }
    }

    /// How much of a charge still counts; what no longer does need not be told.
    pub(crate) fn still_counts(&self, key: Fingerprint, units: u64, now: Timestamp) -> u64 {
        let mut part = self.counts.lock(key);
        part.values
            .get_mut(&key)
            .map_or(0, |tally| units.min(used(&tally.limit, &mut tally.state, now)))
    }

    /// What is known of a key, to go on from when the remote is away.
    pub(crate) fn state(&self, key: Fingerprint) -> Option<State> {
        self.counts.lock(key).values.get(&key).map(|tally| tally.state.clone())
    }

    /// A verb went to the remote directly; what is known here follows.
    pub(crate) fn follow(&self, verb: Verb, check: &Check<'_>, told: &Decision, now: Timestamp) {
        match verb {
            Verb::Reset => {
                self.counts.lock(check.key.fingerprint).values.remove(&check.key.fingerprint);
            }
            _ => self.learn(check.key.fingerprint, told, now),
        }
    }

    /// How many keys are counted here.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    fn with<T>(&self, check: &Check<'_>, act: impl FnOnce(&mut Tally) -> T) -> Option<T> {
        let key = check.key.fingerprint;
        let mut part = self.counts.lock(key);
        let part = &mut *part;
        let room = part.has_room();
        let tally = match part.values.get_mut(&key) {
            Some(tally) => tally,
            None if room => part.values.entry(key).or_insert_with(|| Tally::new(check)),
            None => return None,
        };
        if tally.limit != *check.limit {
            // The algorithm settles what was counted by other numbers.
            tally.limit = check.limit.clone();
        }
        let result = act(tally);
        if !tally.marked {
            tally.marked = true;
            part.marked.push(key);
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
            untold: 0,
            outward: 0,
            marked: false,
        }
    }

    fn charged(&mut self, units: u64) {
        self.untold = self.untold.saturating_add(units);
        self.outward = self.outward.saturating_add(units);
    }

    fn drain(&mut self, now: Timestamp) -> Delta {
        let counts = used(&self.limit, &mut self.state, now);
        self.marked = false;
        Delta {
            key: self.key,
            limit: self.limit.clone(),
            units: std::mem::take(&mut self.untold).min(counts),
            outward: std::mem::take(&mut self.outward).min(counts),
        }
    }
}
