//! Rounds a limit to numbers that the script can represent.
//!
//! The server's clock counts microseconds, and Lua's doubles are exact up to 2⁵³. Periods and slices of sliding windows
//! are rounded up to whole microseconds, and the quota of a sliding window is capped at 2⁵³. Almost every limit is used
//! unchanged.

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{Algorithm, Limit, Period, Soft};

use crate::batch::Check;

/// The largest count that a double holds exactly.
pub(crate) const COUNT_MAX: u64 = (1 << 53) - 1;

/// Nanoseconds in a microsecond.
pub(crate) const MICRO: u64 = 1_000;

/// The limits of these checks in numbers that the script can represent.
pub(crate) fn rounded_limits<'a>(checks: &[Check<'a>]) -> SmallVec<[Cow<'a, Limit>; 4]> {
    checks.iter().map(|check| rounded_limit(check.limit)).collect()
}

/// The limit in numbers that the script can represent.
fn rounded_limit(limit: &Limit) -> Cow<'_, Limit> {
    if is_exact(limit) { Cow::Borrowed(limit) } else { Cow::Owned(round(limit)) }
}

fn is_exact(limit: &Limit) -> bool {
    let soft = limit.soft().is_none_or(|soft| is_whole(soft.lasting.as_nanos()));
    let own = match limit.algorithm() {
        Algorithm::SlidingWindow(window) => {
            is_whole(window.slice().get()) && limit.kept_by().quota() <= COUNT_MAX
        }
        algorithm => is_whole(algorithm.period().get()),
    };
    soft && own
}

const fn is_whole(nanos: u64) -> bool {
    nanos.is_multiple_of(MICRO)
}

#[cold]
fn round(limit: &Limit) -> Limit {
    let algorithm = limit.algorithm();
    let rounded = match algorithm {
        Algorithm::SlidingWindow(window) => {
            let slice = window.slice().get().div_ceil(MICRO) * MICRO;
            let period = whole(slice.saturating_mul(u64::from(window.slices())));
            // The quota includes the soft limit's allowance.
            let over = u128::from(limit.soft().map_or(0, |soft| soft.over_percent)) + 100;
            let most = u64::try_from(u128::from(COUNT_MAX) * 100 / over).unwrap_or(COUNT_MAX);
            algorithm.with_period(period).with_capacity(window.limit().min(most))
        }
        _ => algorithm.with_period(whole(algorithm.period().get())),
    };
    let hard = Limit::new(rounded);
    match limit.soft() {
        Some(soft) => hard.with_soft(Soft { lasting: rounded_period(soft.lasting), ..soft }),
        None => hard,
    }
}

/// A period rounded up to whole microseconds.
pub(crate) fn rounded_period(period: Period) -> Period {
    whole(period.as_nanos())
}

/// A period of so many nanoseconds, rounded up to whole microseconds; at most the longest period.
fn whole(nanos: u64) -> Period {
    let nanos = nanos.div_ceil(MICRO).saturating_mul(MICRO);
    Period::new(Duration::from_nanos(nanos)).unwrap_or(Period::MAX)
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::{Concurrency, SlidingWindow, TokenBucket};

    use super::*;

    fn nanos(nanos: u64) -> Period {
        Period::new(Duration::from_nanos(nanos)).unwrap()
    }

    #[test]
    fn a_limit_of_whole_microseconds_is_unchanged() {
        let limit = Limit::new(TokenBucket::new(5, nanos(1_234_567_000), 9));
        assert!(matches!(rounded_limit(&limit), Cow::Borrowed(_)));
        let window = SlidingWindow::new(COUNT_MAX, Period::SECOND, 64).unwrap();
        assert!(matches!(rounded_limit(&Limit::new(window)), Cow::Borrowed(_)));
    }

    #[test]
    fn a_period_between_microseconds_is_rounded_up() {
        let limit = Limit::new(TokenBucket::new(5, nanos(1_234_567_001), 9));
        assert_eq!(
            *rounded_limit(&limit),
            Limit::new(TokenBucket::new(5, nanos(1_234_568_000), 9))
        );
        let slots = Limit::new(Concurrency::new(5, nanos(1_000_001)).unwrap());
        assert_eq!(rounded_limit(&slots).algorithm().period().get(), 1_001_000);
    }

    #[test]
    fn slices_between_microseconds_are_rounded_up() {
        let limit = Limit::new(SlidingWindow::new(5, Period::SECOND, 3).unwrap());
        assert_eq!(rounded_limit(&limit).algorithm().period().get(), 3 * 333_334_000);
    }

    #[test]
    fn a_quota_that_cannot_be_counted_is_capped() {
        let soft = Soft { over_percent: 50, lasting: Period::SECOND };
        let huge = SlidingWindow::new(u64::MAX, Period::SECOND, 1).unwrap();
        let limit = Limit::new(huge).with_soft(soft);
        let rounded = rounded_limit(&limit);
        assert!(rounded.kept_by().quota() <= COUNT_MAX);
        assert!(rounded.kept_by().quota() > COUNT_MAX - 3);
    }
}
