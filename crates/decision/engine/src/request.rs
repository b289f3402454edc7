//! What is asked: who wants what, how much of it.

use tidegate_algorithms::Limit;
use tidegate_rules::Entry;

/// One request, described by its descriptors. Borrows everything.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The domain whose rules apply.
    pub domain: &'a str,
    /// Each is matched by itself; all limits that they meet apply together.
    pub descriptors: &'a [Descriptor<'a>],
    /// How much the request uses, where a descriptor does not say.
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

/// Ordered entries that say who asks for what.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// The entries, in the order in which rules are nested.
    pub entries: &'a [Entry<'a>],
    /// How much is used of the limits that this descriptor meets, where it differs.
    pub cost: Option<u64>,
    /// Whether that much is given back instead. It is always admitted, and
    /// changes nothing for the other descriptors.
    pub refund: bool,
    /// A limit to apply in place of the rules'. Its domain must be known; each
    /// combination of entries and period has a counter.
    pub limit: Option<&'a Limit>,
}

impl<'a> Descriptor<'a> {
    /// A descriptor that costs what its request does.
    pub const fn new(entries: &'a [Entry<'a>]) -> Self {
        Descriptor { entries, cost: None, refund: false, limit: None }
    }
}
