//! Shows what the layer does: nothing waits silently.

use std::time::Duration;

/// Sees each step that the layer takes on its own. Called on the path of a call: count, and return.
pub trait Observer: Send + Sync + 'static {
    /// One step for a call to a target.
    fn observe(&self, target: &str, event: PacingEvent);
}

/// A step that the layer took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacingEvent {
    /// A call left.
    Sent,
    /// A call waited before it left.
    Waited(Duration),
    /// The target closed itself for this long.
    Held(Duration),
    /// A call is repeated after this pause.
    Retried {
        /// The attempt that failed, from 1.
        attempt: u32,
        /// The pause before the next.
        pause: Duration,
    },
    /// A call is not repeated, because the budget is spent.
    BudgetSpent,
    /// A call leaves without a unit, because the decision service did not answer.
    NoSlice,
    /// A call was refused without being sent.
    NotSent,
}

impl<F: Fn(&str, PacingEvent) + Send + Sync + 'static> Observer for F {
    fn observe(&self, target: &str, event: PacingEvent) {
        self(target, event);
    }
}
