//! One key by itself: one lock, one lookup.

use parking_lot::MutexGuard;
use tidegate_algorithms::{Decision, Small, SmallLimit, Timestamp};

use super::shard::{Shard, Wanted};
use super::slot::Pack;
use super::{MemoryStore, ask};
use crate::batch::{Answer, Basis, Check};

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

    /// The same as [`MemoryStore::check_one`] for those who do not ask what the
    /// decision rests on.
    // By value: a check that is nowhere in memory until something is amiss
    // costs nothing to make.
    #[inline(always)]
    pub fn decide_one(&self, check: Check<'_>, now: Timestamp) -> Decision {
        let told = match check.limit.small() {
            Some(Small::TokenBucket(limit)) => self.admit_one(limit, &check, now),
            Some(Small::LeakyBucket(limit)) => self.admit_one(limit, &check, now),
            Some(Small::FixedWindow(limit)) => self.admit_one(limit, &check, now),
            None => Err(self.lock(check.key.fingerprint)),
        };
        match told {
            Ok(decision) => decision,
            // Apart: taking it out of an answer here would have both ways
            // make the decision in one place and move it to another, which
            // costs as much as making it.
            Err(shard) => self.decide_elsewhere(shard, check, now),
        }
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

    #[cold]
    #[inline(never)]
    fn decide_elsewhere(
        &self,
        shard: MutexGuard<'_, Shard>,
        check: Check<'_>,
        now: Timestamp,
    ) -> Decision {
        self.check_elsewhere(shard, &check, now).decision
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
        let state = &mut located.loaded.state;
        let decision = match located.basis {
            Basis::Full => check.limit.peek(state, ask(check, now)),
            _ => check.limit.check(state, ask(check, now)),
        };
        self.conclude(&mut shard, located, decision, now)
    }
}
