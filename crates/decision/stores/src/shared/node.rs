//! The number of nodes that share the store.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::remote::NodeId;

/// The highest of the last readings counts, so it takes this many in a row with fewer nodes to lower the count. After
/// an outage nodes register one by one, and the share of a node that counts only itself would be the whole limit.
const READINGS: usize = 5;

/// This node, and how many there are.
#[derive(Debug)]
pub(crate) struct Nodes {
    id: NodeId,
    /// The highest of the last readings; unchanged while the register cannot be reached.
    live: AtomicUsize,
    readings: Mutex<[usize; READINGS]>,
}

impl Nodes {
    /// This node, as one of `expected` nodes until the register was read.
    pub(crate) fn new(id: NodeId, expected: usize) -> Self {
        let live = expected.max(1);
        Nodes { id, live: AtomicUsize::new(live), readings: Mutex::new([live; READINGS]) }
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
        let mut readings = self.readings.lock();
        readings.rotate_left(1);
        readings[READINGS - 1] = live;
        let highest = readings.iter().copied().fold(1, usize::max);
        self.live.store(highest, Ordering::Relaxed);
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
