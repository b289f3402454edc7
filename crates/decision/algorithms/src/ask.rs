//! What is asked of a limit.

use crate::period::Period;
use crate::time::Timestamp;

/// Who holds slots of a [`Concurrency`](crate::Concurrency) limit. Chosen by the caller, unique
/// among those in flight; other algorithms ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u64);

/// For how long slots of a [`Concurrency`](crate::Concurrency) limit are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tenure {
    /// For the limit's time to live: nobody renews them.
    #[default]
    TimeToLive,
    /// For a lease, because their holder renews them; never longer than the time to live.
    Lease(Period),
    /// Until they are given back, however long that takes: their holder cannot be gone while the
    /// state is there. Slots without a holder are taken for the time to live.
    Held,
}

impl Tenure {
    /// The lease, if it is one.
    pub const fn lease(self) -> Option<Period> {
        match self {
            Tenure::Lease(lease) => Some(lease),
            Tenure::TimeToLive | Tenure::Held => None,
        }
    }
}

impl From<Option<Period>> for Tenure {
    fn from(lease: Option<Period>) -> Self {
        lease.map_or(Tenure::TimeToLive, Tenure::Lease)
    }
}

/// One question to one limit: this much, now, for this holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How much of the limit the request uses. Zero is always admitted and charges nothing.
    pub cost: u64,
    /// The instant at which the question is judged.
    pub now: Timestamp,
    /// Who will hold the slots of a concurrency limit.
    pub holder: Holder,
    /// For how long slots are taken.
    pub tenure: Tenure,
}

impl Ask {
    /// A question without a holder.
    pub const fn new(cost: u64, now: Timestamp) -> Self {
        Ask { cost, now, holder: Holder(0), tenure: Tenure::TimeToLive }
    }

    /// The same question with another cost.
    #[must_use]
    pub const fn with_cost(self, cost: u64) -> Self {
        Ask { cost, ..self }
    }
}
