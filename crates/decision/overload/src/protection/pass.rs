//! What an admitted request holds.
//!
//! One reference to the node, and notes of what is held there. Passes travel with requests, from
//! one future into the next, so they are small; and each reference more would be counted up and
//! down at every request, which costs as much as a limiter does.

use std::sync::Arc;

use tidegate_algorithms::{Clock, Timestamp};

use super::Node;
use crate::category::Level;
use crate::decisions::LATENCY_BUCKETS;
use crate::gate::{Ending, SlotId};

/// An admitted request: its slot and its credit. Dropping it gives both back, whatever the
/// reason.
#[must_use = "the request is over when the pass is dropped"]
pub struct Pass<C: Clock> {
    held: Option<Held<C>>,
}

struct Held<C: Clock> {
    node: Arc<Node<C>>,
    since: Timestamp,
    deadline: Option<Timestamp>,
    level: Level,
    slot: Option<SlotId>,
    /// Whether the fleet shedder counts it.
    credit: bool,
    /// Whether a watching worker shedder knows of it.
    present: bool,
}

impl<C: Clock> Pass<C> {
    /// A pass that holds nothing.
    pub(super) const fn free() -> Self {
        Pass { held: None }
    }

    /// A pass that holds nothing yet.
    #[inline]
    pub(super) fn new(
        node: &Arc<Node<C>>,
        since: Timestamp,
        deadline: Option<Timestamp>,
        level: Level,
    ) -> Self {
        let node = Arc::clone(node);
        let (slot, credit, present) = (None, false, false);
        Pass { held: Some(Held { node, since, deadline, level, slot, credit, present }) }
    }

    /// The worker shedder has to know of the request.
    pub(super) fn count_as_present(&mut self) {
        if let Some(held) = &mut self.held {
            held.node.worker.begin(held.level);
            held.present = true;
        }
    }

    /// The fleet shedder has counted the request.
    #[inline]
    pub(super) const fn hold_credit(&mut self) {
        if let Some(held) = &mut self.held {
            held.credit = true;
        }
    }

    /// The gate has given it a slot.
    #[inline]
    pub(super) const fn hold_slot(&mut self, slot: SlotId) {
        if let Some(held) = &mut self.held {
            held.slot = Some(slot);
        }
    }

    /// Whether a slot of the gate is held. Not so when the request is exempt, or a limiter
    /// failed.
    pub const fn holds_slot(&self) -> bool {
        matches!(&self.held, Some(held) if held.slot.is_some())
    }

    /// Ends the request at `now` and says how. What succeeded after its deadline has failed:
    /// nobody was waiting for it any more.
    #[inline]
    pub fn finish(mut self, now: Timestamp, ending: Ending) {
        let Some(held) = self.held.take() else { return };
        let late = held.deadline.is_some_and(|deadline| now > deadline);
        let ending = match ending {
            Ending::Succeeded if late => Ending::Failed,
            other => other,
        };
        if ending == Ending::Succeeded {
            let latencies = &held.node.latencies[held.level.category().rank()];
            latencies.take_in(&LATENCY_BUCKETS, now.since(held.since));
        }
        held.give_back(now, ending);
    }
}

impl<C: Clock> Drop for Pass<C> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // Only the gate has to be told the time.
            let now = held.slot.map_or(held.since, |_| held.node.gate.clock().now());
            held.give_back(now, Ending::Abandoned);
        }
    }
}

impl<C: Clock> std::fmt::Debug for Pass<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slot = self.held.as_ref().and_then(|held| held.slot);
        f.debug_struct("Pass").field("slot", &slot).finish_non_exhaustive()
    }
}

impl<C: Clock> Held<C> {
    #[inline]
    fn give_back(&self, now: Timestamp, ending: Ending) {
        if self.credit {
            self.node.fleet.uncount();
        }
        if self.present {
            self.node.worker.end(self.level);
        }
        if let Some(slot) = self.slot {
            self.node.gate.leave(now, slot, ending);
        }
    }
}
