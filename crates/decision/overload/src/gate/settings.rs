//! The settings of a gate.

use tidegate_algorithms::Nanos;

use crate::adaptive_limit::AdaptiveSettings;

/// The settings of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateSettings {
    /// The limit on requests in flight; at least one.
    pub limit: u64,
    /// The length of the queue in percent of the limit; at least one request.
    pub queue_percent: u64,
    /// The share of the limit, in percent, that only critical requests may use; at least one
    /// slot, unless the limit is one. Critical requests in flight count towards it.
    pub reserved_percent: u64,
    /// A queue that has not been empty for this long is a standing queue.
    pub standing_after: Nanos,
    /// The longest wait in a standing queue, or a tenth of the service time if that is
    /// longer. Critical requests may wait as long as in a burst.
    pub standing_wait_max: Nanos,
    /// The longest wait in a burst.
    pub burst_wait_max: Nanos,
    /// The watchdog reclaims a slot that is held for longer.
    pub hold_max: Nanos,
    /// Searches for the limit instead of keeping it fixed; none by default.
    pub adaptive: Option<AdaptiveSettings>,
}

impl GateSettings {
    /// The defaults for a limit: a queue of half the limit, 5 % reserved for critical requests.
    pub const fn new(limit: u64) -> Self {
        GateSettings {
            limit,
            queue_percent: 50,
            reserved_percent: 5,
            standing_after: Nanos::from_millis(100),
            standing_wait_max: Nanos::from_millis(5),
            burst_wait_max: Nanos::from_millis(100),
            hold_max: Nanos::from_secs(15 * 60),
            adaptive: None,
        }
    }
}
