//! A request to the engine: descriptors and a cost.

use tidegate_algorithms::Limit;
use tidegate_rules::Entry;

/// One request, described by its descriptors. Borrows everything.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The domain whose rules apply.
    pub domain: &'a str,
    /// Each is matched separately; all limits that they match apply.
    pub descriptors: &'a [Descriptor<'a>],
    /// The cost, for descriptors without their own.
    pub cost: u64,
}

impl<'a> Request<'a> {
    /// A request of cost one.
    pub const fn new(domain: &'a str, descriptors: &'a [Descriptor<'a>]) -> Self {
        Request { domain, descriptors, cost: 1 }
    }

    /// The same request with another cost.
    #[must_use]
    pub const fn with_cost(self, cost: u64) -> Self {
        Request { cost, ..self }
    }
}

/// Ordered entries that identify the caller and what it asks for.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// The entries, in the order in which rules are nested.
    pub entries: &'a [Entry<'a>],
    /// The cost for the limits that this descriptor matches, if it differs from the request's.
    pub cost: Option<u64>,
    /// Whether the cost is refunded instead of charged. A refund is always admitted and does not affect the other
    /// descriptors.
    pub refund: bool,
    /// A limit to apply instead of the rules'. The domain must exist; each combination of entries and period has a
    /// counter.
    pub limit: Option<&'a Limit>,
}

impl<'a> Descriptor<'a> {
    /// A descriptor with the cost of its request.
    pub const fn new(entries: &'a [Entry<'a>]) -> Self {
        Descriptor { entries, cost: None, refund: false, limit: None }
    }
}
