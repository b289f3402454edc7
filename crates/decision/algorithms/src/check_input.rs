//! The input of a check.

use crate::period::Period;
use crate::time::Timestamp;

/// The id of the holder of slots of a [`Concurrency`](crate::Concurrency) limit, chosen by the
/// caller and unique among the requests in flight. Zero is an anonymous holder. Other algorithms
/// ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u64);

/// For how long slots of a [`Concurrency`](crate::Concurrency) limit are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tenure {
    /// For the limit's time to live: their holder does not renew them.
    #[default]
    TimeToLive,
    /// For a lease, because their holder renews them; never longer than the time to live.
    Lease(Period),
    /// Until they are given back: their holder lives as long as the state. An anonymous holder's
    /// slots are taken for the time to live.
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

/// What a limit decides on: a cost, the present instant, and a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckInput {
    /// Units that the request takes. Zero is always admitted and charges nothing.
    pub cost: u64,
    /// The present instant.
    pub now: Timestamp,
    /// The holder of the slots of a concurrency limit.
    pub holder: Holder,
    /// For how long slots are taken.
    pub tenure: Tenure,
}

impl CheckInput {
    /// A cost with an anonymous holder.
    pub const fn new(cost: u64, now: Timestamp) -> Self {
        CheckInput { cost, now, holder: Holder(0), tenure: Tenure::TimeToLive }
    }

    /// The same input with another cost.
    #[must_use]
    pub const fn with_cost(self, cost: u64) -> Self {
        CheckInput { cost, ..self }
    }
}
