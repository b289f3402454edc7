//! A clock for leases.

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
