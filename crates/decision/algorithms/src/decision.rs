//! The answer of one limit.

use crate::time::Nanos;

/// Whether the cost was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The cost fits.
    Admitted,
    /// The cost does not fit now.
    Refused,
}

/// When the same cost would be admitted, if nothing else is charged meanwhile; in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// It was admitted: no need to wait.
    Now,
    /// After exactly this long, and not a nanosecond earlier; [`Nanos::MAX`] also stands for
    /// longer. If refused costs count, this refusal is included. Held slots come back when their
    /// holders are done, which cannot be predicted: this is as if they had been taken just now.
    After(Nanos),
    /// Never: the cost is larger than the limit.
    Never,
}

impl Retry {
    /// After the wait, or never if the cost is larger than the limit.
    #[inline]
    pub(crate) fn after_or_never(cost: u64, limit: u64, wait: impl FnOnce() -> Nanos) -> Self {
        if cost > limit { Retry::Never } else { Retry::After(wait()) }
    }
}

/// The answer of one limit to one [`CheckInput`](crate::CheckInput).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// Admitted or refused.
    pub outcome: Outcome,
    /// Units of the unused limit: burst, window quota, or slots.
    pub limit: u64,
    /// Units that could be used at once after this decision. Includes a soft allowance that is open
    /// or may open, so it can be more than `limit`.
    pub remaining: u64,
    /// Units that were charged: the cost of an admitted check, perhaps less for
    /// [`Limit::take`](crate::Limit::take), zero for a refusal or a peek.
    pub taken: u64,
    /// When a refused cost would be admitted.
    pub retry: Retry,
    /// Time until the limit is as good as unused, if nothing else is charged; for a fixed window,
    /// until it ends.
    pub reset_after: Nanos,
    /// How long the admitted request has to wait for its turn (leaky bucket).
    pub delay: Nanos,
    /// Whether it was admitted only because of a [`Soft`](crate::Soft) allowance.
    pub soft: bool,
}

impl Decision {
    /// Whether the cost was admitted.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.outcome, Outcome::Admitted)
    }

    /// An admission without a delay.
    pub const fn admitted(limit: u64, taken: u64, remaining: u64, reset: Nanos) -> Self {
        Decision {
            outcome: Outcome::Admitted,
            limit,
            remaining,
            taken,
            retry: Retry::Now,
            reset_after: reset,
            delay: Nanos::ZERO,
            soft: false,
        }
    }

    /// A refusal.
    pub const fn refused(limit: u64, remaining: u64, retry: Retry, reset: Nanos) -> Self {
        let admitted = Decision::admitted(limit, 0, remaining, reset);
        Decision { outcome: Outcome::Refused, retry, ..admitted }
    }
}
