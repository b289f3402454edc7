//! The settings of the debug port, and the parts of the program that it shows.

use std::sync::Arc;

use super::change::Change;
use super::delivery::DeliveryReading;
use super::fleet_page::NodesReader;
use super::limiters::Switchboard;
use super::observations::Observations;
use super::state_page::{ControlReading, ForwardedReading, StoreReading};
use super::top::{ListedRow, NetworkRow};
use super::try_page::{TriedHead, TriedRoute};
use tidegate_access::{AccessPolicy, HostNames};
use tidegate_engine::RuleLimit;
use tidegate_macros::{debug_fields, defaults};
use tidegate_metrics::{Collector, Meter};
use tidegate_statsd::UpstreamMetrics;

defaults! {
    /// The settings of the debug port.
    #[derive(Clone, Debug)]
    pub struct DebugSettings {
        /// Who may change anything and see pages about callers. Default: without tokens, so changes are off.
        pub access: AccessPolicy,
        /// The host names that the port answers to, beside IP addresses and loopback names. Default: none.
        pub hosts: HostNames,
        /// Whether statistics have the names of envoyproxy/ratelimit. Default: no.
        pub compat: bool,
        /// The most rules with metrics of their own; further ones are summed. Default: 10,000.
        pub rules_max: usize = 10_000,
        /// The most bytes of the history. Default: 8 MiB.
        pub history_bytes: usize = 8 << 20,
        /// The name of this node among the others of its fleet. Default: none.
        pub node_name: String,
        /// The most streams of events at a time. Default: 16.
        pub streams_max: usize = 16,
    }
}

/// The log level of the program.
pub trait LogLevel: Send + Sync {
    /// The level now, in the words that `set` takes.
    fn get(&self) -> String;

    /// Changes the level.
    ///
    /// # Errors
    /// When there is no such level; the message lists the right ones.
    fn set(&self, level: &str) -> Result<(), String>;
}

type Source<T> = Box<dyn Fn() -> T + Send + Sync>;
type RequestTrial = Box<dyn Fn(&TriedHead) -> TriedRoute + Send + Sync>;
type CallerNaming = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;
type Listener<T> = Box<dyn Fn(&T) + Send + Sync>;
type LineListener = Box<dyn Fn(&str) + Send + Sync>;

/// The parts of the program that the debug port shows. Missing parts have no page.
#[derive(Default)]
pub struct DebugParts {
    /// The settings.
    pub settings: DebugSettings,
    /// The version of the program.
    pub version: &'static str,
    /// Counts of verdicts.
    pub observations: Arc<Observations>,
    /// The requests of each door.
    pub meters: Vec<Arc<Meter>>,
    /// Counts health checks over gRPC, for the statistics of envoyproxy/ratelimit.
    pub health_meter: Option<Arc<Meter>>,
    /// Shows the metrics of envoyproxy/ratelimit where metrics are the only page.
    pub upstream_metrics: Option<UpstreamMetrics>,
    /// The log level.
    pub log_level: Option<Box<dyn LogLevel>>,
    /// The delivery of rules.
    pub rules: Option<Source<DeliveryReading>>,
    /// Requests that rules and the gateway's document are read again. Must not wait for that.
    pub reload: Option<Source<()>>,
    /// How many answers the shadow mode of the whole service changed.
    pub globally_shadowed: Option<Source<u64>>,
    /// How many calls over gRPC had no domain, no descriptors or no rules.
    pub service_errors: Option<Source<u64>>,
    /// Switches the limiters. Default: those of the engine.
    pub switchboard: Option<Arc<Switchboard>>,
    /// The delivery of the gateway's document.
    pub gateway_document: Option<Source<DeliveryReading>>,
    /// Renders the page `/gateway` as JSON. Without it there is no such page.
    pub gateway_page: Option<Source<String>>,
    /// Parts of the program with metrics beside those of the engine, the doors and the limiters.
    pub collectors: Vec<Arc<dyn Collector>>,
    /// The state of the store.
    pub store: Option<Source<StoreReading>>,
    /// The snapshot of the control plane, if there is one.
    pub control: Option<Source<ControlReading>>,
    /// The queues of the forwarder, if there is one.
    pub forwarder: Option<Source<Vec<ForwardedReading>>>,
    /// Reads the nodes of the fleet. Without it the fleet is this node.
    pub nodes: Option<NodesReader>,
    /// A limit in a few words.
    pub limit_terms: Option<fn(&RuleLimit) -> String>,
    /// What the gateway makes of a request. Without it only descriptors can be tried.
    pub try_request: Option<RequestTrial>,
    /// A caller as pages show it; [`None`] for not at all. Default: as it is.
    pub show_caller: Option<CallerNaming>,
    /// The networks with the most open or refused connections.
    pub networks: Option<Source<Vec<NetworkRow>>>,
    /// The networks on the list of floods.
    pub listed: Option<Source<Vec<ListedRow>>>,
    /// Is called with every change, to log it.
    pub on_change: Option<Listener<Change>>,
    /// Is called with every change as a line of JSON, to keep it.
    pub on_audit: Option<LineListener>,
}

debug_fields!(DebugParts { settings });
