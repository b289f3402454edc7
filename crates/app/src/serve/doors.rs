//! The doors: built from the configuration, and opened.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::global::BoxedTracer;
use tidegate_access::{AccessPolicy, HostNames};
use tidegate_admin::{
    Change, DebugDoor, DebugParts, DebugSettings, DeliveryReading, ForwardedReading, ListedRow,
    StoreReading,
};
use tidegate_engine::SystemClock;
use tidegate_gateway::show_caller;
use tidegate_http_api::{HttpApi, HttpApiParts, HttpApiSettings, JsonHandler};
use tidegate_metrics::Collector;
use tidegate_rls::{HeaderNames, HealthHandle, Rls, RlsSettings};
use tidegate_server::{
    Address, BoundEndpoint, ConnectionLimits, Endpoint, Keepalive, OpenError, Pressure, Protocol,
    Server, Tls, TlsFiles,
};
use tidegate_spans::TracedDoor;
use tidegate_statsd::SenderFigures;
use tokio::task::JoinHandle;

use super::changes_file::ChangesFile;
use super::connections;
use super::control::ControlPlane;
use super::fleet_nodes::{self, FleetNodes};
use super::forwarder::ForwarderView;
use super::gateway_document::{self, DocumentWatch};
use super::history::HistoryThread;
use super::spans;
use super::statistics::StatsThread;
use super::store::ServiceStore;
use super::{Service, rules, system_failure, watch};
use crate::config::{self, Compat, Config, ErrorCodes, Workers, count};
use crate::exit::{Complaint, Failure};
use crate::words;

/// How long a connection to the debug port may be without a request.
const DEBUG_IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// The open doors.
#[derive(Debug)]
pub(super) struct Doors {
    server: Server,
    /// The server of the debug port: a large page of metrics must not delay a request.
    debug_server: Server,
    pub(super) listening: Vec<BoundEndpoint>,
    /// The readiness that gRPC reports.
    pub(super) grpc_health: HealthHandle,
    /// Certificates to reload when their files change.
    pub(super) certificates: Vec<(&'static str, Tls)>,
    /// Whether the log has the texts of envoyproxy/ratelimit too.
    compat: bool,
    statistics: Option<StatsThread>,
    history: Option<HistoryThread>,
    /// Writes this node into the roster of its fleet, and reads the forwarder.
    background: Vec<JoinHandle<()>>,
}

impl Doors {
    /// Opens every door; the last step of a start.
    pub(super) fn open<S: ServiceStore>(
        config: &Config,
        service: &Service<S>,
        tracer: Option<Arc<BoxedTracer>>,
    ) -> Result<Self, Failure> {
        let parts = &service.engine;
        let start = |workers| {
            let server = Server::start(workers);
            server.map_err(|error| system_failure("workers cannot be started", &error))
        };
        let (server, debug_server) = (start(workers(config))?, start(NonZeroUsize::MIN)?);
        let grpc_health = HealthHandle::new();
        let loaded = service.rules.handle().clone();
        let rls = rls(config, service, &grpc_health)
            .needing_rules(Arc::new(move || rules::are_loaded(&loaded)));
        let http = http(config, service, &rls);
        let statsd = config::statistics::sender_settings(&config.statsd);
        let statsd = statsd.map(|settings| (settings, Arc::new(SenderFigures::default())));
        let figures = statsd.as_ref().map(|(_, figures)| Arc::clone(figures));
        let forwarder = ForwarderView::open(config)?;
        let debug = debug(config, service, &rls, figures, forwarder.clone())?;
        let (grpc_tls, http_tls) = (tls(&config.grpc.tls)?, tls(&config.http.tls)?);
        let gateway_tls = if service.gateway.is_some() { tls(&config.gateway.tls)? } else { None };
        let certificates = [("grpc", &grpc_tls), ("http", &http_tls), ("gateway", &gateway_tls)]
            .into_iter()
            .filter_map(|(name, tls)| Some((name, tls.clone()?)))
            .collect();
        let listening = Vec::new();
        let compat = config.compat == Compat::EnvoyRatelimit;
        let (statistics, history) = (None, None);
        let described = service.nodes.as_ref().map(|nodes| nodes.describe(debug.clone()));
        let watched = forwarder.as_ref().map(ForwarderView::watch);
        let background = described.into_iter().chain(watched).collect();
        let mut doors = Doors {
            server,
            debug_server,
            listening,
            grpc_health,
            certificates,
            compat,
            statistics,
            history,
            background,
        };

        let endpoint = |name, protocol, listen: &[config::Address], tls| Endpoint {
            guard: Some(Arc::clone(&service.connections)),
            backlog: config.connections.backlog,
            ..endpoint(name, protocol, listen, tls)
        };
        let grpc = endpoint("grpc", Protocol::Http2, &config.grpc.listen, grpc_tls)
            .limits(grpc_limits(&config.grpc));
        doors.add(doors.server.open_calls(grpc, TracedDoor::new(rls, tracer.clone())))?;
        let api = endpoint("http", Protocol::Auto, &config.http.listen, http_tls)
            .limits(http_limits(&config.http));
        doors.add(doors.server.open(api, TracedDoor::new(http, tracer.clone())))?;
        if let Some(service) = &service.gateway {
            let (fields, gateway) = (&config.gateway, service.gateway.clone());
            let hops = fields.proxy_protocol_from.iter().map(|hop| hop.get()).collect();
            let pressed = gateway.clone();
            let endpoint = endpoint("gateway", Protocol::Auto, &fields.listen, gateway_tls)
                .pressure(Pressure::new(move || pressed.is_full()))
                .limits(gateway_limits(fields))
                .proxy_protocol_from(hops);
            doors.add(doors.server.open_for_peers(endpoint, move |peer| {
                spans::gateway_door(gateway.for_peer(peer), tracer.clone())
            }))?;
        }
        let limits = ConnectionLimits {
            connections_max: count(config.debug.connections_max),
            idle_timeout: Some(DEBUG_IDLE_TIMEOUT),
            ..ConnectionLimits::default()
        };
        let metrics = endpoint("metrics", Protocol::Auto, &config.debug.metrics_listen, None);
        let metrics_page = debug.metrics_only(config.debug.metrics_path.as_str());
        doors.add(doors.debug_server.open(metrics.limits(limits), metrics_page))?;
        let pages = endpoint("debug", Protocol::Auto, &config.debug.listen, None);
        if let Some((settings, figures)) = statsd {
            let read = debug.clone();
            let thread = StatsThread::start(settings, figures, move || read.statistics())?;
            doors.statistics = Some(thread);
        }
        let history = HistoryThread::start(debug.clone(), config.debug.history.file.clone())?;
        doors.history = Some(history);
        let opened = doors
            .debug_server
            .open_for_peers(pages.limits(limits), move |peer| debug.for_peer(peer.address));
        doors.add(opened)?;
        let grpc_health = doors.grpc_health.clone();
        parts.health.on_change(move |ready| grpc_health.set_serving(ready));
        Ok(doors)
    }

    /// Asks clients to close their connections, while requests are still served.
    pub(super) fn announce_close(&self) {
        self.server.announce_stop();
    }

    /// Lets requests finish, and closes. Returns how many connections had to be cut.
    pub(super) async fn close(self, grace: Duration) -> usize {
        let cut = self.server.stop(grace).await;
        self.background.iter().for_each(JoinHandle::abort);
        if let Some(statistics) = self.statistics {
            statistics.finish();
        }
        if let Some(history) = self.history {
            history.finish();
        }
        // Last, so that operators can watch the stop.
        self.debug_server.stop(Duration::ZERO).await;
        cut
    }

    fn add(&mut self, opened: Result<Vec<BoundEndpoint>, OpenError>) -> Result<(), Failure> {
        let opened = opened.map_err(|error| {
            let help = "choose another address, or stop the program that uses it";
            Complaint::new(error.to_string(), help)
        })?;
        for endpoint in &opened {
            tracing::info!(door = endpoint.name(), address = %endpoint.address(), "listening");
            let upstream_name = match endpoint.name() {
                "grpc" => "gRPC",
                "http" => "HTTP",
                "debug" => "debug",
                _ => continue,
            };
            if self.compat {
                let address = endpoint.address().to_string();
                let address = address.strip_prefix("unix:").unwrap_or(&address);
                tracing::warn!("Listening for {upstream_name} on '{address}'");
            }
        }
        self.listening.extend(opened);
        Ok(())
    }
}

/// How many threads serve.
pub(crate) fn workers(config: &Config) -> NonZeroUsize {
    match config.workers {
        Workers::Auto => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        Workers::Count(count) => {
            NonZeroUsize::new(config::count(count)).unwrap_or(NonZeroUsize::MIN)
        }
    }
}

fn rls<S: ServiceStore>(config: &Config, service: &Service<S>, health: &HealthHandle) -> Rls<S> {
    let parts = &service.engine;
    let limiter = &config.limiter;
    let headers = &limiter.response_headers;
    let settings = RlsSettings {
        shadow: limiter.shadow,
        quota: limiter.quota,
        response_headers: headers.enabled.then(|| HeaderNames {
            limit: headers.limit.as_str().to_owned(),
            remaining: headers.remaining.as_str().to_owned(),
            reset: headers.reset.as_str().to_owned(),
        }),
        dynamic_metadata: limiter.dynamic_metadata,
        upstream_errors: limiter.error_codes == ErrorCodes::Unknown,
        message_bytes_max: config.grpc.message_bytes_max.to_usize(),
        descriptors_max: count(config.limiter.descriptors_max),
        reflection: config.grpc.reflection,
        tokens: service.tokens.grpc.clone(),
    };
    Rls::new(Arc::clone(&parts.engine), settings, health, Arc::clone(&parts.rls_meter))
}

fn http<S: ServiceStore>(config: &Config, service: &Service<S>, rls: &Rls<S>) -> HttpApi<S> {
    let rls = rls.clone();
    let json: JsonHandler = Arc::new(move |body| {
        let rls = rls.clone();
        Box::pin(async move { rls.answer_json(&body).await })
    });
    let parts = HttpApiParts {
        settings: HttpApiSettings {
            body_bytes_max: config.http.body_bytes_max.to_usize(),
            body_timeout: config.http.body_timeout,
            shadow: config.limiter.shadow,
            access: AccessPolicy {
                tokens: service.tokens.http.clone(),
                changes_without_token: config.http.is_local(),
            },
            ..HttpApiSettings::default()
        },
        meter: Arc::clone(&service.engine.http_meter),
        health: service.engine.health.clone(),
        rules: rules::view(service.rules.handle().clone()),
        json: Some(json),
    };
    HttpApi::new(Arc::clone(&service.engine.engine), parts)
}

fn debug<S: ServiceStore>(
    config: &Config,
    service: &Service<S>,
    rls: &Rls<S>,
    figures: Option<Arc<SenderFigures>>,
    forwarder: Option<ForwarderView>,
) -> Result<DebugDoor<S, SystemClock>, Failure> {
    let Service { engine: parts, rules, gateway, .. } = service;
    let settings = DebugSettings {
        access: AccessPolicy {
            tokens: service.tokens.debug.clone(),
            changes_without_token: config.debug.switches_are_on() && config.debug.is_local(),
        },
        hosts: HostNames::new(config.debug.hosts.iter().map(|name| name.as_str().to_owned())),
        compat: config.compat == Compat::EnvoyRatelimit,
        rules_max: count(config.debug.metrics.rules_max),
        history_bytes: config.debug.history.budget.to_usize(),
        node_name: fleet_nodes::name(config),
        streams_max: count(config.debug.streams_max),
    };
    let rules = rules.handle().clone();
    let document = gateway.as_ref().and_then(|service| service.document.as_ref());
    let document_handle = document.map(DocumentWatch::handle);
    let (reloaded_rules, reloaded_document) = (rules.clone(), document_handle.clone());
    let rls = rls.clone();
    let mut meters = vec![Arc::clone(&parts.rls_meter), Arc::clone(&parts.http_meter)];
    meters.extend(gateway.as_ref().map(|service| Arc::clone(&service.meter)));
    let gateway = gateway.as_ref().map(|service| service.gateway.clone());
    let collectors = gateway.clone().map(|gateway| Arc::new(gateway) as Arc<dyn Collector>);
    let figures = figures.map(|figures| figures as Arc<dyn Collector>);
    let snapshots = service.control.as_ref().map(ControlPlane::collector);
    let connections = Arc::clone(&service.connections);
    let floods = service.floods.clone();
    let connection_metrics = Arc::clone(&connections) as Arc<dyn Collector>;
    let decisions = parts.decisions.clone().map(|decisions| decisions as Arc<dyn Collector>);
    let upstream_metrics =
        config::statistics::upstream_metrics(&config.debug, &config.statsd.tags)?;
    let try_request = gateway.clone().map(gateway_document::trial);
    let gateway_page = gateway.map(|gateway| gateway_document::page(gateway, document));
    let (stored, callers) = (Arc::clone(&parts.engine), config.debug.callers);
    let changes = config.debug.changes_file.as_deref().map(ChangesFile::open).transpose()?;
    let (changes_file, past_changes) = changes.unzip();
    let kind = if config.store.redis.url.is_some() { "redis" } else { "memory" };
    let counted = rls.clone();
    let parts = DebugParts {
        settings,
        version: env!("CARGO_PKG_VERSION"),
        observations: Arc::clone(&parts.observations),
        meters,
        health_meter: Some(rls.health_meter()),
        upstream_metrics,
        log_level: Some(Box::new(service.log_level.clone())),
        rules: Some(Box::new(move || watch::delivery(&rules.status()))),
        reload: Some(Box::new(move || {
            reloaded_rules.reload();
            if let Some(document) = &reloaded_document {
                document.reload();
            }
        })),
        globally_shadowed: Some(Box::new(move || rls.shadowed())),
        service_errors: Some(Box::new(move || counted.service_errors())),
        switchboard: Some(Arc::clone(service.switches.board())),
        gateway_document: document_handle.map(
            |document| -> Box<dyn Fn() -> DeliveryReading + Send + Sync> {
                Box::new(move || watch::delivery(&document.status()))
            },
        ),
        gateway_page,
        store: Some(Box::new(move || StoreReading {
            kind,
            unavailable: stored.store().unavailable_reason(),
        })),
        limit_terms: Some(words::terms),
        try_request,
        show_caller: Some(Box::new(move |caller: &str| show_caller(caller, callers))),
        collectors: collectors
            .into_iter()
            .chain(figures)
            .chain(decisions)
            .chain(snapshots)
            .chain([connection_metrics])
            .chain(floods.clone().map(|floods| floods as Arc<dyn Collector>))
            .collect(),
        networks: Some(Box::new(move || connections::rows(&connections))),
        listed: floods.map(|floods| -> Box<dyn Fn() -> Vec<ListedRow> + Send + Sync> {
            Box::new(move || floods.rows())
        }),
        on_change: Some(Box::new(|change: &Change| {
            tracing::warn!(%change, "changed at run time");
        })),
        on_audit: changes_file.map(|file| -> Box<dyn Fn(&str) + Send + Sync> {
            Box::new(move |line: &str| file.append(line))
        }),
        nodes: service.nodes.as_ref().map(FleetNodes::reader),
        control: service.control.as_ref().map(ControlPlane::reader),
        forwarder: forwarder.map(|view| -> Box<dyn Fn() -> Vec<ForwardedReading> + Send + Sync> {
            Box::new(move || view.queues())
        }),
    };
    let door = DebugDoor::new(Arc::clone(&service.engine.engine), parts);
    let unreadable = past_changes.map_or(0, |lines| door.restore_changes(&lines));
    if unreadable > 0 {
        let file = config.debug.changes_file.as_deref().unwrap_or(Path::new("")).display();
        tracing::warn!(%file, unreadable, "lines of the file of changes are no changes; they stay in it");
    }
    Ok(door)
}

/// The certificates of a door, if it has some.
pub(crate) fn tls(tls: &config::Tls) -> Result<Option<Tls>, Failure> {
    let Some((certificate, key)) = tls.pair() else { return Ok(None) };
    let mut files = TlsFiles::new(certificate, key);
    files.client_authority.clone_from(&tls.client_ca);
    files.client_name = tls.client_san.as_ref().map(|name| name.as_str().to_owned());
    let loaded = Tls::load(files);
    Ok(Some(loaded.map_err(|error| Complaint::new(error.to_string(), "check the files of `tls`"))?))
}

/// A door without limits.
pub(crate) fn endpoint(
    name: &'static str,
    protocol: Protocol,
    listen: &[config::Address],
    tls: Option<Tls>,
) -> Endpoint {
    let address = |address: &config::Address| match address {
        config::Address::Tcp(address) => Address::Tcp(*address),
        config::Address::Unix(path) => Address::Unix { path: path.clone(), mode: None },
    };
    let addresses = listen.iter().map(address).collect();
    Endpoint { addresses, tls, ..Endpoint::new(name, protocol, PathBuf::new()) }
}

fn grpc_limits(grpc: &config::Grpc) -> ConnectionLimits {
    let keepalive = &grpc.keepalive;
    ConnectionLimits {
        connections_max: count(grpc.connections_max),
        streams_max: grpc.streams_max,
        keepalive: keepalive
            .interval
            .map(|interval| Keepalive { interval, timeout: keepalive.timeout }),
        age_max: grpc.connection_age_max,
        age_grace: grpc.connection_age_grace,
        idle_timeout: grpc.idle_timeout,
        ..ConnectionLimits::default()
    }
}

fn http_limits(http: &config::Http) -> ConnectionLimits {
    ConnectionLimits {
        connections_max: count(http.connections_max),
        header_timeout: http.header_timeout,
        idle_timeout: Some(http.idle_timeout),
        send_rate_window: http.idle_timeout,
        ..ConnectionLimits::default()
    }
}

fn gateway_limits(gateway: &config::Gateway) -> ConnectionLimits {
    ConnectionLimits {
        connections_max: count(gateway.connections_max),
        streams_max: gateway.streams_max,
        header_timeout: gateway.header_timeout,
        idle_timeout: Some(gateway.idle_timeout),
        send_rate_min: gateway.send_rate_min,
        send_rate_window: gateway.idle_timeout,
        ..ConnectionLimits::default()
    }
}
