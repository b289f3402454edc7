//! Decides while the remote is unreachable (`on_store_error: local`).
//!
//! This node enforces its share of each limit, starting from its share of the last known usage, and records what it
//! admits as a debt. When the remote answers again, the debt is charged there once, as far as it still counts: windows
//! that have ended are not charged. Slots that are taken during an outage have their time to live, and are not renewed.
//!
//! The number of keys is bounded. Further keys start from an unused share, and are not charged later.

use tidegate_algorithms::{Decision, Limit, State, Tenure, Timestamp};

use super::node_share::{share, share_of_state, state_after, used};
use super::sharded_map::ShardedMap;
use super::transfer::Transfer;
use crate::batch::{Check, Key, Verb};
use crate::fingerprint::Fingerprint;
use crate::memory::{ConfigError, MemoryConfig, MemoryStore, WhenFull};

/// Memory for keys beyond the bound; a flood of them shares counters.
const BEYOND_BYTES: usize = 4 * 1024 * 1024;

/// This node's shares of limits.
#[derive(Debug)]
pub(crate) struct Outage {
    shares: ShardedMap<LocalShare>,
    beyond: MemoryStore,
    /// The last known state of exact keys.
    known: MemoryStore,
}

#[derive(Debug)]
struct LocalShare {
    key: Key,
    /// The limit that the remote applies.
    limit: Limit,
    share: Limit,
    state: State,
    /// Admitted by this node, and not charged at the remote yet.
    owed: u64,
    /// Sent to the remote, and not answered yet.
    in_flight: u64,
    /// The remote has answered since, so its state may be newer.
    is_stale: bool,
}

/// Whether an admission is charged at the remote later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DebtPolicy {
    /// Yes: the remote did not see the request.
    Record,
    /// No: the remote may have charged it already.
    Skip,
}

impl Outage {
    /// Shares of about `keys_max` keys, and `known_bytes` of memory for last known states.
    ///
    /// # Errors
    /// When `known_bytes` is too small.
    pub(crate) fn new(
        keys_max: usize,
        known_bytes: usize,
        seed: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let memory = |budget_bytes, when_full| {
            MemoryStore::new(MemoryConfig { budget_bytes, when_full, seed })
        };
        Ok(Outage {
            shares: ShardedMap::new(keys_max),
            beyond: memory(BEYOND_BYTES, WhenFull::Approximate)?,
            known: memory(known_bytes, WhenFull::Allow)?,
        })
    }

    /// Remembers the remote's answer, as the starting point of an outage.
    pub(crate) fn learn(&self, check: &Check<'_>, decision: &Decision, now: Timestamp) {
        if check.limit.algorithm().holds_slots() {
            return;
        }
        let state = state_after(check.limit, decision, now);
        self.known.put(check.key.fingerprint, state, now);
    }

    /// Removes a key.
    pub(crate) fn forget(&self, key: Fingerprint) {
        self.known.remove(key);
        self.shares.lock(key).values.remove(&key);
    }

    /// Decides a check by this node's share. `state` is the last known state, if the caller has it.
    pub(crate) fn apply(
        &self,
        verb: Verb,
        check: &Check<'_>,
        state: Option<&State>,
        nodes: usize,
        now: Timestamp,
        debt_policy: DebtPolicy,
    ) -> Decision {
        let check = &Check { tenure: Tenure::TimeToLive, ..*check };
        let key = check.key.fingerprint;
        let known = || state.cloned().unwrap_or_else(|| self.known.get(key));
        let mut shard = self.shares.lock(key);
        let new = || LocalShare::new(check, known(), nodes, now);
        let Some(share) = shard.get_or_insert(key, new) else {
            let share = share(check.limit, nodes);
            let check = Check { limit: &share, ..*check };
            return self.beyond.apply_to_key(verb, &check, now).decision;
        };
        share.adopt_limit(check, nodes);
        if share.is_stale {
            share.merge_known(check, known(), nodes, now);
        }
        share.apply(verb, check, now, debt_policy)
    }

    /// Refunds a charge of a request that another check refused.
    pub(crate) fn uncharge(&self, check: &Check<'_>, now: Timestamp) {
        self.shares.with(check.key.fingerprint, |share| {
            share.share.refund(&mut share.state, check.input(now));
            share.owed = share.owed.saturating_sub(check.cost);
        });
    }

    /// Releases slots that were taken during the outage.
    pub(crate) fn give_back(&self, check: &Check<'_>, now: Timestamp) {
        self.shares.with(check.key.fingerprint, |share| {
            share.share.refund(&mut share.state, check.input(now))
        });
    }

    /// Takes the debts of up to `keys_max` reachable keys. The caller must call [`Self::paid`] or [`Self::unpaid`] for
    /// each. A share is kept until it is unused, because the remote may fail again.
    pub(crate) fn take_debts(
        &self,
        keys_max: usize,
        now: Timestamp,
        is_reachable: impl Fn(Key) -> bool,
    ) -> Vec<Transfer> {
        let mut debts = Vec::new();
        for mut shard in self.shares.shards_in_rotation() {
            shard.values.retain(|_, share| {
                if debts.len() >= keys_max || !is_reachable(share.key) {
                    return true;
                }
                debts.extend(share.debt(now));
                share.is_stale = true;
                share.in_flight > 0 || share.state.idle_at() > now
            });
        }
        debts
    }

    /// Notes that the remote was charged, or may have been. A key that was reset in between has no debt.
    pub(crate) fn paid(&self, debt: &Transfer) {
        self.shares.with(debt.key.fingerprint, |share| share.in_flight = 0);
    }

    /// Notes that the remote was not charged.
    pub(crate) fn unpaid(&self, debt: &Transfer) {
        self.shares.with(debt.key.fingerprint, |share| {
            share.owed = share.owed.saturating_add(std::mem::take(&mut share.in_flight));
        });
    }

    /// How many keys have debts.
    pub(crate) fn owing(&self) -> usize {
        let owing = |share: &&LocalShare| share.owed > 0 || share.in_flight > 0;
        self.shares.shards().map(|shard| shard.values.values().filter(owing).count()).sum()
    }
}

impl LocalShare {
    fn new(check: &Check<'_>, mut known: State, nodes: usize, now: Timestamp) -> Self {
        let share = share(check.limit, nodes);
        let state = share_of_state(check.limit, &mut known, &share, nodes, now);
        let (key, limit) = (check.key, check.limit.clone());
        LocalShare { key, limit, share, state, owed: 0, in_flight: 0, is_stale: false }
    }

    /// Continues from the remote's newer state or from this share, whichever has the higher usage.
    fn merge_known(&mut self, check: &Check<'_>, known: State, nodes: usize, now: Timestamp) {
        let mut fresh = LocalShare::new(check, known, nodes, now);
        let known = used(&fresh.share, &mut fresh.state, now);
        if known > used(&self.share, &mut self.state, now) {
            self.state = fresh.state;
        }
        self.share = fresh.share;
        self.is_stale = false;
    }

    /// Adopts a changed limit: new rules take effect during an outage too.
    fn adopt_limit(&mut self, check: &Check<'_>, nodes: usize) {
        if self.limit != *check.limit {
            self.share = share(check.limit, nodes);
            self.limit = check.limit.clone();
        }
    }

    fn apply(
        &mut self,
        verb: Verb,
        check: &Check<'_>,
        now: Timestamp,
        debt_policy: DebtPolicy,
    ) -> Decision {
        self.owed = match verb {
            Verb::Refund => self.owed.saturating_sub(check.cost),
            Verb::Reset => 0,
            Verb::Check | Verb::Peek | Verb::Take | Verb::Charge => self.owed,
        };
        let decision = verb.apply(&self.share, &mut self.state, check.input(now));
        if debt_policy == DebtPolicy::Record {
            self.owed = self.owed.saturating_add(decision.taken);
        }
        decision
    }

    /// Takes the debt: at most what still counts.
    fn debt(&mut self, now: Timestamp) -> Option<Transfer> {
        let slots = self.limit.algorithm().holds_slots();
        let units = std::mem::take(&mut self.owed).min(used(&self.share, &mut self.state, now));
        if units == 0 || slots {
            return None;
        }
        self.in_flight = units;
        Some(Transfer { key: self.key, limit: self.limit.clone(), units, is_ample: false })
    }
}
