//! What an admitted request holds.
//!
//! One reference to the node and a few flags. A pass moves from future to future, so it is
//! small; and another reference would be two more atomic operations for every request, the
//! price of a limiter.

use std::sync::Arc;

use tidegate_algorithms::{Clock, Timestamp};

use super::Node;
use crate::category::{Caller, Level};
use crate::decisions::LATENCY_BUCKETS;
use crate::gate::{Completion, SlotId};

/// The slot and the fleet credit of an admitted request. Dropping it frees both.
#[must_use = "dropping the pass ends the request"]
pub struct Pass<C: Clock> {
    held: Option<Holdings<C>>,
}

struct Holdings<C: Clock> {
    node: Arc<Node<C>>,
    since: Timestamp,
    deadline: Option<Timestamp>,
    level: Level,
    caller: Caller,
    slot: Option<SlotId>,
    /// Whether the slot counts towards the part of a caller that stalled.
    in_part: bool,
    /// Whether the fleet shedder counts it.
    credit: bool,
    /// Whether a worker shedder in shadow mode counts it.
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
        caller: Caller,
    ) -> Self {
        let held = Holdings {
            node: Arc::clone(node),
            since,
            deadline,
            level,
            caller,
            slot: None,
            in_part: false,
            credit: false,
            present: false,
        };
        Pass { held: Some(held) }
    }

    /// Counts the request as work in progress at the worker shedder.
    pub(super) fn count_as_present(&mut self) {
        if let Some(held) = &mut self.held {
            held.node.worker.begin(held.level);
            held.present = true;
        }
    }

    /// Notes that the fleet shedder counts the request.
    #[inline]
    pub(super) const fn hold_credit(&mut self) {
        if let Some(held) = &mut self.held {
            held.credit = true;
        }
    }

    /// Notes that the slot counts towards the part of a caller that stalled.
    pub(super) const fn count_in_part(&mut self) {
        if let Some(held) = &mut self.held {
            held.in_part = true;
        }
    }

    /// Notes the slot of the gate.
    #[inline]
    pub(super) const fn hold_slot(&mut self, slot: SlotId) {
        if let Some(held) = &mut self.held {
            held.slot = Some(slot);
        }
    }

    /// Whether it holds a slot of the gate. False when the request is exempt or a limiter
    /// panicked.
    pub const fn holds_slot(&self) -> bool {
        matches!(&self.held, Some(held) if held.slot.is_some())
    }

    /// Ends the request at `now`. A success after the deadline counts as failed: the client no
    /// longer waits for it.
    #[inline]
    pub fn finish(mut self, now: Timestamp, completion: Completion) {
        let Some(held) = self.held.take() else { return };
        let late = held.deadline.is_some_and(|deadline| now > deadline);
        let completion = match completion {
            Completion::Succeeded if late => Completion::Failed,
            other => other,
        };
        if completion == Completion::Succeeded {
            let latencies = &held.node.latencies[held.level.category().rank()];
            latencies.record(&LATENCY_BUCKETS, now.since(held.since));
        }
        held.give_back(now, completion);
    }
}

impl<C: Clock> Drop for Pass<C> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // Only the gate needs the time.
            let needs_time = held.slot.is_some() || held.in_part;
            let now = if needs_time { held.node.gate.clock().now() } else { held.since };
            held.give_back(now, Completion::Abandoned);
        }
    }
}

impl<C: Clock> std::fmt::Debug for Pass<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slot = self.held.as_ref().and_then(|held| held.slot);
        f.debug_struct("Pass").field("slot", &slot).finish_non_exhaustive()
    }
}

impl<C: Clock> Holdings<C> {
    #[inline]
    fn give_back(&self, now: Timestamp, completion: Completion) {
        if self.credit {
            self.node.fleet.uncount();
        }
        if self.present {
            self.node.worker.end(self.level);
        }
        if let Some(slot) = self.slot {
            self.node.gate.leave(now, slot, completion);
        }
        if self.in_part {
            self.node.stalled.give_back(self.caller, now);
        }
        if completion == Completion::Stalled {
            self.node.stalled.note(self.caller, now);
        }
    }
}
