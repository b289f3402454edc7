//! When a failed record is tried again, and how many retries fresh records leave room for.
//!
//! Pure: a random number and counts in, a decision out.

use std::time::Duration;

use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_words::words;

/// How often and how soon a record is tried again. Throttled answers spend no attempt. The age of records is bounded by
/// their queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The longest wait after the first failure.
    pub base: Duration,
    /// The longest wait after any failure.
    pub cap: Duration,
    /// Failed attempts after which a record becomes a dead letter.
    pub attempts_max: u32,
}

impl Default for RetryPolicy {
    /// Waits of up to 0.5 s that double up to 5 minutes, ten attempts.
    fn default() -> Self {
        RetryPolicy {
            base: Duration::from_millis(500),
            cap: Duration::from_secs(300),
            attempts_max: 10,
        }
    }
}

/// What becomes of a record after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// It is tried again from this instant on.
    At(Timestamp),
    /// It has no attempt left.
    GiveUp,
}

impl RetryPolicy {
    /// Decides after the failed attempt with this number, from 1 on. `random` is any number: full jitter chooses each
    /// wait evenly between nothing and the longest.
    pub fn decide(&self, attempt: u32, random: u64, now: Timestamp) -> RetryDecision {
        if attempt >= self.attempts_max {
            return RetryDecision::GiveUp;
        }
        RetryDecision::At(now.after(self.wait(attempt, random)))
    }

    fn wait(&self, attempt: u32, random: u64) -> Nanos {
        let doublings = attempt.saturating_sub(1).min(62);
        let longest = Nanos::from(self.base).get().saturating_mul(1 << doublings);
        let longest = longest.min(Nanos::from(self.cap).get());
        let wait = u128::from(longest) * u128::from(random) / u128::from(u64::MAX);
        Nanos::new(u64::try_from(wait).unwrap_or(longest))
    }

    /// How long a throttled record waits: as after a first failure.
    pub fn throttled_until(&self, random: u64, now: Timestamp) -> Timestamp {
        now.after(self.wait(1, random))
    }
}

words! {
    /// What becomes of a record that was sent and whose answer was lost.
    #[derive(Default)]
    pub enum AmbiguousRule {
        /// It is tried again, as after a failure. For receivers that know the `Idempotency-Key`.
        #[default]
        Retry = "retry",
        /// It waits for `ambiguous_wait` before the next attempt, and its order key waits with it.
        Hold = "hold",
        /// It becomes a dead letter at once.
        Bury = "bury",
    }
}

/// Keeps retries below a fifth of all sends while fresh records wait.
///
/// Each fresh record earns a quarter of a retry. The account is bounded, so that a quiet hour does not pay for a storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// Quarters of a retry.
    quarters: u32,
}

impl RetryBudget {
    /// The most retries that are saved up.
    const SAVED_MAX: u32 = 10;

    /// An account with one retry.
    pub const fn new() -> Self {
        RetryBudget { quarters: 4 }
    }

    /// Counts a fresh record.
    pub fn earn(&mut self) {
        self.quarters = self.quarters.saturating_add(1).min(Self::SAVED_MAX * 4);
    }

    /// Takes a retry from the account; false if it has none.
    pub const fn spend(&mut self) -> bool {
        match self.quarters.checked_sub(4) {
            Some(left) => {
                self.quarters = left;
                true
            }
            None => false,
        }
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_attempt_gives_up() {
        let policy = RetryPolicy::default();
        let now = Timestamp::from_secs(100);
        assert_eq!(policy.decide(10, 0, now), RetryDecision::GiveUp);
        assert_eq!(policy.decide(9, 0, now), RetryDecision::At(now));
    }

    proptest! {
        #[test]
        fn waits_double_up_to_the_cap_with_full_jitter(attempt in 1_u32..9, random in any::<u64>()) {
            let now = Timestamp::from_secs(1);
            let longest = (500_u64 << (attempt - 1)).min(300_000);
            let RetryDecision::At(at) = RetryPolicy::default().decide(attempt, random, now) else {
                panic!("it has attempts left");
            };
            prop_assert!(at.since(now) <= Nanos::from_millis(longest));
            let latest = RetryPolicy::default().decide(attempt, u64::MAX, now);
            prop_assert_eq!(latest, RetryDecision::At(now.after(Nanos::from_millis(longest))));
        }

        #[test]
        fn retries_stay_below_a_fifth_of_the_sends(fresh in prop::collection::vec(any::<bool>(), 1..2_000)) {
            let mut budget = RetryBudget::new();
            let (mut sent, mut retries) = (0_u32, 0_u32);
            for is_fresh in fresh {
                if is_fresh {
                    budget.earn();
                    sent += 1;
                } else if budget.spend() {
                    retries += 1;
                    sent += 1;
                }
                prop_assert!(retries <= sent / 5 + 1, "{retries} of {sent}");
            }
        }
    }
}
