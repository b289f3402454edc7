//! The number of nodes that share the store.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::remote::NodeId;

/// Readings in a row with fewer nodes before the count is lowered. After an outage nodes register one by one, and the
/// share of a node that counts only itself would be the whole limit.
const LOWER_READINGS: u32 = 5;

/// This node, and how many there are.
#[derive(Debug)]
pub(crate) struct Nodes {
    id: NodeId,
    /// The last accepted count; unchanged while the register cannot be reached.
    live: AtomicUsize,
    lower: Mutex<LowerCounts>,
}

/// Readings in a row that were lower than the accepted count.
#[derive(Debug, Default)]
struct LowerCounts {
    times: u32,
    most: usize,
}

impl Nodes {
    /// This node, as one of `expected` nodes until the register was read.
    pub(crate) fn new(id: NodeId, expected: usize) -> Self {
        Nodes { id, live: AtomicUsize::new(expected.max(1)), lower: Mutex::default() }
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

    /// Takes in a reading of the register.
    pub(crate) fn on_registered(&self, live: usize) {
        let live = live.max(1);
        let mut lower = self.lower.lock();
        if live >= self.live() {
            *lower = LowerCounts::default();
            self.live.store(live, Ordering::Relaxed);
            return;
        }
        *lower = LowerCounts { times: lower.times + 1, most: lower.most.max(live) };
        if lower.times >= LOWER_READINGS {
            self.live.store(lower.most, Ordering::Relaxed);
            *lower = LowerCounts::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_count_is_accepted_at_once_and_a_lower_one_only_after_a_while() {
        let nodes = Nodes::new(NodeId(1), 0);
        assert_eq!(nodes.live(), 1);
        nodes.on_registered(4);
        assert_eq!(nodes.live(), 4);
        for live in [1, 2, 3, 2] {
            nodes.on_registered(live);
            assert_eq!(nodes.live(), 4);
        }
        nodes.on_registered(2);
        assert_eq!(nodes.live(), 3, "the highest of the lower readings");
        nodes.on_registered(5);
        assert_eq!(nodes.live(), 5);
    }
}
