//! A clock that follows tokio's time, also when a test pauses it, so that timers and spans agree to
//! the nanosecond. In production a [`SteadyClock`](crate::SteadyClock) is cheaper to read.

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tokio::time::Instant;

/// A clock of tokio's time.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Timestamp,
    began: Instant,
}

impl TokioClock {
    /// A clock that shows `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        TokioClock { start, began: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start.after(Nanos::from(self.began.elapsed()))
    }
}
