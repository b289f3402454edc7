//! Which mode fits which limit, and the terms of a lease.
//!
//! A unit that is taken at t and used up to a life L later may fall into a
//! window that the remote counted it outside of. So the remote is asked with a
//! tightened limit, whose windows reach L further back; `docs/consistency.md`
//! has the proof. The life depends on the limit alone, so that every node asks
//! with the same parameters: a state that is read by one period and then by
//! another would forget.

use tidegate_algorithms::{
    Algorithm, Limit, Nanos, Period, SlidingLog, SlidingWindow, TokenBucket, Window,
};

use crate::batch::Consistency;

/// No slice lives longer: what a crash loses comes back soon.
const LIFE_MAX: Nanos = Nanos::from_secs(1);
/// Shorter lives would end between two beats of the renewal.
const LIFE_MIN: Nanos = Nanos::from_millis(20);
/// What a life costs: a bucket loses this part of its burst, a sliding window
/// of its rate.
const TIGHTENED_PART: u64 = 8;
/// Smaller limits are asked for each time: a slice of them would be one unit.
const CAPACITY_MIN: u64 = 16;

/// How a leased limit is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The limit that the remote is asked with.
    pub(crate) tightened: Limit,
    /// How long after it was taken a unit may be used.
    pub(crate) life: Nanos,
    /// What may be given back of a slice that is not used.
    pub(crate) returns: Returns,
}

/// What may be given back of units that were not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    /// Nothing: the remote would take back somebody else's newer units.
    Never,
    /// All but what has refilled since they were taken.
    LessRefill {
        /// How much refills.
        amount: u64,
        /// In how long.
        period: Period,
    },
    /// Everything, as long as the window lasts.
    InWindow,
}

impl Consistency {
    /// The mode in which a limit can be kept: the one asked for, or
    /// [`Consistency::Exact`] where that one cannot hold its promise.
    ///
    /// A leaky bucket gives turns, a concurrency limit holds slots, a soft limit
    /// opens its allowance once, and a limit that counts refusals has to see
    /// them: all of these are asked for each time. So are limits that are too
    /// small, or too short, to be cut into slices.
    #[must_use]
    pub fn for_limit(self, limit: &Limit) -> Consistency {
        let fits = match self {
            Consistency::Exact => false,
            Consistency::Leased => life(limit).is_some(),
            Consistency::Eventual => counts_plainly(limit),
        };
        if fits { self } else { Consistency::Exact }
    }
}

impl Terms {
    /// The terms of a limit, if it can be leased.
    pub(crate) fn of(limit: &Limit) -> Option<Terms> {
        let life = life(limit)?;
        let longer = |period: Period| Period::new(sum(period.as_span(), life).into()).ok();
        let (tightened, returns): (Algorithm, Returns) = match limit.algorithm() {
            Algorithm::TokenBucket(bucket) => {
                let (amount, period) = (bucket.amount(), bucket.period());
                let burst = bucket.burst().saturating_sub(refilled(amount, period, life));
                let returns = Returns::LessRefill { amount, period };
                (TokenBucket::new(amount, period, burst).into(), returns)
            }
            Algorithm::FixedWindow(window) => (window.clone().into(), Returns::InWindow),
            Algorithm::SlidingLog(log) => {
                let log = SlidingLog::new(log.limit(), longer(log.period())?).ok()?;
                (log.into(), Returns::Never)
            }
            Algorithm::SlidingWindow(window) => {
                let period = longer(window.period())?;
                let window = SlidingWindow::new(window.limit(), period, window.slices()).ok()?;
                (window.into(), Returns::Never)
            }
            Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_) => return None,
        };
        Some(Terms { tightened: Limit::new(tightened), life, returns })
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
        Algorithm::SlidingLog(log) => fitting(log.period())?,
        Algorithm::SlidingWindow(window) => fitting(window.period())?,
        Algorithm::FixedWindow(window) => match window.window() {
            Window::Every(period) => period.as_span(),
            Window::Calendar(..) => Nanos::MAX,
        },
        Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_) => return None,
    };
    let life = Nanos::new(span.get() / TIGHTENED_PART).min(LIFE_MAX);
    (life >= LIFE_MIN).then_some(life)
}

/// A period that can still be made longer by a life.
fn fitting(period: Period) -> Option<Nanos> {
    let span = period.as_span();
    (sum(span, LIFE_MAX) <= Period::MAX.as_span()).then_some(span)
}

fn sum(one: Nanos, other: Nanos) -> Nanos {
    Nanos::new(one.get().saturating_add(other.get()))
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::{Concurrency, FixedWindow, LeakyBucket, Soft};

    use super::*;

    fn bucket(amount: u64, burst: u64) -> Limit {
        Limit::new(TokenBucket::new(amount, Period::SECOND, burst))
    }

    #[test]
    fn what_cannot_be_leased_is_asked_for_each_time() {
        let soft = Soft { over_percent: 50, lasting: Period::SECOND };
        let window = FixedWindow::new(100, Window::Every(Period::MINUTE));
        for limit in [
            Limit::new(LeakyBucket::new(100, Period::SECOND, 100)),
            Limit::new(Concurrency::new(100, Period::MINUTE).unwrap()),
            bucket(100, 100).with_soft(soft),
            Limit::new(window.counting_refused(true)),
        ] {
            for mode in [Consistency::Leased, Consistency::Eventual] {
                assert_eq!(mode.for_limit(&limit), Consistency::Exact, "{limit:?}");
            }
        }
        // Too small, too short, and not too either.
        assert_eq!(Consistency::Leased.for_limit(&bucket(100, 15)), Consistency::Exact);
        assert_eq!(Consistency::Leased.for_limit(&bucket(1000, 100)), Consistency::Exact);
        assert_eq!(Consistency::Leased.for_limit(&bucket(100, 100)), Consistency::Leased);
        assert_eq!(Consistency::Eventual.for_limit(&bucket(1000, 1)), Consistency::Eventual);
    }

    #[test]
    fn a_tightened_bucket_gives_up_what_refills_in_a_life() {
        let terms = Terms::of(&bucket(100, 100)).expect("large enough");
        assert_eq!(terms.life, Nanos::from_millis(125));
        assert_eq!(terms.tightened.algorithm().capacity(), 87);
        let slow = Limit::new(TokenBucket::new(600, Period::MINUTE, 600));
        let terms = Terms::of(&slow).expect("large enough");
        assert_eq!(terms.life, LIFE_MAX);
        assert_eq!(terms.tightened.algorithm().capacity(), 590);
    }

    #[test]
    fn a_tightened_window_reaches_one_life_further_back() {
        let log = Limit::new(SlidingLog::new(100, Period::SECOND).unwrap());
        let terms = Terms::of(&log).expect("large enough");
        assert_eq!(terms.tightened.algorithm().period(), Nanos::from_millis(1125));
        let longest = Limit::new(SlidingLog::new(100, Period::MAX).unwrap());
        assert_eq!(Terms::of(&longest), None);
    }
}
