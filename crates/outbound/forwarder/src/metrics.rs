//! The metrics of a forwarder, by record type.

use std::sync::Arc;

use tidegate_metrics::{Collector, Exposition};

use crate::forwarder::{CountsView, Forwarder};
use crate::lane::Lane;

tidegate_metrics::metrics! {
    /// The metrics of forwarders.
    pub FORWARDER_METRICS:
    ENQUEUED = Counter "tidegate_forward_enqueued_total" ["type"]
        "Records that this process stored durably.";
    ATTEMPTS = Counter "tidegate_forward_attempts_total" ["type", "outcome"]
        "Attempts at records: delivered, throttled, failed, ambiguous (the answer was lost), rejected.";
    RETRIES = Counter "tidegate_forward_retries_total" ["type"]
        "Attempts after a failed one.";
    DEAD = Counter "tidegate_forward_dead_letters_total" ["type"]
        "Records that became dead letters in this process.";
    STALE = Counter "tidegate_forward_stale_claims_total" ["type"]
        "Claims that ended before they were settled; their records are sent again.";
    QUEUE_ERRORS = Counter "tidegate_forward_queue_errors_total" ["type"]
        "Calls of the queue that failed and were repeated.";
    WAITING = Gauge "tidegate_forward_waiting" ["type"]
        "Records that wait or are in flight.";
    IN_FLIGHT = Gauge "tidegate_forward_in_flight" ["type"]
        "Attempts in flight from this process.";
    IN_FLIGHT_LIMIT = Gauge "tidegate_forward_in_flight_limit" ["type"]
        "The adaptive limit on attempts in flight.";
    SLOTS = Gauge "tidegate_forward_slots" ["type"]
        "Slots of the target that this process holds.";
    BRAKE = Gauge "tidegate_forward_brake" ["type"]
        "The part of the share in use: below 1 while the target throttles, 0 while it is closed.";
    CLEARS_IN = Gauge "tidegate_forward_clears_in_seconds" ["type"]
        "The expected time until the queue is empty; -1 if it stalls or grows.";
}

impl Collector for Forwarder {
    fn collect(&self, out: &mut Exposition) {
        let lanes = self.lanes();
        let count = |out: &mut Exposition, metric, of: fn(&CountsView) -> u64| {
            let mut family = out.family(metric);
            for lane in &lanes {
                family.sample(&[&lane.settings.record_type], of(&CountsView::of(lane)));
            }
        };
        count(out, ENQUEUED, |counts| counts.enqueued);
        let mut family = out.family(ATTEMPTS);
        for lane in &lanes {
            let counts = CountsView::of(lane);
            let outcomes = [
                ("delivered", counts.delivered),
                ("throttled", counts.throttled),
                ("failed", counts.failed),
                ("ambiguous", counts.ambiguous),
                ("rejected", counts.rejected),
            ];
            for (outcome, number) in outcomes {
                family.sample(&[&lane.settings.record_type, outcome], number);
            }
        }
        count(out, RETRIES, |counts| counts.retries);
        count(out, DEAD, |counts| counts.dead);
        count(out, STALE, |counts| counts.stale);
        count(out, QUEUE_ERRORS, |counts| counts.queue_errors);
        collect_gauges(&lanes, out);
    }
}

fn collect_gauges(lanes: &[Arc<Lane>], out: &mut Exposition) {
    let readings: Vec<_> = lanes.iter().map(|lane| (lane, lane.reading())).collect();
    let mut gauge = |metric, of: &dyn Fn(&Lane, &crate::lane::LaneReading) -> f64| {
        let mut family = out.family(metric);
        for (lane, reading) in &readings {
            family.sample(&[&lane.settings.record_type], of(lane, reading));
        }
    };
    gauge(WAITING, &|_, reading| reading.left.operations as f64);
    gauge(IN_FLIGHT, &|lane, _| f64::from(lane.in_flight()));
    gauge(IN_FLIGHT_LIMIT, &|_, reading| f64::from(reading.concurrency));
    gauge(SLOTS, &|_, reading| f64::from(reading.status.slots));
    gauge(BRAKE, &|_, reading| f64::from(reading.status.brake_ppm) / 1e6);
    gauge(CLEARS_IN, &|_, reading| {
        reading.outlook.expected().map_or(-1.0, |expected| expected.as_secs_f64())
    });
}
