//! One limit's answer.

use crate::time::Nanos;

/// Whether the cost was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The cost fits.
    Admitted,
    /// The cost does not fit now.
    Refused,
}

/// When the same cost would be admitted, if nothing else is charged meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It was admitted: no need to wait.
    Now,
    /// After exactly this long, and not a nanosecond earlier. [`Nanos::MAX`] stands for
    /// every longer wait too. Where refused costs count, this refusal is among them.
    /// Slots that are held come back when their holders are done, which nobody can foretell: they
    /// are told as if taken just now.
    After(Nanos),
    /// At no time: the cost is larger than the limit can ever hold.
    Never,
}

/// One limit's answer to one [`Ask`](crate::Ask).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// Admitted or refused.
    pub outcome: Outcome,
    /// What the limit allows when unused: burst, window quota, or slots.
    pub limit: u64,
    /// What could still be used at once after this decision. A soft limit whose allowance is
    /// open, or may open, includes it: this can then be more than `limit`.
    pub remaining: u64,
    /// How much was charged. Equals the cost of an admitted check, less for
    /// [`Limit::take`](crate::Limit::take), zero for a refusal or a peek.
    pub taken: u64,
    /// When a refused cost would be admitted.
    pub retry: Retry,
    /// Until the limit is as good as unused, if nothing else is charged; for a fixed window,
    /// until it ends.
    pub reset_after: Nanos,
    /// How long the admitted request should wait for its turn (leaky bucket).
    pub delay: Nanos,
    /// Admitted only because a [`Soft`](crate::Soft) allowance is running.
    pub soft: bool,
}

impl Decision {
    /// Whether the cost was let through.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.outcome, Outcome::Admitted)
    }

    /// An admission that waits for nothing; callers fill in what differs.
    pub(crate) const fn admitted(limit: u64, taken: u64, remaining: u64, reset: Nanos) -> Self {
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

    /// A refusal; nothing was charged.
    pub(crate) const fn refused(limit: u64, remaining: u64, retry: Retry, reset: Nanos) -> Self {
        Decision {
            outcome: Outcome::Refused,
            limit,
            remaining,
            taken: 0,
            retry,
            reset_after: reset,
            delay: Nanos::ZERO,
            soft: false,
        }
    }
}
