//! Features that a store declares, so that the caller can fill the gaps of a store that lacks one.

use std::fmt;

/// A feature that some stores have and others lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Records survive the end of the process that enqueued them.
    Durable,
    /// Several processes use the same queue at once.
    Shared,
    /// `not_before` of new and returned records is kept.
    Delay,
    /// Priority classes are served by weight or strictly, with ageing.
    Priority,
    /// Tenants of one class get equal shares by cost.
    Fairness,
    /// Records of one order key are delivered in order, one at a time.
    OrderKey,
    /// All records are delivered in order, one at a time.
    StrictOrder,
    /// Counts of records, bytes and cost are known, and bounds are enforced.
    Depth,
    /// A deduplication key is accepted once within the window.
    Deduplication,
    /// Records are counted by job.
    Jobs,
}

impl Capability {
    /// Every capability, in the order of the table in `docs/queue.md`.
    pub const ALL: [Capability; 10] = [
        Capability::Durable,
        Capability::Shared,
        Capability::Delay,
        Capability::Priority,
        Capability::Fairness,
        Capability::OrderKey,
        Capability::StrictOrder,
        Capability::Depth,
        Capability::Deduplication,
        Capability::Jobs,
    ];

    /// The word for it in documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Capability::Durable => "durable",
            Capability::Shared => "shared",
            Capability::Delay => "delay",
            Capability::Priority => "priority",
            Capability::Fairness => "fairness",
            Capability::OrderKey => "order key",
            Capability::StrictOrder => "strict order",
            Capability::Depth => "depth",
            Capability::Deduplication => "deduplication",
            Capability::Jobs => "jobs",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
