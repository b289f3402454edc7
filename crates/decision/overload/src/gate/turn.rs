//! The inputs and outputs of the gate's state machine.

use tidegate_algorithms::{Nanos, Timestamp};

use super::queue::Ticket;
use super::slots::SlotId;
use crate::cause::Cause;

#[cfg(doc)]
use super::state::GateState;

/// The answer of [`GateState::arrive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Enter; free the slot with [`GateState::leave`].
    Enter(SlotId),
    /// Wait for an [`Event`] with this ticket, and call [`GateState::time_out`] at `until`.
    Wait {
        /// The position in the queue.
        ticket: Ticket,
        /// When to stop waiting.
        until: Timestamp,
    },
    /// Refused.
    Refuse(Cause),
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The queued request.
    pub ticket: Ticket,
    /// Its slot, or the cause of its refusal.
    pub outcome: Result<SlotId, Cause>,
}

/// How the work of an admitted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Done in time. Its duration enters the mean service time.
    Succeeded,
    /// An error, or done after the deadline. Not measured: errors are often quick.
    Failed,
    /// Unknown: the client disconnected, or the handler panicked.
    Abandoned,
    /// The client did not read its response while others waited. Its caller gets a quarter of
    /// the gate for a minute.
    Stalled,
}

/// The entry of a request that the gate may not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForcedEntry {
    /// The slot to free. None when [`SLOTS_MAX`](super::SLOTS_MAX) are taken.
    pub slot: Option<SlotId>,
    /// Whether an enforcing gate would have refused it.
    pub would_refuse: bool,
}

/// Measurements between two ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// Mean requests in flight, including those above the limit.
    pub in_flight: f64,
    /// Mean length of the queue.
    pub queued: f64,
    /// Admitted requests, within the limit or above it.
    pub entered: u64,
    /// Mean wait of admitted requests.
    pub queue_wait: Nanos,
    /// The mean service time of recent requests; zero until measured.
    pub service_time: Nanos,
}

/// Counters of a gate since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Admitted requests, within the limit or above it.
    pub entered: u64,
    /// Freed slots.
    pub left: u64,
    /// Slots that the watchdog reclaimed.
    pub taken_back: u64,
    /// Releases of a slot after it had been reclaimed.
    pub late: u64,
    /// Requests that left the queue by themselves.
    pub gave_up: u64,
}
