//! No protection: every request enters.

use super::{
    Answer, Controls, FinishedRequest, RefusalStage, ReleasedRequests, SOCKETS_MAX, Shield,
};
use crate::overload::load::Request;

/// Admits as many requests as the sockets hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct NoShield {
    inside: usize,
}

impl Shield for NoShield {
    fn arrive(
        &mut self,
        _now: u64,
        _request: &Request,
        _released: &mut ReleasedRequests,
    ) -> Answer {
        if self.inside >= SOCKETS_MAX {
            return Answer::Refuse(RefusalStage::Socket);
        }
        self.inside += 1;
        Answer::Enter
    }

    fn finished(&mut self, _now: u64, _done: &FinishedRequest, _released: &mut ReleasedRequests) {
        self.inside = self.inside.saturating_sub(1);
    }

    fn wake_at(&self) -> u64 {
        u64::MAX
    }

    fn wake(&mut self, _now: u64, _released: &mut ReleasedRequests) {}

    fn controls(&self) -> Controls {
        Controls { level: 1.0, limit: SOCKETS_MAX as f64 }
    }
}
