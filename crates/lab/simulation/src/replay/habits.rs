//! Whether callers waited when the old rules refused them: what they will do under the new rules.
//!
//! A caller that was never refused is taken to do as the others did: the same share of such callers waits.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use tidegate_algorithms::{Nanos, Retry, Timestamp};
use tidegate_engine::Request;

use super::rule_set::{SetAnswer, hash_entries};

/// The most callers whose habits are followed.
const CALLERS_MAX: usize = 1_000_000;
/// A log of whole seconds may show a request so much too early.
const TOLERANCE: Nanos = Nanos::from_secs(1);

/// The hashes of the descriptors of a request.
#[derive(Debug)]
pub(crate) struct CallerKeys(SmallVec<[u64; 4]>);

impl CallerKeys {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        CallerKeys(request.descriptors.iter().map(|one| hash_entries(one.entries)).collect())
    }

    /// The caller that an answer refused: the descriptor that has a counter of its own at the limit, otherwise all
    /// descriptors together.
    pub(crate) fn refused(&self, answer: &SetAnswer) -> u64 {
        let own = self.0.get(answer.descriptor).copied().filter(|_| answer.per_caller);
        own.unwrap_or_else(|| self.together())
    }

    /// All callers that the request may be of.
    pub(crate) fn all(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied().chain([self.together()])
    }

    fn together(&self) -> u64 {
        self.0.iter().fold(1, |all, one| all.rotate_left(9) ^ one)
    }
}

/// Whether callers waited.
#[derive(Debug, Default)]
pub(crate) struct ClientHabits {
    /// Until when the last refusal asked each caller to wait.
    asked: HashMap<u64, Timestamp, FixedState>,
    /// How often each caller waited, less how often it went on.
    waited: HashMap<u64, i32, FixedState>,
    /// Callers that mostly wait.
    waiting: u64,
}

impl ClientHabits {
    /// Notes a request of the log, and what the old rules answer.
    pub(crate) fn observe(&mut self, keys: &CallerKeys, answer: &SetAnswer, now: Timestamp) {
        if !self.asked.is_empty() {
            for caller in keys.all() {
                if let Some(until) = self.asked.remove(&caller) {
                    self.note(caller, now.after(TOLERANCE) >= until);
                }
            }
        }
        if answer.admitted || self.asked.len() >= CALLERS_MAX || self.waited.len() >= CALLERS_MAX {
            return;
        }
        if let Retry::After(wait) = answer.retry {
            self.asked.insert(keys.refused(answer), now.after(wait));
        }
    }

    fn note(&mut self, caller: u64, waited: bool) {
        let score = self.waited.entry(caller).or_default();
        self.waiting -= u64::from(*score > 0);
        *score = score.saturating_add(if waited { 1 } else { -1 });
        self.waiting += u64::from(*score > 0);
    }

    /// Whether a caller waits when it is refused.
    pub(crate) fn waits(&self, caller: u64) -> bool {
        if let Some(score) = self.waited.get(&caller) {
            return *score > 0;
        }
        let known = u64::try_from(self.waited.len()).unwrap_or(u64::MAX);
        if known == 0 {
            return true;
        }
        // The hash of a caller is as good as a random number, and the same in each replay.
        caller.rotate_left(17) % known < self.waiting
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Descriptor, Entry};

    use super::*;

    fn keys(name: &str) -> CallerKeys {
        let entries = [Entry { key: "user", value: name }];
        CallerKeys::of(&Request::new("d", &[Descriptor::new(&entries)]))
    }

    fn answer(admitted: bool) -> SetAnswer {
        SetAnswer {
            admitted,
            retry: Retry::After(Nanos::from_secs(30)),
            descriptor: 0,
            per_caller: true,
            switched_or_undecided: false,
        }
    }

    #[test]
    fn a_caller_waits_if_it_mostly_waited_and_unknown_ones_do_as_the_others() {
        let mut habits = ClientHabits::default();
        let caller = |name: &str| keys(name).refused(&answer(false));
        assert!(habits.waits(caller("anybody")), "nothing is known yet");
        for name in ["patient", "hasty"] {
            habits.observe(&keys(name), &answer(false), Timestamp::from_secs(100));
        }
        habits.observe(&keys("hasty"), &answer(false), Timestamp::from_secs(105));
        habits.observe(&keys("patient"), &answer(true), Timestamp::from_secs(130));
        assert!(habits.waits(caller("patient")) && !habits.waits(caller("hasty")));
        let unknown = (0..1_000).filter(|number| habits.waits(caller(&number.to_string())));
        let waiting = unknown.count();
        assert!((400..600).contains(&waiting), "{waiting}");
    }

    #[test]
    fn a_limit_that_callers_share_does_not_make_them_one_caller() {
        let entries = [Entry { key: "kind", value: "all" }];
        let (ada, bob) = ([Entry { key: "user", value: "a" }], [Entry { key: "user", value: "b" }]);
        let of = |user: &[Entry<'_>]| {
            let descriptors = [Descriptor::new(&entries), Descriptor::new(user)];
            let keys = CallerKeys::of(&Request::new("d", &descriptors));
            keys.refused(&SetAnswer { per_caller: false, ..answer(false) })
        };
        assert_ne!(of(&ada), of(&bob));
    }
}
