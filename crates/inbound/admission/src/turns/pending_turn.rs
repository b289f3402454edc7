//! A request that waits for its turn, with the refund of what it was charged.

use tidegate_macros::debug_fields;

use super::Turn;
use crate::refund::Refund;

/// A request that waits for its turn. Dropping it earlier leaves the turn to the next request, and refunds what the
/// request's other limits charged.
pub struct PendingTurn {
    turn: Turn,
    refund: Refund,
}

impl PendingTurn {
    pub(super) const fn new(turn: Turn, refund: Refund) -> Self {
        PendingTurn { turn, refund }
    }

    /// Waits for the turn. The refund is for a request that is shed afterwards.
    pub async fn wait(mut self) -> Refund {
        self.turn.wait().await;
        std::mem::take(&mut self.refund)
    }
}

impl Drop for PendingTurn {
    fn drop(&mut self) {
        if !self.turn.has_come() {
            std::mem::take(&mut self.refund).pay_deposit();
        }
    }
}

debug_fields!(PendingTurn { at = turn.at });
