//! What the gateway did, in metrics: requests by route and outcome, upstreams by host. And a page
//! that says which document it has, what is wrong with the latest one, and how its servers do.

use http::StatusCode;
use serde::Serialize;
use tidegate_engine::{Report, Timestamp};
use tidegate_rules::Problem as DocumentProblem;

use super::answer::{self, Answer, Problem};
use super::exposition::Exposition;
use super::metrics::seconds;
use super::settings::{DebugParts, RulesReading};
use super::vocabulary as metric;
use super::vocabulary::Metric;
use tidegate_gateway::{GatewayReading, HostState};

/// What is known of the delivery of the gateway's document.
#[derive(Clone, Debug, Default)]
pub struct DocumentReading {
    /// How often it was put in place or was wrong, and when.
    pub delivery: RulesReading,
    /// Where it comes from.
    pub file: String,
    /// What is wrong with the latest, if an older one is in place.
    pub failure: Option<DocumentFailure>,
}

/// A document that could not be put in place.
#[derive(Clone, Debug)]
pub struct DocumentFailure {
    /// When it was tried.
    pub at: Timestamp,
    /// What is wrong, in words.
    pub message: String,
    /// What is wrong with the text, if it could be had.
    pub report: Option<Report>,
}

/// The page, as JSON.
pub(super) fn page(parts: &DebugParts) -> Result<Answer, Problem> {
    let none = || Problem::new(StatusCode::NOT_FOUND, "there is no gateway");
    let gateway = parts.gateway.as_ref().ok_or_else(none)?();
    let document = parts.gateway_document.as_ref().map(|ask| ask());
    let host = |(host, state): &(String, HostState)| HostTold {
        host: host.clone(),
        healthy: state.healthy,
        ejected: state.ejected,
        requests: state.requests,
    };
    let told = GatewayTold {
        document: document.as_ref().map(DocumentTold::of),
        routes: gateway.routes.iter().map(|(name, _)| name.as_str()).filter(named).collect(),
        upstreams: gateway
            .upstreams
            .iter()
            .map(|(name, hosts)| GroupTold { name, hosts: hosts.iter().map(host).collect() })
            .collect(),
    };
    Ok(answer::json(&told))
}

/// The last of all routes has no name: it is for requests that no route takes.
const fn named(name: &&str) -> bool {
    !name.is_empty()
}

#[derive(Serialize)]
struct GatewayTold<'g> {
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<DocumentTold<'g>>,
    routes: Vec<&'g str>,
    upstreams: Vec<GroupTold<'g>>,
}

#[derive(Serialize)]
struct GroupTold<'g> {
    name: &'g str,
    hosts: Vec<HostTold>,
}

#[derive(Serialize)]
struct HostTold {
    host: String,
    healthy: bool,
    ejected: bool,
    requests: usize,
}

#[derive(Serialize)]
struct DocumentTold<'g> {
    file: &'g str,
    loads: u64,
    load_failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<FailureTold<'g>>,
}

#[derive(Serialize)]
struct FailureTold<'g> {
    at_ms: u64,
    message: &'g str,
    problems: &'g [DocumentProblem],
    omitted: usize,
}

impl<'g> DocumentTold<'g> {
    fn of(reading: &'g DocumentReading) -> Self {
        let DocumentReading { delivery, file, failure } = reading;
        DocumentTold {
            file,
            loads: delivery.loads,
            load_failures: delivery.failures,
            loaded_at_ms: delivery.last_load.map(millis),
            last_failure: failure.as_ref().map(|failure| FailureTold {
                at_ms: millis(failure.at),
                message: &failure.message,
                problems: failure.report.as_ref().map(Report::problems).unwrap_or_default(),
                omitted: failure.report.as_ref().map(Report::omitted).unwrap_or_default(),
            }),
        }
    }
}

/// Milliseconds since the Unix epoch.
const fn millis(at: Timestamp) -> u64 {
    at.as_nanos() / 1_000_000
}

pub(super) fn show_document(page: &mut Exposition, delivery: &RulesReading) {
    page.single(metric::GATEWAY_LOADS, delivery.loads);
    page.single(metric::GATEWAY_FAILURES, delivery.failures);
    if let Some(last_load) = delivery.last_load {
        page.single(metric::GATEWAY_LAST_LOAD, seconds(last_load.as_nanos()));
    }
    page.single(metric::GATEWAY_STALE, u8::from(delivery.stale));
}

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
