//! What protects the node, in metrics: who decided what, and by which figures.

use std::time::Duration;

use tidegate_engine::{Mode, Nanos};
use tidegate_overload::{
    Category, GateView, Gauges, LATENCY_BUCKETS, Protection, SteadyClock, WAIT_BUCKETS,
};

use super::exposition::{Exposition, Family};
use super::limiters::{LimiterName, Switchboard};
use super::vocabulary as metric;

/// Shows what each limiter may do, and what protects the node.
pub(super) fn show(page: &mut Exposition, board: &Switchboard) {
    let modes = LimiterName::ALL.map(|limiter| (limiter.as_str(), board.mode(limiter)));
    let mut family = page.family(metric::LIMITER_MODE);
    for (limiter, mode) in modes {
        let Some(mode) = mode else { continue };
        for word in ["off", "shadow", "enforce"] {
            family.sample(&[limiter, word], u8::from(word == mode.as_str()));
        }
    }
    let mut family = page.family(metric::LIMITER_ENFORCED);
    for (limiter, mode) in modes {
        if let Some(mode) = mode {
            let percent = if let Mode::Enforce(percent) = mode { percent.get() } else { 0 };
            family.sample(&[limiter], f64::from(percent) / 100.0);
        }
    }
    if let Some(protection) = board.protection() {
        node(page, protection);
    }
}

fn node(page: &mut Exposition, protection: &Protection<SteadyClock>) {
    let mut decisions = page.family(metric::DECISIONS);
    for count in protection.decisions() {
        let mode = count.acting.as_str();
        let labels = [count.limiter.name(), mode, count.category.name(), count.answer.name()];
        decisions.sample(&labels, count.count);
    }
    let gauges = protection.gauges();
    gate(page, &gauges.gate);
    worker(page, &gauges);
    fleet(page, &gauges);
    let mut durations = page.family(metric::GOODPUT_DURATION);
    for (category, latency) in Category::ALL.iter().zip(gauges.latencies) {
        histogram(&mut durations, *category, &LATENCY_BUCKETS, &latency.counts, latency.sum);
    }
}

fn gate(page: &mut Exposition, gate: &GateView) {
    page.single(metric::GATE_IN_FLIGHT, gate.in_flight);
    page.single(metric::GATE_QUEUED, gate.queued);
    page.single(metric::GATE_LIMIT, gate.limit);
    page.single(metric::GATE_SERVICE_TIME, seconds(gate.service_time));
    let mut waits = page.family(metric::GATE_WAIT);
    for (category, wait) in Category::ALL.iter().zip(gate.waits) {
        histogram(&mut waits, *category, &WAIT_BUCKETS, &wait.counts, wait.sum);
    }
    let counts = gate.counts;
    let mut slots = page.family(metric::GATE_SLOTS);
    slots.sample(&["entered"], counts.entered);
    slots.sample(&["left"], counts.left);
    slots.sample(&["taken_back"], counts.taken_back);
    slots.sample(&["late"], counts.late);
    slots.sample(&["gave_up"], counts.gave_up);
}

fn worker(page: &mut Exposition, gauges: &Gauges) {
    let worker = gauges.worker;
    page.single(metric::WORKER_UTILIZATION, worker.utilization);
    page.single(metric::WORKER_PREDICTED, worker.predicted_utilization);
    page.single(metric::WORKER_SMOOTHED, worker.smoothed_utilization);
    page.single(metric::WORKER_ADMITTED, worker.admitted);
    page.single(metric::WORKER_LEVEL, worker.shed_level);
    page.single(metric::WORKER_TICK_LAG, seconds(worker.tick_lag));
    page.single(metric::SCHEDULER_DELAY, seconds(gauges.scheduler_delay));
    page.single(metric::OFFERED_DEMAND, gauges.offered_demand);
}

fn fleet(page: &mut Exposition, gauges: &Gauges) {
    let fleet = gauges.fleet;
    page.single(metric::FLEET_POOL, fleet.pool);
    page.single(metric::FLEET_GRANT, fleet.grant);
    page.single(metric::FLEET_IN_FLIGHT, fleet.in_flight);
    page.single(metric::FLEET_USED, fleet.used);
    if let Some(age) = fleet.lease_age {
        page.single(metric::FLEET_LEASE_AGE, seconds(age));
    }
    page.single(metric::FLEET_FALLBACK, u8::from(fleet.fallback));
    page.single(metric::FLEET_BEATS_MISSED, fleet.beats_missed);
}

/// One category of a histogram; the last bucket has no end.
fn histogram(
    family: &mut Family<'_>,
    category: Category,
    bounds: &[Nanos],
    counts: &[u64],
    sum: Nanos,
) {
    let mut count = 0;
    let ends = bounds.iter().zip(counts).filter(|(bound, _)| **bound != Nanos::MAX);
    let up_to = ends.map(|(bound, within)| {
        count += within;
        (Duration::from(*bound), count)
    });
    let all = counts.iter().sum();
    family.histogram(&[category.name()], up_to, all, seconds(sum));
}

fn seconds(nanos: Nanos) -> f64 {
    Duration::from(nanos).as_secs_f64()
}
