//! Which limits can be leased, and the terms of their leases.
//!
//! A unit that is taken at t and used up to a life L later may fall into a window in which the remote did not count it.
//! So the remote applies a tightened limit, whose windows reach L further back; `docs/consistency.md` has the proof.
//! The life depends only on the limit, so that every node sends the same parameters: a state that is read with another
//! period would lose counts.

use tidegate_algorithms::{Algorithm, Limit, Nanos, Period};

use crate::batch::{Check, Consistency};

/// The longest life of a slice: units lost in a crash are available again soon.
const LIFE_MAX: Nanos = Nanos::from_secs(1);
/// A shorter life would end between two renewals.
const LIFE_MIN: Nanos = Nanos::from_millis(20);
/// The cost of a life: a bucket loses at most this fraction of its burst, a sliding window of its rate.
const TIGHTENED_PART: u64 = 8;
/// Smaller limits are not leased: a slice would be one unit.
const CAPACITY_MIN: u64 = 16;

/// The terms under which slices of a limit are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    /// The limit that the remote applies.
    pub(crate) tightened: Limit,
    /// How long after it was taken a unit may be used.
    pub(crate) life: Nanos,
    /// Which unused units can be returned.
    pub(crate) returns: ReturnRule,
}

/// Which unused units can be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnRule {
    /// None: the refund would delete newer units of other nodes.
    Never,
    /// All, minus what has refilled since they were taken.
    LessRefill {
        /// How much refills.
        amount: u64,
        /// In how long.
        period: Period,
    },
    /// All, while the window lasts.
    InWindow,
}

/// The consistency at which a limit can be kept: `wanted`, or [`Consistency::Exact`] where the limit does not support
/// it.
///
/// Every check of such a limit is a call: of a leaky bucket, because it gives turns; of a concurrency limit, because it
/// holds slots; of a soft limit, because its allowance opens once; of a limit that counts refusals, because it has to
/// see them; and of a limit that is too small or too short to be cut into slices.
#[must_use]
pub fn consistency_for(wanted: Consistency, limit: &Limit) -> Consistency {
    let fits = match wanted {
        Consistency::Exact => false,
        Consistency::Leased => life(limit).is_some(),
        Consistency::Eventual => counts_plainly(limit),
    };
    if fits { wanted } else { Consistency::Exact }
}

impl LeaseTerms {
    /// The terms of a check's limit, if it is to be leased and can be.
    pub(crate) fn of_check(check: &Check<'_>) -> Option<LeaseTerms> {
        let is_leased = check.policy.consistency == Consistency::Leased;
        is_leased.then(|| LeaseTerms::of(check.limit)).flatten()
    }

    /// The terms of a limit, if it can be leased.
    pub(crate) fn of(limit: &Limit) -> Option<LeaseTerms> {
        let life = life(limit)?;
        let algorithm = limit.algorithm();
        let (tightened, returns) = match algorithm {
            Algorithm::TokenBucket(bucket) => {
                let (amount, period) = (bucket.amount(), bucket.period());
                let burst = bucket.burst().saturating_sub(refilled(amount, period, life));
                (algorithm.with_capacity(burst), ReturnRule::LessRefill { amount, period })
            }
            Algorithm::FixedWindow(_) => (algorithm.clone(), ReturnRule::InWindow),
            Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_) => {
                let longer = Period::new(sum(algorithm.period(), life).into()).ok()?;
                (algorithm.with_period(longer), ReturnRule::Never)
            }
            Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_) => return None,
        };
        Some(LeaseTerms { tightened: Limit::new(tightened), life, returns })
    }
}

/// How much refills in a span, rounded up.
pub(crate) fn refilled(amount: u64, period: Period, span: Nanos) -> u64 {
    let refilled = u128::from(amount) * u128::from(span.get());
    u64::try_from(refilled.div_ceil(u128::from(period.as_nanos()))).unwrap_or(u64::MAX)
}

/// Whether admitted costs are all that a limit counts.
fn counts_plainly(limit: &Limit) -> bool {
    limit.algorithm().is_counter() && limit.soft().is_none() && !limit.algorithm().counts_refused()
}

/// How long a slice of this limit may live, if it can be leased.
fn life(limit: &Limit) -> Option<Nanos> {
    if !counts_plainly(limit) || limit.algorithm().capacity() < CAPACITY_MIN {
        return None;
    }
    let span = match limit.algorithm() {
        // How long an empty bucket takes to fill.
        Algorithm::TokenBucket(bucket) => {
            let nanos = u128::from(bucket.burst()) * u128::from(bucket.period().as_nanos())
                / u128::from(bucket.amount().max(1));
            Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
        }
        // The tightened window is one life longer, and must not be too long.
        Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_)
            if sum(limit.algorithm().period(), LIFE_MAX) > Period::MAX.as_span() =>
        {
            return None;
        }
        Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_) | Algorithm::FixedWindow(_) => {
            limit.algorithm().period()
        }
        Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_) => return None,
    };
    let life = Nanos::new(span.get() / TIGHTENED_PART).min(LIFE_MAX);
    (life >= LIFE_MIN).then_some(life)
}

fn sum(one: Nanos, other: Nanos) -> Nanos {
    Nanos::new(one.get().saturating_add(other.get()))
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::{
        Concurrency, FixedWindow, LeakyBucket, SlidingLog, Soft, TokenBucket, Window,
    };

    use super::*;

    fn bucket(amount: u64, burst: u64) -> Limit {
        Limit::new(TokenBucket::new(amount, Period::SECOND, burst))
    }

    #[test]
    fn limits_that_cannot_be_leased_are_exact() {
        let soft = Soft { over_percent: 50, lasting: Period::SECOND };
        let window = FixedWindow::new(100, Window::Every(Period::MINUTE));
        for limit in [
            Limit::new(LeakyBucket::new(100, Period::SECOND, 100)),
            Limit::new(Concurrency::new(100, Period::MINUTE).unwrap()),
            bucket(100, 100).with_soft(soft),
            Limit::new(window.counting_refused(true)),
        ] {
            for mode in [Consistency::Leased, Consistency::Eventual] {
                assert_eq!(consistency_for(mode, &limit), Consistency::Exact, "{limit:?}");
            }
        }
        // Too small, too short, and not too either.
        assert_eq!(consistency_for(Consistency::Leased, &bucket(100, 15)), Consistency::Exact);
        assert_eq!(consistency_for(Consistency::Leased, &bucket(1000, 100)), Consistency::Exact);
        assert_eq!(consistency_for(Consistency::Leased, &bucket(100, 100)), Consistency::Leased);
        assert_eq!(consistency_for(Consistency::Eventual, &bucket(1000, 1)), Consistency::Eventual);
    }

    #[test]
    fn a_tightened_bucket_gives_up_what_refills_in_a_life() {
        let terms = LeaseTerms::of(&bucket(100, 100)).expect("large enough");
        assert_eq!(terms.life, Nanos::from_millis(125));
        assert_eq!(terms.tightened.algorithm().capacity(), 87);
        let slow = Limit::new(TokenBucket::new(600, Period::MINUTE, 600));
        let terms = LeaseTerms::of(&slow).expect("large enough");
        assert_eq!(terms.life, LIFE_MAX);
        assert_eq!(terms.tightened.algorithm().capacity(), 590);
    }

    #[test]
    fn a_tightened_window_reaches_one_life_further_back() {
        let log = Limit::new(SlidingLog::new(100, Period::SECOND).unwrap());
        let terms = LeaseTerms::of(&log).expect("large enough");
        assert_eq!(terms.tightened.algorithm().period(), Nanos::from_millis(1125));
        let longest = Limit::new(SlidingLog::new(100, Period::MAX).unwrap());
        assert_eq!(LeaseTerms::of(&longest), None);
    }
}
