//! One key by itself: one lock, one lookup.

use tidegate_algorithms::{
    BucketState, Decision, Limit, Small, SmallLimit, Taken, Timestamp, TokenBucket,
};

use super::lock::Held;
use super::shard::Wanted;
use super::slot::Pack;
use super::{MemoryStore, ask};
use crate::batch::{Answer, Basis, Check, Key};
use crate::fingerprint::Fingerprint;

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
    ///
    /// One unit of a token bucket, the commonest check of all, is decided on a
    /// way of its own that goes straight through: whatever is unusual about it
    /// is left to [`MemoryStore::check_one`], from the start.
    #[inline(always)]
    pub fn decide_one(&self, key: Key, limit: &Limit, cost: u64, now: Timestamp) -> Decision {
        let Key { fingerprint, group } = key;
        if cost == 1
            && let Some(Small::TokenBucket(bucket)) = limit.small()
            && let Some(decision) = self.take_unit(fingerprint, bucket, now)
        {
            return decision;
        }
        self.decide_otherwise(fingerprint, group, limit, cost, now)
    }

    /// Takes one unit of a known key. As in `admit_one`, the decision is made
    /// when the shard is free again.
    #[inline(always)]
    fn take_unit(
        &self,
        key: Fingerprint,
        bucket: &TokenBucket,
        now: Timestamp,
    ) -> Option<Decision> {
        let mut shard = self.lock(key);
        let slot = shard.slot(key)?;
        let before = BucketState::unpack(slot.bits())?;
        match bucket.take_unit(before, now)? {
            Taken::Fits(after) => {
                slot.put(after.pack()?);
                drop(shard);
                Some(bucket.tell_taken(after, now))
            }
            Taken::Refused => {
                drop(shard);
                Some(bucket.tell_refused(before, now))
            }
        }
    }

    // Not by key: it would be put into memory for this on every way.
    #[inline(never)]
    fn decide_otherwise(
        &self,
        fingerprint: Fingerprint,
        group: u64,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        self.check_one(&Check::new(Key { fingerprint, group }, limit, cost), now).decision
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
    ) -> Result<Decision, Held<'_>> {
        let (key, ask) = (check.key.fingerprint, ask(check, now));
        let mut shard = self.lock(key);
        let Some(usage) = shard.admit_in_place(key, limit, ask) else { return Err(shard) };
        drop(shard);
        Ok(limit.tell(usage, ask))
    }

    /// A new key, or one whose state does not fit into its slot.
    #[cold]
    fn check_elsewhere(&self, mut shard: Held<'_>, check: &Check<'_>, now: Timestamp) -> Answer {
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
