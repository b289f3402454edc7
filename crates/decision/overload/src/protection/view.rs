//! The gauges of a node, as plain values.

use tidegate_algorithms::{Clock, Nanos, Timestamp};

use super::Protection;
use crate::category::Category;
use crate::decisions::Latency;
use crate::fleet::FleetView;
use crate::gate::{GateView, Window};
use crate::worker_shedder::WorkerView;

/// A reading of all gauges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauges {
    /// The gate: in flight, queued, limit, waits, slots taken back.
    pub gate: GateView,
    /// The worker shedder: utilization, admitted fraction, shed level, lag of its tick.
    pub worker: WorkerView,
    /// The fleet shedder: pool, grant, use, age of the lease.
    pub fleet: FleetView,
    /// The work there would be without refusals. Autoscaling should follow it, since refusals
    /// keep CPU usage low.
    pub offered_demand: f64,
    /// The median scheduling delay of the last second.
    pub scheduler_delay: Nanos,
    /// Latencies of requests done in time, by the rank of the category. Their counts are the
    /// goodput.
    pub latencies: [Latency; 4],
}

impl<C: Clock> Protection<C> {
    /// Reads all gauges.
    pub fn gauges(&self) -> Gauges {
        let now = self.clock.now();
        Gauges {
            gate: self.node.gate.view(),
            worker: self.node.worker.view(),
            fleet: self.node.fleet.view(now),
            offered_demand: self.demand.lock().offered,
            scheduler_delay: self.probe.median(),
            latencies: Category::ALL.map(|category| self.node.latencies[category.rank()].read()),
        }
    }
}

/// The offered work: in progress, queued, and an estimate for the refused.
#[derive(Debug, Default)]
pub(super) struct Demand {
    offered: f64,
    rejected: u64,
    ticked: Option<Timestamp>,
}

impl Demand {
    pub(super) fn tick(&mut self, now: Timestamp, window: &Window, rejected: u64) {
        let passed = self.ticked.map_or(0, |last| now.since(last).get());
        let refused = rejected.saturating_sub(self.rejected) as f64;
        let each = window.service_time.get() as f64;
        let lost = if passed > 0 { refused * each / passed as f64 } else { 0.0 };
        self.offered = window.in_flight + window.queued + lost;
        (self.rejected, self.ticked) = (rejected, Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_work_counts_as_demand() {
        let at = |millis| Timestamp::EPOCH.after(Nanos::from_millis(millis));
        let window = Window {
            in_flight: 60.0,
            queued: 10.0,
            service_time: Nanos::from_millis(20),
            ..Window::default()
        };
        let mut demand = Demand::default();
        demand.tick(at(250), &window, 0);
        assert_eq!(demand.offered, 70.0);
        demand.tick(at(500), &window, 1_000);
        assert_eq!(demand.offered, 70.0 + 4_000.0 * 0.02);
    }
}
