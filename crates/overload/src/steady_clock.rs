//! A clock that never steps: it starts at an instant and counts from there.
//!
//! Leases and waits are spans, and a span must not change when somebody sets the
//! system's clock. It counts by tokio's clock, so timers and spans agree, also
//! when a test pauses it.

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tokio::time::Instant;

/// Counts from a given instant, steadily.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    start: Timestamp,
    began: Instant,
}

impl SteadyClock {
    /// A clock that shows `start` now. The hour of cohorts comes from it, so nodes should
    /// start from the time of day.
    pub fn starting_at(start: Timestamp) -> Self {
        SteadyClock { start, began: Instant::now() }
    }
}

impl Clock for SteadyClock {
    #[inline]
    fn now(&self) -> Timestamp {
        self.start.after(Nanos::from(self.began.elapsed()))
    }
}
