//! A cache of the remote's refusals.
//!
//! A refusal says how long it lasts if nothing is refunded. Until then the same or a larger cost of the same limit is
//! refused without a call. Not cached are refusals that time alone does not end (slots of concurrency limits), and
//! those that change the state (limits that count refusals, and soft limits).
//!
//! This node does not see the refunds and resets of other nodes, so a refusal is cached only for a short time: that is
//! how late such a key is admitted again. A refund by this node takes effect immediately.

use tidegate_algorithms::{Decision, Limit, Nanos, Retry, Timestamp};

use super::sharded_map::ShardedMap;
use crate::batch::Check;
use crate::fingerprint::Fingerprint;

/// The most entries, of about 300 bytes each. Beyond it expired ones are evicted, and new ones not cached.
const REFUSALS_MAX: usize = 16_384;

/// A cache of refusals by key.
#[derive(Debug)]
pub(crate) struct RefusalCache {
    refusals: ShardedMap<CachedRefusal>,
    /// The longest time that an entry is valid; zero disables the cache.
    lasting: Nanos,
}

#[derive(Debug)]
struct CachedRefusal {
    limit: Limit,
    cost: u64,
    decision: Decision,
    at: Timestamp,
    until: Timestamp,
}

impl RefusalCache {
    /// A cache whose entries are valid for at most `lasting`.
    pub(crate) fn new(lasting: Nanos) -> Self {
        RefusalCache { refusals: ShardedMap::new(REFUSALS_MAX), lasting }
    }

    /// Caches a refusal of a call that was sent at `sent`. The remote decided later, so the refusal lasts at least as
    /// long.
    pub(crate) fn insert(&self, check: &Check<'_>, decision: &Decision, sent: Timestamp) {
        if self.lasting == Nanos::ZERO || !is_cacheable(check.limit) {
            return;
        }
        if decision.is_admitted() {
            // A smaller cost was charged, so the retry time of the entry is wrong.
            if decision.taken > 0 {
                self.remove(check.key.fingerprint);
            }
            return;
        }
        let span = match decision.retry {
            Retry::After(span) => span.min(self.lasting),
            Retry::Never => self.lasting,
            Retry::Now => return,
        };
        if span == Nanos::ZERO {
            return;
        }
        let until = sent.after(span);
        let mut shard = self.refusals.lock(check.key.fingerprint);
        if !shard.has_room() {
            shard.values.retain(|_, refusal| sent < refusal.until);
        }
        if shard.has_room() || shard.values.contains_key(&check.key.fingerprint) {
            let limit = check.limit.clone();
            let refusal =
                CachedRefusal { limit, cost: check.cost, decision: *decision, at: sent, until };
            shard.values.insert(check.key.fingerprint, refusal);
        }
    }

    /// The cached refusal, if it is valid for this check.
    pub(crate) fn refusal(&self, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        if self.lasting == Nanos::ZERO {
            return None;
        }
        let shard = self.refusals.lock(check.key.fingerprint);
        let refusal = shard.values.get(&check.key.fingerprint)?;
        let holds = refusal.at <= now
            && now < refusal.until
            && check.cost >= refusal.cost
            && *check.limit == refusal.limit;
        holds.then(|| refusal.decision_at(check.cost, now))
    }

    /// Removes a key: a refund may have ended the refusal.
    pub(crate) fn remove(&self, key: Fingerprint) {
        self.refusals.lock(key).values.remove(&key);
    }

    /// Removes all entries: the clock was set back.
    pub(crate) fn clear(&self) {
        self.refusals.shards().for_each(|mut shard| shard.values.clear());
    }
}

impl CachedRefusal {
    /// The refusal at a later time.
    fn decision_at(&self, cost: u64, now: Timestamp) -> Decision {
        let passed = now.since(self.at);
        let rest = |span: Nanos| Nanos::new(span.get().saturating_sub(passed.get()));
        let retry = match self.decision.retry {
            _ if cost > self.decision.limit => Retry::Never,
            Retry::After(span) => Retry::After(rest(span)),
            retry => retry,
        };
        Decision { retry, reset_after: rest(self.decision.reset_after), ..self.decision }
    }
}

/// Whether time alone ends a refusal, and a refusal does not change the state.
fn is_cacheable(limit: &Limit) -> bool {
    let slots = limit.algorithm().holds_slots();
    !slots && limit.soft().is_none() && !limit.algorithm().counts_refused()
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::{
        CheckInput, Concurrency, FixedWindow, Period, Soft, State, TokenBucket, Window,
    };

    use super::*;
    use crate::batch::Key;
    use crate::fingerprint::Fingerprinter;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn key() -> Key {
        Key { fingerprint: Fingerprinter::seeded(1).of(1, b"key"), group: 1 }
    }

    fn cache() -> RefusalCache {
        RefusalCache::new(Nanos::from_secs(1))
    }

    /// A limit that has just refused `cost`, and its decision.
    fn refused(limit: &Limit, cost: u64) -> Decision {
        let mut state = State::Unused;
        limit.overcharge(&mut state, CheckInput::new(limit.algorithm().capacity(), NOW));
        let decision = limit.check(&mut state, CheckInput::new(cost, NOW));
        assert!(!decision.is_admitted());
        decision
    }

    fn bucket() -> Limit {
        Limit::new(TokenBucket::new(10, Period::SECOND, 20))
    }

    fn remembers(cache: &RefusalCache, limit: &Limit, cost: u64, now: Timestamp) -> bool {
        cache.refusal(&Check::new(key(), limit, cost), now).is_some()
    }

    #[test]
    fn refuses_until_the_instant_at_which_the_remote_would_admit() {
        let (cache, limit) = (cache(), bucket());
        cache.insert(&Check::new(key(), &limit, 3), &refused(&limit, 3), NOW);
        let almost = NOW.after(Nanos::new(299_999_999));
        let refusal = cache.refusal(&Check::new(key(), &limit, 3), almost).expect("still over");
        assert_eq!(refusal.retry, Retry::After(Nanos::new(1)));
        assert!(!remembers(&cache, &limit, 3, NOW.after(Nanos::from_millis(300))));
    }

    #[test]
    fn a_larger_cost_is_refused_too_and_a_smaller_one_is_asked_for() {
        let (cache, limit) = (cache(), bucket());
        cache.insert(&Check::new(key(), &limit, 3), &refused(&limit, 3), NOW);
        assert!(remembers(&cache, &limit, 4, NOW));
        assert!(!remembers(&cache, &limit, 2, NOW));
        let never = cache.refusal(&Check::new(key(), &limit, 21), NOW).map(|refusal| refusal.retry);
        assert_eq!(never, Some(Retry::Never));
    }

    #[test]
    fn changed_rules_and_what_is_given_back_are_asked_for_again() {
        let (cache, limit) = (cache(), bucket());
        cache.insert(&Check::new(key(), &limit, 3), &refused(&limit, 3), NOW);
        let larger = Limit::new(TokenBucket::new(10, Period::SECOND, 40));
        assert!(!remembers(&cache, &larger, 3, NOW));
        cache.remove(key().fingerprint);
        assert!(!remembers(&cache, &limit, 3, NOW));
    }

    #[test]
    fn a_long_refusal_is_remembered_for_a_short_time() {
        let limit = Limit::new(FixedWindow::new(5, Window::Every(Period::DAY)));
        let cache = cache();
        cache.insert(&Check::new(key(), &limit, 1), &refused(&limit, 1), NOW);
        assert!(remembers(&cache, &limit, 1, NOW.after(Nanos::from_millis(999))));
        assert!(!remembers(&cache, &limit, 1, NOW.after(Nanos::from_secs(1))));
        assert!(!remembers(&cache, &limit, 1, Timestamp::from_secs(1)), "the clock was set back");
    }

    #[test]
    fn what_time_alone_does_not_free_is_not_remembered() {
        let window = FixedWindow::new(5, Window::Every(Period::DAY));
        let soft = Soft { over_percent: 10, lasting: Period::SECOND };
        let refusal = refused(&bucket(), 3);
        for limit in [
            Limit::new(window.counting_refused(true)),
            bucket().with_soft(soft),
            Limit::new(Concurrency::new(5, Period::MINUTE).unwrap()),
        ] {
            let cache = cache();
            cache.insert(&Check::new(key(), &limit, 3), &refusal, NOW);
            assert!(!remembers(&cache, &limit, 3, NOW), "{limit:?}");
        }
    }
}
