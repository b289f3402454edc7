//! A clock for leases.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tidegate_algorithms::{Clock, Timestamp};

/// The time since the machine started. It also passes while the machine is suspended, and no one can set it: a lease
/// therefore ends on time, whatever happens to the wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Timestamp {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Timestamp::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }
}

/// The time of day, for numbers that must grow from one document of a target to the next, on whichever machine.
#[expect(clippy::disallowed_methods, reason = "no lease depends on it")]
pub(crate) fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
