//! One key by itself: one lock, one lookup.

use parking_lot::MutexGuard;
use tidegate_algorithms::{Ask, Decision, Limit, Small, SmallLimit, Timestamp};

use super::shard::{Shard, Wanted};
use super::slot::Pack;
use super::{MemoryStore, ask};
use crate::batch::{Answer, Basis, Check, Key};

impl MemoryStore {
    /// One check by itself: one lock, one lookup.
    #[inline(always)]
    pub fn check_one(&self, check: &Check<'_>, now: Timestamp) -> Answer {
        let told = match check.limit.small() {
            Some(Small::TokenBucket(limit)) => self.admit_one(limit, check, now),
            Some(Small::LeakyBucket(limit)) => self.admit_one(limit, check, now),
            Some(Small::FixedWindow(limit)) => self.admit_one(limit, check, now),
            None => Err(self.lock(check.key.fingerprint)),
        };
        match told {
            Ok(decision) => Answer { decision, basis: Basis::Exact },
            Err(shard) => self.check_elsewhere(shard, check, now),
        }
    }

    /// The same as [`MemoryStore::check_one`] for those who hold no slots and do
    /// not ask what the decision rests on.
    #[inline]
    pub fn decide_one(&self, key: Key, limit: &Limit, cost: u64, now: Timestamp) -> Decision {
        match limit.small() {
            Some(Small::TokenBucket(small)) => self.decide_by(small, key, limit, cost, now),
            Some(Small::LeakyBucket(small)) => self.decide_by(small, key, limit, cost, now),
            Some(Small::FixedWindow(small)) => self.decide_by(small, key, limit, cost, now),
            None => self.decide_elsewhere(key, limit, cost, now),
        }
    }

    /// Decides by a limit whose state is in the key's slot, mostly. A function of
    /// its own: in the middle of a caller's code it has too few registers.
    #[inline(never)]
    fn decide_by<L: SmallLimit<State: Pack>>(
        &self,
        small: &L,
        key: Key,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let ask = Ask::new(cost, now);
        let mut shard = self.lock(key.fingerprint);
        let Some(usage) = shard.admit_in_place(key.fingerprint, small, ask) else {
            drop(shard);
            return self.decide_elsewhere(key, limit, cost, now);
        };
        drop(shard);
        small.tell(usage, ask)
    }

    #[cold]
    #[inline(never)]
    fn decide_elsewhere(&self, key: Key, limit: &Limit, cost: u64, now: Timestamp) -> Decision {
        let shard = self.lock(key.fingerprint);
        self.check_elsewhere(shard, &Check::new(key, limit, cost), now).decision
    }

    /// Checks a known key whose state is in its slot; the locked shard when it
    /// is anything else. The decision is made when the shard is free again:
    /// others need not wait until it is put into words.
    #[inline(always)]
    fn admit_one<L: SmallLimit<State: Pack>>(
        &self,
        limit: &L,
        check: &Check<'_>,
        now: Timestamp,
    ) -> Result<Decision, MutexGuard<'_, Shard>> {
        let (key, ask) = (check.key.fingerprint, ask(check, now));
        let mut shard = self.lock(key);
        let Some(usage) = shard.admit_in_place(key, limit, ask) else { return Err(shard) };
        drop(shard);
        Ok(limit.tell(usage, ask))
    }

    /// A new key, or one whose state does not fit into its slot.
    #[cold]
    fn check_elsewhere(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        check: &Check<'_>,
        now: Timestamp,
    ) -> Answer {
        let mut located = self.locate(&mut shard, check, Wanted::default(), now);
        let ask = located.ask(check, now);
        let state = &mut located.loaded.state;
        let decision = match located.basis {
            Basis::Full => check.limit.peek(state, ask),
            _ => check.limit.check(state, ask),
        };
        self.conclude(&mut shard, located, decision, now)
    }
}
