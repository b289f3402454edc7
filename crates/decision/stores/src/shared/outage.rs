//! What decides while the remote cannot be asked.
//!
//! This node enforces its part of each limit, going on from its part of what
//! was last known, and notes what it admitted. When the remote is back, that is
//! charged there once, as far as it still counts: whole windows that passed
//! meanwhile are not brought back. Slots that are taken here keep their time
//! to live, on a lease or not: they end with this process, and nobody renews them.
//!
//! Places are bounded. Keys beyond them are limited by a share that knows
//! nothing of before, and are not charged afterwards.

use tidegate_algorithms::{CheckInput, Decision, Limit, State, Tenure, Timestamp};

use super::keyed::Keyed;
use super::known::{share, share_of_state, state_after, used};
use crate::batch::{Check, Key, Verb};
use crate::fingerprint::Fingerprint;
use crate::memory::{ConfigError, MemoryConfig, MemoryStore, WhenFull};

/// What keys beyond the bounded places take: a flood of them shares counters.
const BEYOND_BYTES: usize = 4 * 1024 * 1024;

/// This node's part of the limits it cannot ask about.
#[derive(Debug)]
pub(crate) struct Outage {
    shares: Keyed<Share>,
    beyond: MemoryStore,
    /// What the remote said last, of keys that are asked for each time.
    known: MemoryStore,
}

#[derive(Debug)]
struct Share {
    key: Key,
    /// As the remote is asked.
    limit: Limit,
    share: Limit,
    state: State,
    /// Admitted here, and not charged at the remote.
    owed: u64,
    /// Owed too, and on its way to the remote.
    paying: u64,
    /// The remote was back since: it may know more than this share does.
    settled: bool,
}

/// What the remote should be charged for a key.
#[derive(Debug)]
pub(crate) struct Debt {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) units: u64,
}

/// Whether the remote is to be charged later for what is admitted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// It did not see the request.
    Charge,
    /// It may have: charging it again could count the request twice.
    Leave,
}

impl Outage {
    /// Places for about so many keys, and bytes for what is known.
    ///
    /// # Errors
    /// When the bytes are too few to remember anything.
    pub(crate) fn new(
        keys_max: usize,
        known_bytes: usize,
        seed: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let memory = |budget_bytes, when_full| {
            MemoryStore::new(MemoryConfig { budget_bytes, when_full, seed })
        };
        Ok(Outage {
            shares: Keyed::new(keys_max),
            beyond: memory(BEYOND_BYTES, WhenFull::Approximate)?,
            known: memory(known_bytes, WhenFull::Allow)?,
        })
    }

    /// The remote's answer, to go on from when it cannot be asked any more.
    pub(crate) fn learn(&self, check: &Check<'_>, told: &Decision, now: Timestamp) {
        if check.limit.algorithm().holds_slots() {
            return;
        }
        let state = state_after(check.limit, told, now);
        self.known.put(check.key.fingerprint, state, now);
    }

    /// Forgets what was known of a key.
    pub(crate) fn forget(&self, key: Fingerprint) {
        self.known.remove(key);
        self.shares.lock(key).values.remove(&key);
    }

    /// Decides a check by this node's share. `state` is what is known of the
    /// key elsewhere, if it is.
    pub(crate) fn apply(
        &self,
        verb: Verb,
        check: &Check<'_>,
        state: Option<State>,
        nodes: usize,
        now: Timestamp,
        afterwards: Afterwards,
    ) -> Decision {
        let key = check.key.fingerprint;
        let mut part = self.shares.lock(key);
        let room = part.has_room();
        let share = match part.values.get_mut(&key) {
            Some(share) => share,
            None if room => {
                let known = state.clone().unwrap_or_else(|| self.known.get(key));
                let share = Share::new(check, known, nodes, now);
                part.values.entry(key).or_insert(share)
            }
            None => {
                let share = share(check.limit, nodes);
                let check = Check { limit: &share, tenure: Tenure::TimeToLive, ..*check };
                return self.beyond.act_one(verb, &check, now);
            }
        };
        share.refit(check, nodes);
        if share.settled {
            let known = state.unwrap_or_else(|| self.known.get(key));
            share.go_on_from(check, known, nodes, now);
        }
        share.apply(verb, check, now, afterwards)
    }

    /// Takes a charge back: its request was refused after all.
    pub(crate) fn uncharge(&self, check: &Check<'_>, now: Timestamp) {
        let mut part = self.shares.lock(check.key.fingerprint);
        if let Some(share) = part.values.get_mut(&check.key.fingerprint) {
            let ask = CheckInput { holder: check.holder, ..CheckInput::new(check.cost, now) };
            share.share.refund(&mut share.state, ask);
            share.owed = share.owed.saturating_sub(check.cost);
        }
    }

    /// Gives slots of a concurrency limit back that were held while the remote was away.
    pub(crate) fn give_back(&self, check: &Check<'_>, now: Timestamp) {
        let mut part = self.shares.lock(check.key.fingerprint);
        if let Some(share) = part.values.get_mut(&check.key.fingerprint) {
            let ask = CheckInput { holder: check.holder, ..CheckInput::new(check.cost, now) };
            share.share.refund(&mut share.state, ask);
        }
    }

    /// What the remote has to be charged, up to so many keys, once it is back;
    /// of keys that it can be asked for. Each of them is [`Self::paid`] or
    /// [`Self::unpaid`] afterwards. A share is kept until it is unused: should
    /// the remote fail again at once, what was admitted here must not be
    /// forgotten.
    pub(crate) fn settle(
        &self,
        keys_max: usize,
        now: Timestamp,
        may_ask: impl Fn(Key) -> bool,
    ) -> Vec<Debt> {
        let mut debts = Vec::new();
        for mut part in self.shares.parts_in_turn() {
            part.values.retain(|_, share| {
                if debts.len() >= keys_max || !may_ask(share.key) {
                    return true;
                }
                debts.extend(share.debt(now));
                share.settled = true;
                share.paying > 0 || share.state.idle_at() > now
            });
        }
        debts
    }

    /// The remote was charged, or it may have been.
    pub(crate) fn paid(&self, debt: &Debt) {
        self.with_share(debt, |share| share.paying = 0);
    }

    /// The remote was not charged.
    pub(crate) fn unpaid(&self, debt: &Debt) {
        self.with_share(debt, |share| {
            share.owed = share.owed.saturating_add(std::mem::take(&mut share.paying));
        });
    }

    fn with_share(&self, debt: &Debt, act: impl FnOnce(&mut Share)) {
        // A key that was reset meanwhile owes nothing.
        if let Some(share) =
            self.shares.lock(debt.key.fingerprint).values.get_mut(&debt.key.fingerprint)
        {
            act(share);
        }
    }

    /// How many keys still have to be charged.
    pub(crate) fn owing(&self) -> usize {
        let owing = |share: &&Share| share.owed > 0 || share.paying > 0;
        self.shares.parts().map(|part| part.values.values().filter(owing).count()).sum()
    }
}

impl Share {
    fn new(check: &Check<'_>, mut known: State, nodes: usize, now: Timestamp) -> Self {
        let share = share(check.limit, nodes);
        let state = share_of_state(check.limit, &mut known, &share, nodes, now);
        let (key, limit) = (check.key, check.limit.clone());
        Share { key, limit, share, state, owed: 0, paying: 0, settled: false }
    }

    /// Goes on from what the remote told since, or from what was admitted here,
    /// whichever is more.
    fn go_on_from(&mut self, check: &Check<'_>, known: State, nodes: usize, now: Timestamp) {
        let mut fresh = Share::new(check, known, nodes, now);
        let told = used(&fresh.share, &mut fresh.state, now);
        if told > used(&self.share, &mut self.state, now) {
            self.state = fresh.state;
        }
        self.share = fresh.share;
        self.settled = false;
    }

    /// Changed rules take effect in an outage too.
    fn refit(&mut self, check: &Check<'_>, nodes: usize) {
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
        afterwards: Afterwards,
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
        if afterwards == Afterwards::Charge {
            self.owed = self.owed.saturating_add(decision.taken);
        }
        decision
    }

    /// What the remote has to be charged: no more than still counts here.
    fn debt(&mut self, now: Timestamp) -> Option<Debt> {
        let slots = self.limit.algorithm().holds_slots();
        let units = std::mem::take(&mut self.owed).min(used(&self.share, &mut self.state, now));
        if units == 0 || slots {
            return None;
        }
        self.paying = units;
        Some(Debt { key: self.key, limit: self.limit.clone(), units })
    }
}
