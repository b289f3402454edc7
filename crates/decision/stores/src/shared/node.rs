//! Who else shares the store.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::remote::NodeId;

/// How often in a row the register has to tell of fewer nodes before that is
/// believed: after an outage they come back one by one, and a node that takes
/// itself for the only one would have the whole limit for its share.
const FEWER_TIMES: u32 = 5;

/// This node, and how many there are.
#[derive(Debug)]
pub(crate) struct Nodes {
    id: NodeId,
    /// As the register last told; stays when it cannot be reached.
    live: AtomicUsize,
    fewer: Mutex<Fewer>,
}

/// What was told in a row of fewer nodes than are counted.
#[derive(Debug, Default)]
struct Fewer {
    times: u32,
    most: usize,
}

impl Nodes {
    /// One of `expected` nodes, until the register has told.
    pub(crate) fn new(id: NodeId, expected: usize) -> Self {
        Nodes { id, live: AtomicUsize::new(expected.max(1)), fewer: Mutex::default() }
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
        let live = live.max(1);
        let mut fewer = self.fewer.lock();
        if live >= self.live() {
            *fewer = Fewer::default();
            self.live.store(live, Ordering::Relaxed);
            return;
        }
        *fewer = Fewer { times: fewer.times + 1, most: fewer.most.max(live) };
        if fewer.times >= FEWER_TIMES {
            self.live.store(fewer.most, Ordering::Relaxed);
            *fewer = Fewer::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_are_believed_at_once_and_fewer_only_after_a_while() {
        let nodes = Nodes::new(NodeId(1), 0);
        assert_eq!(nodes.live(), 1);
        nodes.told(4);
        assert_eq!(nodes.live(), 4);
        for live in [1, 2, 3, 2] {
            nodes.told(live);
            assert_eq!(nodes.live(), 4);
        }
        nodes.told(2);
        assert_eq!(nodes.live(), 3, "the most that was told meanwhile");
        nodes.told(5);
        assert_eq!(nodes.live(), 5);
    }
}
