//! What an admitted request holds.

use std::sync::Arc;

use tidegate_algorithms::{Clock, Timestamp};

use crate::category::{Category, Level};
use crate::decisions::{LATENCY_BUCKETS, LatencyCopies};
use crate::fleet::Credit;
use crate::gate::{Ending, Slot};
use crate::worker_shedder::WorkerShedder;

/// An admitted request: its slot and its credit. Dropping it gives both back, whatever the
/// reason.
#[must_use = "the request is over when the pass is dropped"]
#[derive(Debug)]
pub struct Pass<C: Clock> {
    pub(super) slot: Option<Slot<C>>,
    pub(super) credit: Option<Credit>,
    present: Option<Present>,
    work: Option<Work>,
}

#[derive(Debug)]
struct Work {
    since: Timestamp,
    deadline: Option<Timestamp>,
    category: Category,
    latencies: Arc<[LatencyCopies; 4]>,
}

/// Work that a watching worker shedder knows of.
#[derive(Debug)]
struct Present {
    worker: Arc<WorkerShedder>,
    level: Level,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.worker.end(self.level);
    }
}

impl<C: Clock> Pass<C> {
    /// A pass that holds nothing.
    pub(super) const fn free() -> Self {
        Pass { slot: None, credit: None, present: None, work: None }
    }

    pub(super) fn new(
        since: Timestamp,
        deadline: Option<Timestamp>,
        category: Category,
        latencies: &Arc<[LatencyCopies; 4]>,
    ) -> Self {
        let latencies = Arc::clone(latencies);
        let work = Some(Work { since, deadline, category, latencies });
        Pass { slot: None, credit: None, present: None, work }
    }

    pub(super) fn count_as_present(&mut self, worker: &Arc<WorkerShedder>, level: Level) {
        worker.begin(level);
        self.present = Some(Present { worker: Arc::clone(worker), level });
    }

    /// Whether a slot of the gate is held. Not so when the request is exempt, or a limiter
    /// failed.
    pub const fn holds_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Ends the request at `now` and says how. What succeeded after its deadline has failed:
    /// nobody was waiting for it any more.
    pub fn finish(mut self, now: Timestamp, ending: Ending) {
        let Some(work) = self.work.take() else { return };
        let late = work.deadline.is_some_and(|deadline| now > deadline);
        let ending = match ending {
            Ending::Succeeded if late => Ending::Failed,
            other => other,
        };
        if ending == Ending::Succeeded {
            work.latencies[work.category.rank()].take_in(&LATENCY_BUCKETS, now.since(work.since));
        }
        if let Some(slot) = self.slot.take() {
            slot.finish_at(now, ending);
        }
    }
}
