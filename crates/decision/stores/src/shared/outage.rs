//! Decides while the remote is unreachable (`on_store_error: local`).
//!
//! This node enforces its share of each limit, starting from its share of the last known usage, and records what it
//! admits as a debt. When the remote answers again, the debt is charged there once, as far as it still counts: windows
//! that have ended are not charged. Slots that are taken during an outage have their time to live, and are not renewed.
//!
//! The number of keys is bounded. Further keys start from an unused share, and are not charged later.

use tidegate_algorithms::{CheckInput, Decision, Limit, State, Tenure, Timestamp};

use super::node_share::{share, share_of_state, state_after, used};
use super::sharded_map::ShardedMap;
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

/// Units to charge at the remote.
#[derive(Debug)]
pub(crate) struct Debt {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) units: u64,
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
        state: Option<State>,
        nodes: usize,
        now: Timestamp,
        debt_policy: DebtPolicy,
    ) -> Decision {
        let key = check.key.fingerprint;
        let mut shard = self.shares.lock(key);
        let room = shard.has_room();
        let share = match shard.values.get_mut(&key) {
            Some(share) => share,
            None if room => {
                let known = state.clone().unwrap_or_else(|| self.known.get(key));
                let share = LocalShare::new(check, known, nodes, now);
                shard.values.entry(key).or_insert(share)
            }
            None => {
                let share = share(check.limit, nodes);
                let check = Check { limit: &share, tenure: Tenure::TimeToLive, ..*check };
                return self.beyond.act_one(verb, &check, now);
            }
        };
        share.adopt_limit(check, nodes);
        if share.is_stale {
            let known = state.unwrap_or_else(|| self.known.get(key));
            share.merge_known(check, known, nodes, now);
        }
        share.apply(verb, check, now, debt_policy)
    }

    /// Refunds a charge of a request that another check refused.
    pub(crate) fn uncharge(&self, check: &Check<'_>, now: Timestamp) {
        let mut shard = self.shares.lock(check.key.fingerprint);
        if let Some(share) = shard.values.get_mut(&check.key.fingerprint) {
            let ask = CheckInput { holder: check.holder, ..CheckInput::new(check.cost, now) };
            share.share.refund(&mut share.state, ask);
            share.owed = share.owed.saturating_sub(check.cost);
        }
    }

    /// Releases slots that were taken during the outage.
    pub(crate) fn give_back(&self, check: &Check<'_>, now: Timestamp) {
        let mut shard = self.shares.lock(check.key.fingerprint);
        if let Some(share) = shard.values.get_mut(&check.key.fingerprint) {
            let ask = CheckInput { holder: check.holder, ..CheckInput::new(check.cost, now) };
            share.share.refund(&mut share.state, ask);
        }
    }

    /// Takes the debts of up to `keys_max` reachable keys. The caller must call [`Self::paid`] or [`Self::unpaid`] for
    /// each. A share is kept until it is unused, because the remote may fail again.
    pub(crate) fn take_debts(
        &self,
        keys_max: usize,
        now: Timestamp,
        is_reachable: impl Fn(Key) -> bool,
    ) -> Vec<Debt> {
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

    /// Notes that the remote was charged, or may have been.
    pub(crate) fn paid(&self, debt: &Debt) {
        self.with_share(debt, |share| share.in_flight = 0);
    }

    /// Notes that the remote was not charged.
    pub(crate) fn unpaid(&self, debt: &Debt) {
        self.with_share(debt, |share| {
            share.owed = share.owed.saturating_add(std::mem::take(&mut share.in_flight));
        });
    }

    fn with_share(&self, debt: &Debt, act: impl FnOnce(&mut LocalShare)) {
        // A key that was reset in between has no debt.
        if let Some(share) =
            self.shares.lock(debt.key.fingerprint).values.get_mut(&debt.key.fingerprint)
        {
            act(share);
        }
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
        let ask = CheckInput { holder: check.holder, ..CheckInput::new(check.cost, now) };
        let (share, state) = (&self.share, &mut self.state);
        let decision = match verb {
            Verb::Check => share.check(state, ask),
            Verb::Peek => share.peek(state, ask),
            Verb::Take => share.take(state, ask),
            Verb::Refund => {
                self.owed = self.owed.saturating_sub(check.cost);
                share.refund(state, ask)
            }
            Verb::Reset => {
                (*state, self.owed) = (State::Unused, 0);
                share.peek(state, ask.with_cost(0))
            }
            Verb::Charge => share.overcharge(state, ask),
        };
        if debt_policy == DebtPolicy::Record {
            self.owed = self.owed.saturating_add(decision.taken);
        }
        decision
    }

    /// Takes the debt: at most what still counts.
    fn debt(&mut self, now: Timestamp) -> Option<Debt> {
        let slots = self.limit.algorithm().holds_slots();
        let units = std::mem::take(&mut self.owed).min(used(&self.share, &mut self.state, now));
        if units == 0 || slots {
            return None;
        }
        self.in_flight = units;
        Some(Debt { key: self.key, limit: self.limit.clone(), units })
    }
}
