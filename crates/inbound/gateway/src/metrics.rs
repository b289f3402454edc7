//! The metrics of the gateway, and its page for operators: requests by route and outcome, upstreams by host.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_engine::{Clock, CounterStore};
use tidegate_metrics::{Collector, Exposition, Metric};

use super::service::Gateway;
use super::tally::GatewayReading;
use super::upstream::HostState;

tidegate_metrics::metrics! {
    /// The metrics of [`Gateway`].
    pub GATEWAY_METRICS:
    REQUESTS = Counter "tidegate_gateway_requests_total" ["route", "outcome"]
        "Requests of the gateway, by route and outcome. Outcomes that never happened are left out.";
    KEPT = Counter "tidegate_gateway_kept_requests_total" ["outcome"]
        "Kept requests that have ended after their 202, by outcome.";
    WAITING = Gauge "tidegate_gateway_waiting_requests" []
        "Requests that wait for a limit: in line, or for their turn.";
    IN_FLIGHT = Gauge "tidegate_gateway_in_flight_requests" []
        "Requests that are with an upstream, tunnels included.";
    TUNNELS = Counter "tidegate_gateway_tunnels_total" []
        "Connections that became tunnels: WebSockets and other upgrades.";
    BROKEN = Counter "tidegate_gateway_broken_answers_total" []
        "Answers that ended early because the upstream failed.";
    KEY_SET_FETCHES = Counter "tidegate_gateway_key_set_fetches_total" ["result"]
        "Fetches of the key set for tokens from its URL: ok or failed.";
    LOG_DROPPED = Counter "tidegate_gateway_log_dropped_total" []
        "Lines of the access log that were dropped, because the writer did not keep up.";
    HOST_HEALTHY = Gauge "tidegate_upstream_healthy" ["upstreams", "host"]
        "1 while the server passes its health checks, or has none.";
    HOST_EJECTED = Gauge "tidegate_upstream_ejected" ["upstreams", "host"]
        "1 while the server gets no requests because of its failures.";
    HOST_REQUESTS = Gauge "tidegate_upstream_in_flight_requests" ["upstreams", "host"]
        "Requests that are with the server.";
    HOST_OPENED = Counter "tidegate_upstream_connections_total" ["upstreams", "host"]
        "Connections to the server that were opened.";
    HOST_REUSED = Counter "tidegate_upstream_reused_connections_total" ["upstreams", "host"]
        "Requests that were sent over an existing connection.";
    HOST_FAILURES = Counter "tidegate_upstream_failures_total" ["upstreams", "host"]
        "Requests that failed at the server.";
}

/// The route label of requests that match no route.
const NO_ROUTE: &str = "(none)";

impl Collector for GatewayReading {
    fn collect(&self, out: &mut Exposition) {
        let mut requests = out.family(REQUESTS);
        for (route, outcomes) in &self.routes {
            let route = if route.is_empty() { NO_ROUTE } else { route.as_str() };
            for (outcome, count) in outcomes {
                requests.sample(&[route, outcome], count);
            }
        }
        let mut kept = out.family(KEPT);
        for (outcome, count) in &self.kept {
            kept.sample(&[outcome], count);
        }
        out.single(WAITING, self.waiting);
        out.single(IN_FLIGHT, self.in_flight);
        out.single(TUNNELS, self.tunnels);
        out.single(BROKEN, self.broken);
        let mut fetches = out.family(KEY_SET_FETCHES);
        let (fetched, failed) = self.key_set_fetches;
        fetches.sample(&["ok"], fetched);
        fetches.sample(&["failed"], failed);
        out.single(LOG_DROPPED, self.log_dropped);
        let mut by_host = |metric: &'static Metric, value: fn(&HostState) -> u64| {
            let mut family = out.family(metric);
            for (group, hosts) in &self.upstreams {
                for (host, state) in hosts {
                    family.sample(&[group, host], value(state));
                }
            }
        };
        by_host(HOST_HEALTHY, |host| u64::from(host.healthy));
        by_host(HOST_EJECTED, |host| u64::from(host.ejected));
        by_host(HOST_REQUESTS, |host| u64::try_from(host.requests).unwrap_or(u64::MAX));
        by_host(HOST_OPENED, |host| host.opened);
        by_host(HOST_REUSED, |host| host.reused);
        by_host(HOST_FAILURES, |host| host.failures);
    }
}

impl<S: CounterStore, C: Clock> Collector for Gateway<S, C> {
    fn collect(&self, out: &mut Exposition) {
        self.read().collect(out);
    }
}

/// The gateway as its page shows it: routes by name, upstreams by host.
#[derive(Debug, Serialize)]
pub struct GatewayPage<'g> {
    routes: Vec<&'g str>,
    /// The requests of each route by outcome; the last row has no name and counts requests without a route.
    outcomes: Vec<RouteRow<'g>>,
    upstreams: Vec<UpstreamRow<'g>>,
    /// Requests that wait for a limit.
    waiting: usize,
    /// Requests in flight at an upstream.
    in_flight: u64,
}

#[derive(Debug, Serialize)]
struct RouteRow<'g> {
    route: &'g str,
    requests: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct UpstreamRow<'g> {
    name: &'g str,
    hosts: Vec<HostRow<'g>>,
}

#[derive(Debug, Serialize)]
struct HostRow<'g> {
    host: &'g str,
    healthy: bool,
    ejected: bool,
    requests: usize,
    failures: u64,
}

impl<'g> HostRow<'g> {
    fn of((host, state): &'g (String, HostState)) -> Self {
        let HostState { healthy, ejected, requests, failures, .. } = *state;
        HostRow { host, healthy, ejected, requests, failures }
    }
}

impl GatewayReading {
    /// The page that shows this reading.
    pub fn page(&self) -> GatewayPage<'_> {
        let upstreams = self.upstreams.iter();
        GatewayPage {
            // The last route has no name: it stands for requests that match no route.
            routes: self
                .routes
                .iter()
                .map(|(name, _)| name.as_str())
                .filter(|name| !name.is_empty())
                .collect(),
            outcomes: self
                .routes
                .iter()
                .map(|(route, outcomes)| RouteRow {
                    route,
                    requests: outcomes.iter().copied().collect(),
                })
                .collect(),
            waiting: self.waiting,
            in_flight: self.in_flight,
            upstreams: upstreams
                .map(|(name, hosts)| UpstreamRow {
                    name,
                    hosts: hosts.iter().map(HostRow::of).collect(),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reading() -> GatewayReading {
        let host = HostState {
            healthy: true,
            ejected: false,
            requests: 1,
            opened: 2,
            reused: 3,
            failures: 4,
        };
        GatewayReading {
            routes: vec![
                ("users".to_owned(), vec![("served", 5), ("rate_limited", 6)]),
                (String::new(), vec![("no_route", 7)]),
            ],
            upstreams: vec![("api".to_owned(), vec![("10.0.0.7:80".to_owned(), host)])],
            kept: vec![("served", 13)],
            waiting: 8,
            in_flight: 9,
            tunnels: 10,
            broken: 11,
            key_set_fetches: (14, 15),
            log_dropped: 12,
        }
    }

    #[test]
    fn every_metric_of_the_table_is_written() {
        assert_eq!(tidegate_metrics::missing(GATEWAY_METRICS, &reading()), [""; 0]);
    }

    #[test]
    fn the_page_lists_named_routes_and_every_host() {
        let page = serde_json::to_value(reading().page()).unwrap();
        assert_eq!(page["routes"], json!(["users"]));
        let host = json!({
            "host": "10.0.0.7:80", "healthy": true, "ejected": false, "requests": 1, "failures": 4
        });
        assert_eq!(page["upstreams"], json!([{"name": "api", "hosts": [host]}]));
        let users = json!({"route": "users", "requests": {"served": 5, "rate_limited": 6}});
        assert_eq!(page["outcomes"][0], users);
        assert_eq!(page["outcomes"][1]["route"], "");
    }
}
