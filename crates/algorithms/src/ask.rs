//! What is asked of a limit.

use crate::period::Period;
use crate::time::Timestamp;

/// Who holds slots of a [`Concurrency`](crate::Concurrency) limit. Chosen by the caller, unique
/// among those in flight; other algorithms ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u64);

/// One question to one limit: this much, now, for this holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How much of the limit the request uses. Zero is always admitted and charges nothing.
    pub cost: u64,
    /// The instant at which the question is judged.
    pub now: Timestamp,
    /// Who will hold the slots of a concurrency limit.
    pub holder: Holder,
    /// For how long slots are taken whose holder renews them; never longer
    /// than their limit's time to live, which holds when nothing is said.
    pub lease: Option<Period>,
}

impl Ask {
    /// A question without a holder, and so without a lease.
    pub const fn new(cost: u64, now: Timestamp) -> Self {
        Ask { cost, now, holder: Holder(0), lease: None }
    }

    /// The same question with another cost.
    #[must_use]
    pub const fn with_cost(self, cost: u64) -> Self {
        Ask { cost, ..self }
    }
}
