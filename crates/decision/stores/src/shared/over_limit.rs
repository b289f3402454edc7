//! Keys that the remote refused, until it could admit them again.
//!
//! A refusal tells how long it will last if nothing is given back. Until then
//! the same cost, or a larger one, of the same limit is refused here, without
//! asking. What time alone cannot free is not remembered: slots of concurrency
//! limits. Nor is what changes by being refused: limits that count refusals,
//! and soft ones.
//!
//! What other nodes give back or reset is not seen from here. A refusal is
//! therefore remembered for a short time at the most, which is how late such a
//! key is admitted again; what this node gives back takes effect at once.

use tidegate_algorithms::{Decision, Limit, Nanos, Retry, Timestamp};

use super::keyed::Keyed;
use crate::batch::Check;
use crate::fingerprint::Fingerprint;

/// A refusal takes about 300 bytes; a flood of keys finds the oldest gone.
const REFUSALS_MAX: usize = 16_384;

/// Remembers refusals.
#[derive(Debug)]
pub(crate) struct OverLimit {
    refusals: Keyed<Refusal>,
    /// The longest that one is remembered; zero remembers nothing.
    lasting: Nanos,
}

#[derive(Debug)]
struct Refusal {
    limit: Limit,
    cost: u64,
    decision: Decision,
    at: Timestamp,
    until: Timestamp,
}

impl OverLimit {
    /// Refusals are remembered for `lasting` at the most.
    pub(crate) fn new(lasting: Nanos) -> Self {
        OverLimit { refusals: Keyed::new(REFUSALS_MAX), lasting }
    }

    /// Remembers what the remote refused when it was asked at `sent`. It
    /// decided later than that, so its own refusal lasts at least as long.
    pub(crate) fn remember(&self, check: &Check<'_>, decision: &Decision, sent: Timestamp) {
        if self.lasting == Nanos::ZERO || !lasts(check.limit) {
            return;
        }
        if decision.is_admitted() {
            // A smaller cost was charged: a refusal would now tell other times.
            if decision.taken > 0 {
                self.forget(check.key.fingerprint);
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
        let mut part = self.refusals.lock(check.key.fingerprint);
        if !part.has_room() {
            part.values.retain(|_, refusal| sent < refusal.until);
        }
        if part.has_room() || part.values.contains_key(&check.key.fingerprint) {
            let limit = check.limit.clone();
            let refusal = Refusal { limit, cost: check.cost, decision: *decision, at: sent, until };
            part.values.insert(check.key.fingerprint, refusal);
        }
    }

    /// What the remote would answer, if that is known to be a refusal.
    pub(crate) fn refusal(&self, check: &Check<'_>, now: Timestamp) -> Option<Decision> {
        if self.lasting == Nanos::ZERO {
            return None;
        }
        let part = self.refusals.lock(check.key.fingerprint);
        let refusal = part.values.get(&check.key.fingerprint)?;
        let holds = refusal.at <= now
            && now < refusal.until
            && check.cost >= refusal.cost
            && *check.limit == refusal.limit;
        holds.then(|| refusal.told(check.cost, now))
    }

    /// Something was given back, or may have been.
    pub(crate) fn forget(&self, key: Fingerprint) {
        self.refusals.lock(key).values.remove(&key);
    }

    /// The clock cannot be trusted to say when a refusal ends.
    pub(crate) fn forget_all(&self) {
        self.refusals.parts().for_each(|mut part| part.values.clear());
    }
}

impl Refusal {
    /// The refusal as it reads some time later.
    fn told(&self, cost: u64, now: Timestamp) -> Decision {
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

/// Whether time alone ends a refusal, and a refusal changes nothing.
fn lasts(limit: &Limit) -> bool {
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

    fn cache() -> OverLimit {
        OverLimit::new(Nanos::from_secs(1))
    }

    /// A limit that has just refused `cost`, and what it said.
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

    fn remembers(cache: &OverLimit, limit: &Limit, cost: u64, now: Timestamp) -> bool {
        cache.refusal(&Check::new(key(), limit, cost), now).is_some()
    }

    #[test]
    fn refuses_until_the_instant_at_which_the_remote_would_admit() {
        let (cache, limit) = (cache(), bucket());
        cache.remember(&Check::new(key(), &limit, 3), &refused(&limit, 3), NOW);
        let almost = NOW.after(Nanos::new(299_999_999));
        let told = cache.refusal(&Check::new(key(), &limit, 3), almost).expect("still over");
        assert_eq!(told.retry, Retry::After(Nanos::new(1)));
        assert!(!remembers(&cache, &limit, 3, NOW.after(Nanos::from_millis(300))));
    }

    #[test]
    fn a_larger_cost_is_refused_too_and_a_smaller_one_is_asked_for() {
        let (cache, limit) = (cache(), bucket());
        cache.remember(&Check::new(key(), &limit, 3), &refused(&limit, 3), NOW);
        assert!(remembers(&cache, &limit, 4, NOW));
        assert!(!remembers(&cache, &limit, 2, NOW));
        let never = cache.refusal(&Check::new(key(), &limit, 21), NOW).map(|told| told.retry);
        assert_eq!(never, Some(Retry::Never));
    }

    #[test]
    fn changed_rules_and_what_is_given_back_are_asked_for_again() {
        let (cache, limit) = (cache(), bucket());
        cache.remember(&Check::new(key(), &limit, 3), &refused(&limit, 3), NOW);
        let larger = Limit::new(TokenBucket::new(10, Period::SECOND, 40));
        assert!(!remembers(&cache, &larger, 3, NOW));
        cache.forget(key().fingerprint);
        assert!(!remembers(&cache, &limit, 3, NOW));
    }

    #[test]
    fn a_long_refusal_is_remembered_for_a_short_time() {
        let limit = Limit::new(FixedWindow::new(5, Window::Every(Period::DAY)));
        let cache = cache();
        cache.remember(&Check::new(key(), &limit, 1), &refused(&limit, 1), NOW);
        assert!(remembers(&cache, &limit, 1, NOW.after(Nanos::from_millis(999))));
        assert!(!remembers(&cache, &limit, 1, NOW.after(Nanos::from_secs(1))));
        assert!(!remembers(&cache, &limit, 1, Timestamp::from_secs(1)), "a clock put back");
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
            cache.remember(&Check::new(key(), &limit, 3), &refusal, NOW);
            assert!(!remembers(&cache, &limit, 3, NOW), "{limit:?}");
        }
    }
}
