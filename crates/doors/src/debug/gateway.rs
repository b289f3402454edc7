//! What the gateway did, in metrics: requests by route and outcome, upstreams by host.

use super::exposition::Exposition;
use super::vocabulary as metric;
use super::vocabulary::Metric;
use crate::gateway::{GatewayReading, HostState};

/// What the route of requests that no route takes is called.
const NO_ROUTE: &str = "(none)";

pub(super) fn show(page: &mut Exposition, reading: &GatewayReading) {
    let mut requests = page.family(metric::GATEWAY_REQUESTS);
    for (route, outcomes) in &reading.routes {
        let route = if route.is_empty() { NO_ROUTE } else { route.as_str() };
        for (outcome, count) in outcomes {
            requests.sample(&[route, outcome], count);
        }
    }
    page.single(metric::GATEWAY_WAITING, reading.waiting);
    page.single(metric::GATEWAY_IN_FLIGHT, reading.in_flight);
    page.single(metric::GATEWAY_TUNNELS, reading.tunnels);
    page.single(metric::GATEWAY_BROKEN, reading.broken);
    page.single(metric::GATEWAY_LOG_DROPPED, reading.log_dropped);
    let mut each = |metric: &'static Metric, figure: fn(&HostState) -> u64| {
        let mut family = page.family(metric);
        for (group, hosts) in &reading.upstreams {
            for (host, state) in hosts {
                family.sample(&[group, host], figure(state));
            }
        }
    };
    each(metric::UPSTREAM_HEALTHY, |host| u64::from(host.healthy));
    each(metric::UPSTREAM_EJECTED, |host| u64::from(host.ejected));
    each(metric::UPSTREAM_REQUESTS, |host| u64::try_from(host.requests).unwrap_or(u64::MAX));
    each(metric::UPSTREAM_OPENED, |host| host.opened);
    each(metric::UPSTREAM_REUSED, |host| host.reused);
    each(metric::UPSTREAM_FAILURES, |host| host.failures);
}
