//! What a shared store says of itself, and how it is shown.

use std::time::Duration;

use super::exposition::Exposition;
use super::vocabulary as metric;

/// What a store that several processes share does. Counts go from the start on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteReading {
    /// Connections that can be used, and how many there should be.
    pub connected: usize,
    /// Connections that there should be.
    pub wanted: usize,
    /// Requests that wait for an answer now.
    pub waiting: usize,
    /// Whether it is not asked at present, because it does not answer.
    pub degraded: bool,
    /// How long that has been so, all times together.
    pub degraded_for: Duration,
    /// How often it began.
    pub outages: u64,
    /// Calls that were answered.
    pub calls: u64,
    /// How long they took, in seconds.
    pub call_seconds: Spread,
    /// How many requests a call carried.
    pub requests_per_call: Spread,
    /// Requests that were told a failure, by its kind.
    pub errors: Vec<(&'static str, u64)>,
    /// Calls that were sent again because the script was not known.
    pub script_loads: u64,
    /// Calls that were sent again because the key is at another node.
    pub redirects: u64,
    /// Checks that were decided without it, by what decided.
    pub fallbacks: Vec<(&'static str, u64)>,
    /// Refusals that were known and not asked for.
    pub remembered_refusals: u64,
    /// Units of leased limits that are held and not used yet.
    pub leased_units: u64,
    /// What became of leases.
    pub lease_changes: Vec<(&'static str, u64)>,
    /// Keys of eventual limits.
    pub eventual_keys: usize,
    /// Batches of eventual counts that were sent.
    pub flushes: u64,
    /// Keys in those batches.
    pub flushed_keys: u64,
    /// By how much of their limit flushed keys were over it.
    pub overshoot: Spread,
    /// Keys that were decided in an outage and are still to be charged.
    pub owing: usize,
    /// Keys of which another region is still to be told.
    pub pending: usize,
    /// Live nodes, as last known.
    pub nodes: usize,
}

/// Values by upper bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// The upper bounds, growing.
    pub bounds: Vec<f64>,
    /// How many values fell to each bound, and then those above all.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

/// Shows it.
pub(super) fn show(page: &mut Exposition, reading: &RemoteReading) {
    page.single(metric::REMOTE_CONNECTIONS, reading.connected);
    page.single(metric::REMOTE_CONNECTIONS_WANTED, reading.wanted);
    page.single(metric::REMOTE_WAITING, reading.waiting);
    page.single(metric::REMOTE_DEGRADED, u8::from(reading.degraded));
    page.single(metric::REMOTE_DEGRADED_SECONDS, reading.degraded_for.as_secs_f64());
    page.single(metric::REMOTE_OUTAGES, reading.outages);
    page.family(metric::REMOTE_CALL_DURATION).spread(&reading.call_seconds);
    page.family(metric::REMOTE_CALL_REQUESTS).spread(&reading.requests_per_call);
    labelled(page, metric::REMOTE_ERRORS, &reading.errors);
    page.single(metric::REMOTE_SCRIPT_LOADS, reading.script_loads);
    page.single(metric::REMOTE_REDIRECTS, reading.redirects);
    labelled(page, metric::REMOTE_FALLBACKS, &reading.fallbacks);
    page.single(metric::REMOTE_REMEMBERED, reading.remembered_refusals);
    page.single(metric::LEASED_UNITS, reading.leased_units);
    labelled(page, metric::LEASE_CHANGES, &reading.lease_changes);
    page.single(metric::EVENTUAL_KEYS, reading.eventual_keys);
    page.single(metric::EVENTUAL_FLUSHES, reading.flushes);
    page.single(metric::EVENTUAL_FLUSHED, reading.flushed_keys);
    page.family(metric::EVENTUAL_OVERSHOOT).spread(&reading.overshoot);
    page.single(metric::REMOTE_OWING, reading.owing);
    page.single(metric::REGION_PENDING, reading.pending);
    page.single(metric::NODES, reading.nodes);
}

fn labelled(
    page: &mut Exposition,
    metric: &'static metric::Metric,
    counts: &[(&'static str, u64)],
) {
    let mut family = page.family(metric);
    for (label, count) in counts {
        family.sample(&[label], count);
    }
}
