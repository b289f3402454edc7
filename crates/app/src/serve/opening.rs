//! The doors: built from the configuration, and opened.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::global::BoxedTracer;
use tidegate_admin::{
    Change, DebugDoor, DebugParts, DebugSettings, DeliveryReading, Switchboard, Token,
};
use tidegate_http_api::{HttpApi, HttpApiParts, HttpApiSettings, JsonHandler};
use tidegate_metrics::Collector;
use tidegate_rls::{HeaderNames, HealthHandle, Rls, RlsSettings};
use tidegate_server::{
    Address, BoundEndpoint, ConnectionLimits, Endpoint, Keepalive, OpenError, Protocol, Server,
    Tls, TlsFiles,
};
use tidegate_spans::TracedDoor;

use tidegate_engine::SystemClock;

use super::counters::Counters;
use super::document::{self, Document};
use super::gateway::Front;
use super::limiting::Limiting;
use super::log::LogLevel;
use super::rules::{self, Rules};
use super::{is_compat, system};
use crate::config::{self, Config, ErrorCodes, Workers};
use crate::exit::{Complaint, Failure};

/// The doors, open.
#[derive(Debug)]
pub(super) struct Doors {
    server: Server,
    /// For operators: a large page of metrics must not keep a request waiting.
    aside: Server,
    pub(super) listening: Vec<BoundEndpoint>,
    /// Says over gRPC whether the service serves.
    pub(super) grpc_health: HealthHandle,
    /// Certificates to look after.
    pub(super) certificates: Vec<(&'static str, Tls)>,
}

/// What doors are made of.
#[derive(Debug)]
pub(super) struct Served<'s, S> {
    pub(super) limiting: &'s Limiting<S>,
    pub(super) rules: &'s Rules,
    /// The gateway, if there is one.
    pub(super) front: Option<&'s Front<S>>,
    pub(super) level: LogLevel,
}

impl Doors {
    /// Opens every door; the last thing of a start.
    pub(super) fn open<S: Counters>(
        config: &Config,
        served: &Served<'_, S>,
        board: &Arc<Switchboard>,
        tracer: Option<Arc<BoxedTracer>>,
    ) -> Result<Self, Failure> {
        let Served { limiting, rules, .. } = served;
        let start = |workers| {
            Server::start(workers).map_err(|error| system("workers cannot be started", &error))
        };
        let (server, aside) = (start(workers(config))?, start(NonZeroUsize::MIN)?);
        let grpc_health = HealthHandle::new();
        let loaded = rules.handle();
        let rls = rls(config, limiting, &grpc_health)
            .needing_rules(Arc::new(move || loaded.status().active.is_some()));
        let http = http(config, limiting, rules, &rls);
        let debug = debug(config, served, board, &rls)?;
        let (grpc_tls, http_tls) = (tls(&config.grpc.tls)?, tls(&config.http.tls)?);
        let gateway_tls = served.front.map(|_| tls(&config.gateway.tls)).transpose()?.flatten();

        let mut doors =
            Doors { server, aside, listening: Vec::new(), grpc_health, certificates: Vec::new() };
        for (name, tls) in [("grpc", &grpc_tls), ("http", &http_tls), ("gateway", &gateway_tls)] {
            doors.certificates.extend(tls.clone().map(|tls| (name, tls)));
        }
        let grpc = endpoint("grpc", Protocol::Http2, &config.grpc.listen, grpc_tls);
        let opened = doors.server.open_calls(
            grpc.limits(grpc_limits(&config.grpc)),
            TracedDoor::new(rls, tracer.clone()),
        );
        doors.note(opened)?;
        let api = endpoint("http", Protocol::Auto, &config.http.listen, http_tls);
        let traced = TracedDoor::new(http, tracer.clone());
        let opened = doors.server.open(api.limits(http_limits(&config.http)), traced);
        doors.note(opened)?;
        if let Some(front) = served.front {
            let (listen, gateway) = (&config.gateway.listen, front.gateway.clone());
            let hops = config.gateway.proxy_protocol_from.iter().map(|hop| hop.get()).collect();
            let front = endpoint("gateway", Protocol::Auto, listen, gateway_tls)
                .limits(gateway_limits(&config.gateway))
                .proxy_protocol_from(hops);
            let opened = doors.server.open_for_peers(front, move |peer| {
                TracedDoor::new(gateway.for_peer(peer), tracer.clone())
            });
            doors.note(opened)?;
        }
        let limits = ConnectionLimits {
            connections_max: count(config.debug.connections_max),
            ..ConnectionLimits::default()
        };
        let metrics = endpoint("metrics", Protocol::Auto, &config.debug.metrics_listen, None);
        let path = config.debug.metrics_path.as_str();
        let opened = doors.aside.open(metrics.limits(limits), debug.metrics_only(path));
        doors.note(opened)?;
        let shown = endpoint("debug", Protocol::Auto, &config.debug.listen, None);
        let opened = doors.aside.open(shown.limits(limits), debug);
        doors.note(opened)?;
        doors.grpc_health.set_serving(limiting.health.is_ready());
        Ok(doors)
    }

    /// Lets requests finish, and closes. Returns how many connections had to be cut.
    pub(super) async fn close(self, grace: Duration) -> usize {
        let cut = self.server.stop(grace).await;
        // Operators see it to the end.
        self.aside.stop(Duration::ZERO).await;
        cut
    }

    fn note(&mut self, opened: Result<Vec<BoundEndpoint>, OpenError>) -> Result<(), Failure> {
        let opened = opened.map_err(|error| {
            Complaint::new(error.to_string(), "choose another address, or stop who has it")
        })?;
        for listening in &opened {
            tracing::info!(
                door = listening.name(),
                address = %listening.address(),
                "listening"
            );
        }
        self.listening.extend(opened);
        Ok(())
    }
}

fn workers(config: &Config) -> NonZeroUsize {
    match config.workers {
        Workers::Auto => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        Workers::Count(count) => NonZeroUsize::new(self::count(count)).unwrap_or(NonZeroUsize::MIN),
    }
}

fn rls<S: Counters>(config: &Config, limiting: &Limiting<S>, health: &HealthHandle) -> Rls<S> {
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
        message_bytes_max: size(config.grpc.message_bytes_max),
        reflection: config.grpc.reflection,
    };
    Rls::new(Arc::clone(&limiting.engine), settings, health, Arc::clone(&limiting.rls))
}

fn http<S: Counters>(
    config: &Config,
    limiting: &Limiting<S>,
    rules: &Rules,
    rls: &Rls<S>,
) -> HttpApi<S> {
    let rls = rls.clone();
    let json: JsonHandler = Arc::new(move |body| {
        let rls = rls.clone();
        Box::pin(async move { rls.answer_json(&body).await })
    });
    let parts = HttpApiParts {
        settings: HttpApiSettings {
            body_bytes_max: size(config.http.body_bytes_max),
            shadow: config.limiter.shadow,
            ..HttpApiSettings::default()
        },
        meter: Arc::clone(&limiting.http),
        health: limiting.health.clone(),
        rules: rules::view(rules.handle()),
        json: Some(json),
    };
    HttpApi::new(Arc::clone(&limiting.engine), parts)
}

fn debug<S: Counters>(
    config: &Config,
    served: &Served<'_, S>,
    board: &Arc<Switchboard>,
    rls: &Rls<S>,
) -> Result<DebugDoor<S, SystemClock>, Failure> {
    let Served { limiting, rules, front, level } = served;
    let settings = DebugSettings {
        token: token(&config.debug)?,
        changes_without_token: config.debug.switches_are_on() && config.debug.is_local(),
        compat: is_compat(config),
        rules_max: count(config.debug.metrics.rules_max),
    };
    let (asked, shown) = (rules.handle(), rules.handle());
    let rls = rls.clone();
    let mut meters = vec![Arc::clone(&limiting.rls), Arc::clone(&limiting.http)];
    meters.extend(front.map(|front| Arc::clone(&front.meter)));
    let gateway = front.map(|front| front.gateway.clone());
    let document = front.and_then(|front| front.document.as_ref());
    let asked_document = document.map(Document::handle);
    let shown_document = document.map(Document::handle);
    let collectors = gateway.clone().map(|gateway| Arc::new(gateway) as Arc<dyn Collector>);
    let gateway_page = gateway.map(|gateway| match document {
        Some(document) => document.page(gateway),
        None => Box::new(move || document::page(&gateway, None)),
    });
    let parts = DebugParts {
        settings,
        version: env!("CARGO_PKG_VERSION"),
        observations: Arc::clone(&limiting.observations),
        meters,
        log_level: Some(Box::new(level.clone())),
        rules: Some(Box::new(move || rules::reading(&shown.status()))),
        reload: Some(Box::new(move || {
            asked.reload();
            if let Some(document) = &asked_document {
                document.reload();
            }
        })),
        globally_shadowed: Some(Box::new(move || rls.shadowed())),
        switchboard: Some(Arc::clone(board)),
        gateway_document: shown_document.map(
            |document| -> Box<dyn Fn() -> DeliveryReading + Send + Sync> {
                Box::new(move || rules::reading(&document.status()))
            },
        ),
        gateway_page,
        collectors: collectors.into_iter().collect(),
        on_change: Some(Box::new(|change: &Change| {
            tracing::warn!(%change, "changed at run time");
        })),
    };
    Ok(DebugDoor::new(Arc::clone(&limiting.engine), parts))
}

fn token(debug: &config::Debug) -> Result<Option<Token>, Failure> {
    let text = match (&debug.token, &debug.token_file) {
        (Some(token), _) => token.reveal().to_owned(),
        (None, Some(path)) => std::fs::read_to_string(path).map_err(|error| {
            let message = format!("`{}` cannot be read: {error}", path.display());
            Complaint::new(message, "check `debug.token_file`")
        })?,
        (None, None) => return Ok(None),
    };
    let token = Token::new(text.trim());
    Ok(Some(token.map_err(|error| {
        Complaint::new(format!("the token cannot be used: {error}"), "give another one")
    })?))
}

fn tls(tls: &config::Tls) -> Result<Option<Tls>, Failure> {
    let Some((certificate, key)) = tls.pair() else { return Ok(None) };
    let mut files = TlsFiles::new(certificate, key);
    files.client_authority.clone_from(&tls.client_ca);
    files.client_name = tls.client_san.as_ref().map(|name| name.as_str().to_owned());
    let loaded = Tls::load(files);
    Ok(Some(loaded.map_err(|error| Complaint::new(error.to_string(), "check the files of `tls`"))?))
}

fn endpoint(
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
    let limits = ConnectionLimits::default();
    Endpoint { name, addresses, protocol, tls, limits, proxy_protocol_from: Vec::new() }
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
        // Proxies keep their connections over quiet nights.
        idle_timeout: None,
        ..ConnectionLimits::default()
    }
}

fn http_limits(http: &config::Http) -> ConnectionLimits {
    ConnectionLimits {
        connections_max: count(http.connections_max),
        header_timeout: http.header_timeout,
        idle_timeout: Some(http.idle_timeout),
        ..ConnectionLimits::default()
    }
}

fn gateway_limits(gateway: &config::Gateway) -> ConnectionLimits {
    ConnectionLimits {
        connections_max: count(gateway.connections_max),
        streams_max: gateway.streams_max,
        header_timeout: gateway.header_timeout,
        idle_timeout: Some(gateway.idle_timeout),
        ..ConnectionLimits::default()
    }
}

fn count(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn size(size: config::Size) -> usize {
    usize::try_from(size.bytes()).unwrap_or(usize::MAX)
}
