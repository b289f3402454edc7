//! The clock of a queue: the time of day when it was made, advanced by the monotonic clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tidegate_algorithms::{Clock, Nanos, Timestamp};

/// The time of day at the start, advanced by the monotonic clock.
///
/// A step of the system clock while the process runs neither ends leases early nor prolongs them.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    started: Instant,
    started_at: Timestamp,
}

impl WallClock {
    /// Reads the system clock.
    #[expect(clippy::disallowed_methods, reason = "this is the real clock")]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_at = Timestamp::EPOCH.after(Nanos::from(since_epoch));
        WallClock { started: Instant::now(), started_at }
    }
}

impl Default for WallClock {
    fn default() -> Self {
        WallClock::new()
    }
}

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the real clock")]
    fn now(&self) -> Timestamp {
        self.started_at.after(Nanos::from(self.started.elapsed()))
    }
}
