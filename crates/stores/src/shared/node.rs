//! Who else shares the store.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::remote::NodeId;

/// This node, and how many there are.
#[derive(Debug)]
pub(crate) struct Nodes {
    id: NodeId,
    /// As the register last told; stays when it cannot be reached.
    live: AtomicUsize,
}

impl Nodes {
    /// One of `expected` nodes, until the register has told.
    pub(crate) fn new(id: NodeId, expected: usize) -> Self {
        Nodes { id, live: AtomicUsize::new(expected.max(1)) }
    }

    /// This node.
    pub(crate) const fn id(&self) -> NodeId {
        self.id
    }

    /// How many nodes live, this one included; at least one.
    #[inline]
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// The register told.
    pub(crate) fn told(&self, live: usize) {
        self.live.store(live.max(1), Ordering::Relaxed);
    }
}
