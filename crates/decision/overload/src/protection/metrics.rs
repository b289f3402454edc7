//! The metrics of overload protection: decisions by limiter, and the figures behind them.

use std::time::Duration;

use tidegate_algorithms::{Clock, Nanos};
use tidegate_metrics::{Collector, Exposition, Family, Seconds};

use super::{Gauges, Protection};
use crate::category::Category;
use crate::decisions::LATENCY_BUCKETS;
use crate::gate::{GateView, WAIT_BUCKETS};

tidegate_metrics::metrics! {
    /// The metrics of [`Protection`](crate::Protection).
    pub OVERLOAD_METRICS:
    DECISIONS = Counter "tidegate_decisions_total" ["limiter", "mode", "category", "outcome"]
        "Decisions of the worker shedder, the fleet shedder and the gate.";
    GATE_IN_FLIGHT = Gauge "tidegate_gate_in_flight_requests" []
        "Requests that hold a slot of the gate.";
    GATE_QUEUED = Gauge "tidegate_gate_queued_requests" []
        "Requests that wait at the gate.";
    GATE_LIMIT = Gauge "tidegate_gate_limit" []
        "Slots of the gate.";
    GATE_SERVICE_TIME = Gauge "tidegate_gate_service_time_seconds" []
        "How long a slot is held, as a mean over recent requests.";
    GATE_WAIT = Histogram "tidegate_gate_wait_seconds" ["category"]
        "How long admitted requests waited at the gate.";
    GATE_SLOTS = Counter "tidegate_gate_slots_total" ["event"]
        "Slots of the gate, by what happened to them.";
    WORKER_UTILIZATION = Gauge "tidegate_worker_utilization_ratio" []
        "Requests in flight and waiting, divided by the slots.";
    WORKER_PREDICTED = Gauge "tidegate_worker_predicted_utilization_ratio" []
        "The same without the requests that the worker shedder would have refused.";
    WORKER_SMOOTHED = Gauge "tidegate_worker_smoothed_utilization_ratio" []
        "The predicted utilization, smoothed; the worker shedder acts on this value.";
    WORKER_ADMITTED = Gauge "tidegate_worker_admitted_ratio" []
        "The share of offered requests that the worker shedder admits.";
    WORKER_LEVEL = Gauge "tidegate_worker_shed_level" []
        "The lowest level of which the worker shedder admits anything, 0 to 512.";
    WORKER_TICK_LAG = Gauge "tidegate_worker_tick_lag_seconds" []
        "How late the last tick of the worker shedder came.";
    SCHEDULER_DELAY = Gauge "tidegate_scheduler_delay_seconds" []
        "How late the runtime wakes its tasks, the median of the last second.";
    OFFERED_DEMAND = Gauge "tidegate_offered_demand" []
        "Requests that would be in progress if none were refused; for autoscaling.";
    FLEET_POOL = Gauge "tidegate_fleet_pool" []
        "Capacity that the fleet shares for requests that are not critical; the node's own while it is alone.";
    FLEET_GRANT = Gauge "tidegate_fleet_grant" []
        "The number in flight below which this node admits requests that are not critical.";
    FLEET_IN_FLIGHT = Gauge "tidegate_fleet_in_flight_requests" []
        "Requests in flight on this node that are not critical.";
    FLEET_USED = Gauge "tidegate_fleet_used" []
        "How much of the pool the fleet uses, as last reported.";
    FLEET_LEASE_AGE = Gauge "tidegate_fleet_lease_age_seconds" []
        "How old the grant is; absent while the node is alone.";
    FLEET_FALLBACK = Gauge "tidegate_fleet_fallback" []
        "1 while the grant is too old and the node uses its safe share.";
    FLEET_BEATS_MISSED = Counter "tidegate_fleet_missed_beats_total" []
        "Beats to the fleet's board that got no answer.";
    GOODPUT_DURATION = Histogram "tidegate_goodput_duration_seconds" ["category"]
        "How long the requests took that finished in time.";
}

impl<C: Clock> Collector for Protection<C> {
    fn collect(&self, out: &mut Exposition) {
        let mut decisions = out.family(DECISIONS);
        for count in self.decisions() {
            let mode = count.acting.as_str();
            let labels =
                [count.limiter.as_str(), mode, count.category.as_str(), count.answer.as_str()];
            decisions.sample(&labels, count.count);
        }
        let gauges = self.gauges();
        collect_gate(&gauges.gate, out);
        collect_worker(&gauges, out);
        collect_fleet(&gauges, out);
        let mut durations = out.family(GOODPUT_DURATION);
        for (category, latency) in Category::ALL.iter().zip(gauges.latencies) {
            write_histogram(
                &mut durations,
                *category,
                &LATENCY_BUCKETS,
                &latency.counts,
                latency.sum,
            );
        }
    }
}

fn collect_gate(gate: &GateView, out: &mut Exposition) {
    out.single(GATE_IN_FLIGHT, gate.in_flight);
    out.single(GATE_QUEUED, gate.queued);
    out.single(GATE_LIMIT, gate.limit);
    out.single(GATE_SERVICE_TIME, seconds(gate.service_time));
    let mut waits = out.family(GATE_WAIT);
    for (category, wait) in Category::ALL.iter().zip(gate.waits) {
        write_histogram(&mut waits, *category, &WAIT_BUCKETS, &wait.counts, wait.sum);
    }
    let counts = gate.counts;
    let slots = [
        ("entered", counts.entered),
        ("left", counts.left),
        ("taken_back", counts.taken_back),
        ("late", counts.late),
        ("gave_up", counts.gave_up),
    ];
    out.by_label(GATE_SLOTS, slots);
}

fn collect_worker(gauges: &Gauges, out: &mut Exposition) {
    let worker = gauges.worker;
    out.single(WORKER_UTILIZATION, worker.utilization);
    out.single(WORKER_PREDICTED, worker.predicted_utilization);
    out.single(WORKER_SMOOTHED, worker.smoothed_utilization);
    out.single(WORKER_ADMITTED, worker.admitted);
    out.single(WORKER_LEVEL, worker.shed_level);
    out.single(WORKER_TICK_LAG, seconds(worker.tick_lag));
    out.single(SCHEDULER_DELAY, seconds(gauges.scheduler_delay));
    out.single(OFFERED_DEMAND, gauges.offered_demand);
}

fn collect_fleet(gauges: &Gauges, out: &mut Exposition) {
    let fleet = gauges.fleet;
    out.single(FLEET_POOL, fleet.pool);
    out.single(FLEET_GRANT, fleet.grant);
    out.single(FLEET_IN_FLIGHT, fleet.in_flight);
    out.single(FLEET_USED, fleet.used);
    if let Some(age) = fleet.lease_age {
        out.single(FLEET_LEASE_AGE, seconds(age));
    }
    out.single(FLEET_FALLBACK, u8::from(fleet.fallback));
    out.single(FLEET_BEATS_MISSED, fleet.beats_missed);
}

/// Writes the histogram of one category. The last bucket has no bound.
fn write_histogram(
    family: &mut Family<'_>,
    category: Category,
    bounds: &[Nanos],
    counts: &[u64],
    sum: Nanos,
) {
    let bounds = bounds.iter().filter(|bound| **bound != Nanos::MAX);
    let bounds = bounds.map(|bound| Seconds(Duration::from(*bound)));
    family.histogram(&[category.as_str()], bounds, counts, seconds(sum));
}

fn seconds(nanos: Nanos) -> f64 {
    Duration::from(nanos).as_secs_f64()
}
