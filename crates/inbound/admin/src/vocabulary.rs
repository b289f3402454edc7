//! Every metric: its name, what it counts, its labels. There are no others.
//!
//! One table, so that names cannot differ between the code, the page and
//! docs/metrics.md; a test compares both ways. Labels take words of closed
//! sets, doors and names that stand in rule files. Values of requests appear in
//! one metric only, for rules that ask for it, up to a maximum.

/// What kind of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
    /// Says something in its labels; its value is one.
    Info,
}

impl Kind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, as samples have it; counters end in `_total`.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(pub(super) const $constant: &Metric = &Metric {
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)+

        /// Every metric, in the order of the page.
        pub const METRICS: &[&Metric] = &[$($constant),+];
    };
}

metrics! {
    REQUESTS = Counter "tidegate_requests_total" ["door", "answer"]
        "Requests answered, by door and answer.";
    REQUEST_DURATION = Histogram "tidegate_request_duration_seconds" ["door"]
        "Time from a whole request to its answer.";
    UNDECIDED = Counter "tidegate_undecided_total" ["reason"]
        "Requests that could not be decided; the failure mode answered.";
    UNKNOWN_DOMAINS = Counter "tidegate_unknown_domain_descriptors_total" []
        "Descriptors of requests for domains that have no rules.";

    RULE_HITS = Counter "tidegate_rule_hits_total" ["domain", "rule", "limit", "outcome"]
        "Hits by limit and what became of them. Limits that were never hit are left out.";
    RULE_NEAR_LIMIT = Counter "tidegate_rule_near_limit_hits_total" ["domain", "rule", "limit"]
        "Hits that were admitted with little left of the limit.";
    VALUE_HITS = Counter "tidegate_value_hits_total" ["domain", "path", "limit", "outcome"]
        "Hits by value of the request, for rules with detailed_metric or value_to_metric.";
    METRICS_DROPPED = Counter "tidegate_metrics_dropped_total" ["reason"]
        "Hits and observations that have no series of their own.";
    RULES_SUMMED = Gauge "tidegate_rules_summed" []
        "Rules beyond the maximum, whose hits are summed.";

    RULES_INFO = Info "tidegate_rules_info" ["version"]
        "The version of the rules in place.";
    RULES = Gauge "tidegate_rules_in_place" []
        "Rules in place.";
    RULES_LIMITS = Gauge "tidegate_rules_limits" []
        "Limits of the rules in place.";
    RULES_LOADS = Counter "tidegate_rules_loads_total" []
        "Times that rules were put in place.";
    RULES_FAILURES = Counter "tidegate_rules_load_failures_total" []
        "Times that rules were wrong, so that the old ones stayed.";
    RULES_LAST_LOAD = Gauge "tidegate_rules_last_load_timestamp_seconds" []
        "When rules were last put in place, in Unix time.";
    RULES_STALE = Gauge "tidegate_rules_stale" []
        "1 while the latest rules are wrong and older ones are in place.";

    STORE_KEYS = Gauge "tidegate_store_keys" []
        "Keys in the store, idle ones that were not dropped yet included.";
    STORE_BYTES = Gauge "tidegate_store_bytes" []
        "Bytes that the counters take.";
    STORE_BUDGET = Gauge "tidegate_store_budget_bytes" []
        "The most bytes that the counters may take.";
    STORE_SHARED = Counter "tidegate_store_shared_answers_total" []
        "Answers from a shared counter because the store was full.";
    STORE_UNMETERED = Counter "tidegate_store_unmetered_answers_total" []
        "Answers without a counter because the store was full.";

    REMOTE_CONNECTIONS = Gauge "tidegate_remote_connections" []
        "Connections to the shared store that can be used.";
    REMOTE_CONNECTIONS_WANTED = Gauge "tidegate_remote_connections_wanted" []
        "Connections to the shared store that there should be.";
    REMOTE_WAITING = Gauge "tidegate_remote_waiting_requests" []
        "Requests that wait for the shared store.";
    REMOTE_DEGRADED = Gauge "tidegate_remote_degraded" []
        "1 while the shared store is not asked, because it does not answer.";
    REMOTE_DEGRADED_SECONDS = Counter "tidegate_remote_degraded_seconds_total" []
        "How long the shared store was not asked.";
    REMOTE_OUTAGES = Counter "tidegate_remote_outages_total" []
        "How often the shared store ceased to be asked.";
    REMOTE_CALL_DURATION = Histogram "tidegate_remote_call_duration_seconds" []
        "How long an answered call to the shared store took.";
    REMOTE_CALL_REQUESTS = Histogram "tidegate_remote_call_requests" []
        "How many requests one call to the shared store carried.";
    REMOTE_ERRORS = Counter "tidegate_remote_errors_total" ["kind"]
        "Requests to the shared store that failed, by kind of failure.";
    REMOTE_SCRIPT_LOADS = Counter "tidegate_remote_script_loads_total" []
        "Calls that were sent again because the server did not know the script.";
    REMOTE_REDIRECTS = Counter "tidegate_remote_redirects_total" []
        "Calls that were sent again because the key is at another node of the cluster.";
    REMOTE_FALLBACKS = Counter "tidegate_remote_fallbacks_total" ["policy"]
        "Checks that were decided without the shared store, by on_store_error.";
    REMOTE_REMEMBERED = Counter "tidegate_remote_remembered_refusals_total" []
        "Refusals that were known, so that the shared store was not asked.";
    REMOTE_OWING = Gauge "tidegate_remote_owing_keys" []
        "Keys that were decided in an outage and are still to be charged.";
    LEASED_UNITS = Gauge "tidegate_leased_units" []
        "Units of leased limits that this process holds and has not used.";
    LEASE_CHANGES = Counter "tidegate_lease_changes_total" ["change"]
        "Slices taken, units given back, units that ended unused.";
    EVENTUAL_KEYS = Gauge "tidegate_eventual_keys" []
        "Keys of eventual limits that are counted here.";
    EVENTUAL_FLUSHES = Counter "tidegate_eventual_flushes_total" []
        "Batches of eventual counts that were sent.";
    EVENTUAL_FLUSHED = Counter "tidegate_eventual_flushed_keys_total" []
        "Keys in those batches.";
    EVENTUAL_OVERSHOOT = Histogram "tidegate_eventual_overshoot_ratio" []
        "By which part of their limit flushed keys were over it.";
    REGION_PENDING = Gauge "tidegate_region_pending_keys" []
        "Keys of which another region is still to be told.";
    NODES = Gauge "tidegate_nodes" []
        "Live processes that share the store, as last known.";

    GATEWAY_REQUESTS = Counter "tidegate_gateway_requests_total" ["route", "outcome"]
        "Requests of the gateway by route and how they ended. What never happened is left out.";
    GATEWAY_WAITING = Gauge "tidegate_gateway_waiting_requests" []
        "Requests that wait for a limit: in line, or for their turn.";
    GATEWAY_IN_FLIGHT = Gauge "tidegate_gateway_in_flight_requests" []
        "Requests that are with an upstream, tunnels included.";
    GATEWAY_TUNNELS = Counter "tidegate_gateway_tunnels_total" []
        "Connections that became tunnels: WebSockets and other upgrades.";
    GATEWAY_BROKEN = Counter "tidegate_gateway_broken_answers_total" []
        "Answers that their upstreams broke off.";
    GATEWAY_LOG_DROPPED = Counter "tidegate_gateway_log_dropped_total" []
        "Lines of the access log that were dropped, because the writer did not keep up.";
    UPSTREAM_HEALTHY = Gauge "tidegate_upstream_healthy" ["upstreams", "host"]
        "1 while the server passes its health checks, as far as it is asked.";
    UPSTREAM_EJECTED = Gauge "tidegate_upstream_ejected" ["upstreams", "host"]
        "1 while the server is left alone for its failures.";
    UPSTREAM_REQUESTS = Gauge "tidegate_upstream_in_flight_requests" ["upstreams", "host"]
        "Requests that are with the server.";
    UPSTREAM_OPENED = Counter "tidegate_upstream_connections_total" ["upstreams", "host"]
        "Connections to the server that were opened.";
    UPSTREAM_REUSED = Counter "tidegate_upstream_reused_connections_total" ["upstreams", "host"]
        "Requests that went over a connection that was there.";
    UPSTREAM_FAILURES = Counter "tidegate_upstream_failures_total" ["upstreams", "host"]
        "Requests that failed at the server.";

    GATEWAY_LOADS = Counter "tidegate_gateway_loads_total" []
        "Times that the gateway's document was put in place, with the files that it names.";
    GATEWAY_FAILURES = Counter "tidegate_gateway_load_failures_total" []
        "Times that the gateway's document or a file of it was wrong, so that the old one stayed.";
    GATEWAY_LAST_LOAD = Gauge "tidegate_gateway_last_load_timestamp_seconds" []
        "When the gateway's document was last put in place, in Unix time.";
    GATEWAY_STALE = Gauge "tidegate_gateway_stale" []
        "1 while the latest document of the gateway is wrong and an older one is in place.";

    LIMITER_MODE = Gauge "tidegate_limiter_mode" ["limiter", "mode"]
        "1 for the mode that the limiter is in.";
    LIMITER_ENFORCED = Gauge "tidegate_limiter_enforced_ratio" ["limiter"]
        "For which share of callers the limiter refuses.";
    DECISIONS = Counter "tidegate_decisions_total" ["limiter", "mode", "category", "outcome"]
        "Decisions of what protects the node.";
    GATE_IN_FLIGHT = Gauge "tidegate_gate_in_flight_requests" []
        "Requests that hold a slot of the gate.";
    GATE_QUEUED = Gauge "tidegate_gate_queued_requests" []
        "Requests that wait at the gate.";
    GATE_LIMIT = Gauge "tidegate_gate_limit" []
        "Slots of the gate.";
    GATE_SERVICE_TIME = Gauge "tidegate_gate_service_time_seconds" []
        "How long a slot is held, in the mean of the last requests.";
    GATE_WAIT = Histogram "tidegate_gate_wait_seconds" ["category"]
        "How long requests waited at the gate before they came in.";
    GATE_SLOTS = Counter "tidegate_gate_slots_total" ["event"]
        "What became of slots of the gate.";
    WORKER_UTILIZATION = Gauge "tidegate_worker_utilization_ratio" []
        "Requests in flight and waiting by slots, as measured.";
    WORKER_PREDICTED = Gauge "tidegate_worker_predicted_utilization_ratio" []
        "The same without what the worker shedder would have refused.";
    WORKER_SMOOTHED = Gauge "tidegate_worker_smoothed_utilization_ratio" []
        "What the worker shedder goes by: predicted and smoothed.";
    WORKER_ADMITTED = Gauge "tidegate_worker_admitted_ratio" []
        "The part of offered requests that the worker shedder admits.";
    WORKER_LEVEL = Gauge "tidegate_worker_shed_level" []
        "The lowest level of which the worker shedder admits anything, 0 to 512.";
    WORKER_TICK_LAG = Gauge "tidegate_worker_tick_lag_seconds" []
        "How late the last tick of the worker shedder came.";
    SCHEDULER_DELAY = Gauge "tidegate_scheduler_delay_seconds" []
        "How late the runtime wakes its tasks, the median of the last second.";
    OFFERED_DEMAND = Gauge "tidegate_offered_demand" []
        "Requests that would be in progress if nobody were refused: for autoscaling.";
    FLEET_POOL = Gauge "tidegate_fleet_pool" []
        "What the fleet shares for requests that are not critical; the node's own while it is alone.";
    FLEET_GRANT = Gauge "tidegate_fleet_grant" []
        "Below how many in flight this node admits requests that are not critical.";
    FLEET_IN_FLIGHT = Gauge "tidegate_fleet_in_flight_requests" []
        "Requests in flight on this node that are not critical.";
    FLEET_USED = Gauge "tidegate_fleet_used" []
        "What the fleet uses of the pool, as last heard.";
    FLEET_LEASE_AGE = Gauge "tidegate_fleet_lease_age_seconds" []
        "How old the grant is; not there while the node is alone.";
    FLEET_FALLBACK = Gauge "tidegate_fleet_fallback" []
        "1 while the grant is too old and the node uses its safe share.";
    FLEET_BEATS_MISSED = Counter "tidegate_fleet_missed_beats_total" []
        "Beats to the fleet's board without an answer.";
    GOODPUT_DURATION = Histogram "tidegate_goodput_duration_seconds" ["category"]
        "How long the requests took that were done in time.";

    KILL_SWITCH = Gauge "tidegate_kill_switch" []
        "1 while everything is switched off and every request passes.";
    SWITCHES = Gauge "tidegate_switches" ["mode"]
        "Limits that are switched at run time, by the mode they are switched to.";
    CHANGES = Counter "tidegate_debug_changes_total" ["change"]
        "Changes made through the debug door.";
    DENIED = Counter "tidegate_debug_denied_total" []
        "Requests that the debug door turned away for want of the right token.";

    BUILD_INFO = Info "tidegate_build_info" ["version"]
        "The version of the program.";
    PROCESS_CPU = Counter "process_cpu_seconds_total" []
        "Processor time used.";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" []
        "Resident memory.";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" []
        "Virtual memory.";
    PROCESS_FDS = Gauge "process_open_fds" []
        "Open file descriptors.";
    PROCESS_FDS_MAX = Gauge "process_max_fds" []
        "The most file descriptors that may be open.";
    PROCESS_START = Gauge "process_start_time_seconds" []
        "When the process started, in Unix time.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_as_their_kind_does() {
        for metric in METRICS {
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{metric:?}");
            assert_eq!(metric.name.ends_with("_info"), metric.kind == Kind::Info, "{metric:?}");
        }
    }

    #[test]
    fn no_name_is_used_twice_without_its_ending() {
        let short = |name: &'static str| {
            ["_total", "_info"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
        };
        let mut names: Vec<&str> = METRICS.iter().map(|metric| short(metric.name)).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
