//! The wait before the next attempt to connect: exponential, with jitter.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A server that restarts is back soon, so the first wait is short.
const FIRST: Duration = Duration::from_millis(20);

/// Each process tries an absent server about once a second.
const LONGEST: Duration = Duration::from_secs(1);

/// The wait after this many failed attempts in a row: doubled each time, and reduced at random by up to half, so that
/// processes do not reconnect at the same moment.
pub(crate) fn wait_after(failures: u32) -> Duration {
    spread(ceiling(failures), RandomState::new().build_hasher().finish())
}

fn ceiling(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST.saturating_mul(1 << doublings).min(LONGEST)
}

fn spread(longest: Duration, random: u64) -> Duration {
    let half = longest / 2;
    let steps = u32::try_from(random % 1024).unwrap_or(0);
    half + half * steps / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_second_and_no_further() {
        assert_eq!(ceiling(1), FIRST);
        assert_eq!(ceiling(2), FIRST * 2);
        assert_eq!(ceiling(7), LONGEST);
        assert_eq!(ceiling(u32::MAX), LONGEST);
    }

    #[test]
    fn waits_are_spread_over_the_upper_half() {
        assert_eq!(spread(LONGEST, 0), LONGEST / 2);
        for random in 0..4096 {
            let wait = spread(LONGEST, random);
            assert!(wait >= LONGEST / 2 && wait < LONGEST, "{wait:?}");
        }
    }
}
