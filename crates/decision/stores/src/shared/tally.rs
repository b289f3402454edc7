//! Eventual limits: counted in this process, and added up at every remote on a beat.
//!
//! Each key has the remote's last total plus this node's own charges, this node's own charges alone, and their sum since
//! the count began. On each beat the sums of the keys that changed are reported to every remote, and the totals that
//! this region's remote returns replace the old ones. Keys that refused are reported too: otherwise a refund by another
//! node would not end the refusal.
//!
//! A sum that a remote has not confirmed is reported again until it has, or until none of it counts any more.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::{SmallVec, smallvec};
use tidegate_algorithms::{CheckInput, Decision, Limit, Nanos, State, Timestamp};

use super::count_report::{CountReport, ReportAnswer};
use super::node_share::{state_after, used};
use super::sharded_map::{MapShard, ShardedMap};
use crate::batch::{Check, Key, Verb};
use crate::fingerprint::Fingerprint;

/// This node's counts of every eventual key.
#[derive(Debug)]
pub(crate) struct Tallies {
    counts: ShardedMap<Tally>,
    /// Where counts are reported: this region first, then the others.
    destinations: usize,
    /// The number of the next count.
    next_epoch: AtomicU64,
}

/// One of the remotes that counts are reported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination(pub(crate) usize);

impl Destination {
    /// The remote of this region.
    pub(crate) const OWN: Destination = Destination(0);
}

#[derive(Debug)]
struct Tally {
    key: Key,
    limit: Limit,
    /// The remote's last total, plus the charges of this node since.
    state: State,
    /// The charges of this node alone, for how many of them still count.
    own: State,
    epoch: u64,
    /// The sum of the charges of this node since the count began.
    total: u64,
    confirmations: SmallVec<[Confirmation; 1]>,
    marked: bool,
}

/// How much of a count a destination has confirmed.
#[derive(Clone, Copy, Debug, Default)]
struct Confirmation {
    total: u64,
    /// When the first unit beyond that was admitted, if there is one.
    since: Timestamp,
}

impl Tallies {
    /// Counts of about `keys_max` keys, reported to one destination.
    pub(crate) fn new(keys_max: usize) -> Self {
        Tallies {
            counts: ShardedMap::new(keys_max),
            destinations: 1,
            next_epoch: AtomicU64::new(1),
        }
    }

    /// Adds a destination.
    pub(crate) fn add_destination(&mut self) -> Destination {
        self.destinations += 1;
        Destination(self.destinations - 1)
    }

    /// Decides a check; `None` if the key is new and the map is full. `now` is the remote's clock, which windows end
    /// by.
    #[inline]
    pub(crate) fn check(&self, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        self.with_tally(check, |tally| {
            let decision = check.limit.check(&mut tally.state, check.input(now));
            tally.add(decision.taken, now);
            decision
        })
    }

    /// Applies a verb that charges; `None` if the key is new and the map is full.
    pub(crate) fn apply(&self, verb: Verb, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        self.with_tally(check, |tally| {
            let decision = verb.apply(check.limit, &mut tally.state, check.input(now));
            tally.add(decision.taken, now);
            decision
        })
    }

    /// Ensures that a key is counted; `false` if it is new and the map is full.
    pub(crate) fn ensure(&self, check: &Check<'_>) -> bool {
        self.with_tally(check, |_| ()).is_some()
    }

    #[inline]
    fn with_tally<T>(&self, check: &Check<'_>, act: impl FnOnce(&mut Tally) -> T) -> Option<T> {
        let key = check.key.fingerprint;
        let mut shard = self.counts.lock(key);
        let tally = shard.get_or_insert(key, || self.new_tally(check))?;
        if tally.limit != *check.limit {
            // The algorithm adapts a state of other parameters.
            tally.limit = check.limit.clone();
        }
        let result = act(tally);
        if !std::mem::replace(&mut tally.marked, true) {
            shard.marked.push(key);
        }
        Some(result)
    }

    #[cold]
    fn new_tally(&self, check: &Check<'_>) -> Tally {
        Tally {
            key: check.key,
            limit: check.limit.clone(),
            state: State::Unused,
            own: State::Unused,
            epoch: self.next_epoch.fetch_add(1, Ordering::Relaxed),
            total: 0,
            confirmations: smallvec![Confirmation::default(); self.destinations],
            marked: false,
        }
    }

    /// The decision that a check would get; `None` if its key is unknown.
    pub(crate) fn peek(&self, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        self.counts.with(check.key.fingerprint, |tally| {
            check.limit.peek(&mut tally.state, check.input(now))
        })
    }

    /// Refunds a charge of a request that another check refused. If it was reported meanwhile, the next units make up
    /// for it: the sum rises again to what was reported.
    pub(crate) fn uncharge(&self, check: &Check<'_>, now: Timestamp) {
        self.counts.with(check.key.fingerprint, |tally| {
            check.limit.refund(&mut tally.state, check.input(now));
            check.limit.refund(&mut tally.own, check.input(now));
            tally.total = tally.total.saturating_sub(check.cost);
        });
    }

    /// Passes on the keys that changed since the last call, with each destination that lacks counts of it.
    pub(crate) fn take_changed(&self, mut changed: impl FnMut(Fingerprint, Destination)) {
        for mut shard in self.counts.shards() {
            let MapShard { values, marked, .. } = &mut *shard;
            for key in marked.drain(..) {
                let Some(tally) = values.get_mut(&key) else { continue };
                tally.marked = false;
                for (index, confirmed) in tally.confirmations.iter().enumerate() {
                    if index == Destination::OWN.0 || tally.total > confirmed.total {
                        changed(key, Destination(index));
                    }
                }
            }
        }
    }

    /// The keys with counts of this node that still matter.
    pub(crate) fn current_keys(&self, now: Timestamp) -> Vec<Fingerprint> {
        let mut keys = Vec::new();
        for shard in self.counts.shards() {
            let current = shard.values.iter().filter(|(_, tally)| tally.own.idle_at() > now);
            keys.extend(current.map(|(key, _)| *key));
        }
        keys
    }

    /// Drops idle keys from every `turns`th shard, starting at number `turn`.
    pub(crate) fn sweep(&self, now: Timestamp, turn: usize, turns: usize) {
        for mut shard in self.counts.shards_of_turn(turn, turns) {
            shard.values.retain(|_, tally| {
                tally.marked || tally.state.idle_at() > now || tally.own.idle_at() > now
            });
        }
    }

    /// The report of a key to a destination; `None` if it is not counted any more.
    pub(crate) fn report(
        &self,
        key: Fingerprint,
        to: Destination,
        now: Timestamp,
    ) -> Option<CountReport> {
        self.counts.with(key, |tally| tally.report(to, now)).flatten()
    }

    /// Notes that a destination has received a report, which was made at `now`.
    pub(crate) fn confirm(&self, report: &CountReport, to: Destination, now: Timestamp) {
        self.counts.with(report.key.fingerprint, |tally| {
            if tally.epoch == report.epoch {
                tally.confirm(report, to, now);
            }
        });
    }

    /// Replaces the total of a key by the one that the remote returned to a report, and adds the charges since.
    pub(crate) fn learn_reported(
        &self,
        report: &CountReport,
        answer: &ReportAnswer,
        now: Timestamp,
    ) {
        self.counts.with(report.key.fingerprint, |tally| {
            if tally.epoch == report.epoch {
                tally.learn(&answer.decision, tally.total.saturating_sub(report.total), now);
            }
        });
    }

    /// Replaces the total of a key by the remote's, and adds the charges that the remote lacks.
    pub(crate) fn learn(&self, key: Fingerprint, total: &Decision, now: Timestamp) {
        self.counts.with(key, |tally| {
            let confirmed = tally.confirmations[Destination::OWN.0].total;
            tally.learn(total, tally.total.saturating_sub(confirmed), now);
        });
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
    #[inline]
    fn add(&mut self, units: u64, now: Timestamp) {
        if units == 0 {
            return;
        }
        self.limit.overcharge(&mut self.own, CheckInput::new(units, now));
        for confirmed in &mut self.confirmations {
            if self.total <= confirmed.total {
                confirmed.since = now;
            }
        }
        self.total = self.total.saturating_add(units);
    }

    fn report(&mut self, to: Destination, now: Timestamp) -> Option<CountReport> {
        let confirmed = self.confirmations.get(to.0)?;
        let is_unconfirmed = self.total > confirmed.total;
        Some(CountReport {
            key: self.key,
            limit: self.limit.clone(),
            epoch: self.epoch,
            total: self.total,
            confirmed: confirmed.total,
            current: used(&self.limit, &mut self.own, now).min(self.total),
            age: if is_unconfirmed { now.since(confirmed.since) } else { Nanos::ZERO },
        })
    }

    fn confirm(&mut self, report: &CountReport, to: Destination, now: Timestamp) {
        if let Some(confirmed) = self.confirmations.get_mut(to.0)
            && report.total >= confirmed.total
        {
            *confirmed = Confirmation { total: report.total, since: now };
        }
    }

    fn learn(&mut self, total: &Decision, missing: u64, now: Timestamp) {
        self.state = state_after(&self.limit, total, now);
        if missing > 0 {
            self.limit.overcharge(&mut self.state, CheckInput::new(missing, now));
        }
    }
}
