//! What goes into the gate and what comes out of it.

use tidegate_algorithms::{Nanos, Timestamp};

use super::queue::Ticket;
use super::slots::SlotId;
use crate::adaptive_limit::AdaptiveSettings;
use crate::cause::Cause;

#[cfg(doc)]
use super::state::GateState;

/// How the gate is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateSettings {
    /// How many may be inside at once; at least one.
    pub limit: u64,
    /// How many may wait, in percent of the limit; at least one.
    pub queue_percent: u64,
    /// The part of the limit that only critical requests may hold, in percent; at least one
    /// slot, unless there is only one. Those that hold it already count.
    pub reserved_percent: u64,
    /// A queue that was not empty for this long is standing.
    pub standing_after: Nanos,
    /// How long a request may wait in a standing queue, or a tenth of the service
    /// time if that is longer. Critical ones may wait as in a burst.
    pub standing_wait_max: Nanos,
    /// How long a request may wait in a burst.
    pub burst_wait_max: Nanos,
    /// A slot that is held for longer is taken back.
    pub hold_max: Nanos,
    /// Searches the limit instead of keeping it; none by default.
    pub adaptive: Option<AdaptiveSettings>,
}

impl GateSettings {
    /// The defaults for a limit: queue of half the limit, 5 % for critical requests.
    pub const fn new(limit: u64) -> Self {
        GateSettings {
            limit,
            queue_percent: 50,
            reserved_percent: 5,
            standing_after: Nanos::from_millis(100),
            standing_wait_max: Nanos::from_millis(5),
            burst_wait_max: Nanos::from_millis(100),
            hold_max: Nanos::from_secs(15 * 60),
            adaptive: None,
        }
    }
}

/// What an arrival is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Go in; give the slot back with [`GateState::leave`].
    Enter(SlotId),
    /// Wait for an [`Event`] with this ticket. At `until` at the latest, tell
    /// [`GateState::time_out`].
    Wait {
        /// The place in the queue.
        ticket: Ticket,
        /// When to stop waiting.
        until: Timestamp,
    },
    /// Go away.
    Refuse(Cause),
}

/// What became of somebody who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Who waited.
    pub ticket: Ticket,
    /// What became of it.
    pub outcome: Outcome,
}

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Go in.
    Enter(SlotId),
    /// Go away.
    Refuse(Cause),
}

/// How work inside ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was done, and in time. Its time teaches the gate how long work takes.
    Succeeded,
    /// It was done in vain: an error, or too late. A quick error says nothing of how long
    /// work takes.
    Failed,
    /// Nobody knows: the client went away, or the handler panicked.
    Abandoned,
}

/// How a request went in that the gate may not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anyway {
    /// The slot to give back. None when there are more inside than can be counted.
    pub slot: Option<SlotId>,
    /// Whether a gate that enforces would have refused it.
    pub would_refuse: bool,
}

/// What the gate counted since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// The mean of those inside, those beyond the limit included.
    pub in_flight: f64,
    /// The mean of those who waited.
    pub queued: f64,
    /// The mean wait of those who came in.
    pub queue_wait: Nanos,
    /// The mean service time of the last requests; zero while nobody knows.
    pub service_time: Nanos,
}

/// What the gate counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Came in, beyond the limit or within.
    pub entered: u64,
    /// Gave their slot back.
    pub left: u64,
    /// Had their slot taken back, because they held it for too long.
    pub taken_back: u64,
    /// Gave a slot back that had been taken back before.
    pub late: u64,
    /// Stopped waiting of their own accord.
    pub gave_up: u64,
}
