//! Leaky bucket as a queue: admitted requests leave at a constant pace.
//!
//! Each admitted request gets a delay; a caller that waits for it leaves exactly one interval after
//! the previous one. The queue holds a bounded number of waiting requests and refuses more. The
//! state is that of a token bucket: the instant at which the last admitted request leaves.
//!
//! There is no refund: giving back a turn would move every later turn.

use crate::bucket::{BucketMeter, Debt};
use crate::check_input::CheckInput;
use crate::decision::Decision;
use crate::period::Period;

/// An outflow of `amount` per `period` with room for `queue` waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    /// Holds the request that leaves and those that wait.
    pub(crate) meter: BucketMeter,
}

impl LeakyBucket {
    /// An outflow of `amount` per `period`; `queue` more may wait for their turn.
    ///
    /// An amount of zero refuses every cost. A queue of zero admits only what can leave at once. A
    /// queue is cut to 146 years.
    pub fn new(amount: u64, period: Period, queue: u64) -> Self {
        LeakyBucket { meter: BucketMeter::new(amount, period, queue.saturating_add(1)) }
    }

    /// How much leaves per period.
    pub const fn amount(&self) -> u64 {
        self.meter.amount
    }

    /// The period in which the amount leaves.
    pub const fn period(&self) -> Period {
        self.meter.period
    }

    /// How much may wait.
    pub const fn queue(&self) -> u64 {
        self.meter.units.saturating_sub(1)
    }

    /// The decision on a cost at this debt: an admitted request waits until the earlier ones have left.
    #[inline(always)]
    pub(crate) fn decision(&self, debt: Debt, input: CheckInput) -> Decision {
        let decision = self.meter.decision(debt, input);
        let delay = if decision.is_admitted() { self.meter.wait(debt) } else { decision.delay };
        Decision { delay, ..decision }
    }
}

#[cfg(test)]
mod tests;
