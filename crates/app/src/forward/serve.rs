//! `tidegate forward serve` and `tidegate forward work`: the order in which the parts start and stop.
//!
//! Start: configuration, log, document, queue, leases, lanes, the API; then the service manager is notified. Stop: no new
//! connections, requests finish, unsent records go back to the queue, attempts in flight end, leases are given back.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::Arc;

use clap::Args;
use tidegate_access::{AccessPolicy, AccessTokens};
use tidegate_forwarder::{
    ForwardApi, ForwardApiSettings, ForwardDocument, Forwarder, ForwarderParts, LeaseStore,
    TypePlan,
};
use tidegate_server::{ConnectionLimits, Protocol, Server, Tls};
use tokio::runtime::Builder;
use tokio::time::{Duration, interval};

use super::stores;
use crate::config::{self, Config, ConfigArgs, count};
use crate::exit::{Complaint, Exit, Failure};
use crate::serve::notify::ServiceManager;
use crate::serve::{
    Signals, access_tokens, endpoint, log, start_log, system_failure, tls, workers,
};

/// How often the periodic work runs: certificates, the watchdog.
const TICK: Duration = Duration::from_secs(1);

/// Whether a process accepts records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessRole {
    /// It accepts records and sends them.
    Serve,
    /// It sends records that others accept.
    Work,
}

/// The arguments of `forward serve` and `forward work`.
#[derive(Debug, Args)]
pub(crate) struct ForwardServeArgs {
    /// Only this record type; can be given several times. Without it: all types of the document.
    #[arg(long = "type", value_name = "NAME")]
    types: Vec<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs until a signal stops it.
pub(crate) fn run(args: &ForwardServeArgs, role: ProcessRole) -> Result<Exit, Failure> {
    let input = config::load::input(&args.config)?;
    let loaded = config::resolve(&input).map_err(Failure::Config)?;
    let _log_level = start_log(&loaded, None)?;
    let config = &loaded.config;
    let mut document = config::forward::of(config)?;
    for problem in &document.warnings {
        tracing::warn!(target: log::NOTICE, line = problem.line, "{}", problem.message);
    }
    select_types(&mut document, &args.types)?;
    let threads = workers(config);
    let runtime = Builder::new_multi_thread().worker_threads(threads.get()).enable_all().build();
    let runtime =
        runtime.map_err(|error| system_failure("the runtime cannot be started", &error))?;
    runtime.block_on(async {
        // Before everything else, so that no signal during the start is lost.
        let signals = Signals::listen()
            .map_err(|error| system_failure("signals cannot be received", &error))?;
        let service = ForwardService::start(config, &document, role, threads).await?;
        service.run(config, &args.config, signals).await;
        tracing::info!("stopped");
        Ok(Exit::Fine)
    })
}

/// Keeps the types that were asked for.
fn select_types(document: &mut ForwardDocument, wanted: &[String]) -> Result<(), Complaint> {
    let known =
        |name: &String| document.types.iter().any(|plan| plan.settings.record_type == *name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        let names: Vec<&str> =
            document.types.iter().map(|plan| plan.settings.record_type.as_str()).collect();
        let message = format!("the document has no record type `{unknown}`");
        return Err(Complaint::new(message, format!("it has: {}", names.join(", "))));
    }
    if !wanted.is_empty() {
        document.types.retain(|plan| wanted.contains(&plan.settings.record_type));
    }
    Ok(())
}

/// The running parts.
struct ForwardService {
    forwarder: Arc<Forwarder>,
    server: Server,
    tokens: AccessTokens,
    certificates: Option<Tls>,
    addresses: Vec<String>,
}

impl ForwardService {
    async fn start(
        config: &Config,
        document: &ForwardDocument,
        role: ProcessRole,
        threads: NonZeroUsize,
    ) -> Result<Self, Failure> {
        let queues = stores::open_queue(config, role).await?;
        let leases = stores::open_leases(config)?;
        let name = process_name(config);
        for target in &document.targets {
            warn_of_other_limits(&leases, target).await;
        }
        let forwarder = Arc::new(Forwarder::new(ForwarderParts::new(queues, leases, name)));
        for plan in &document.types {
            add_type(&forwarder, document, plan).await?;
        }
        let tokens = access_tokens(&config.forward.tokens, None);
        let settings = ForwardApiSettings {
            access: AccessPolicy {
                tokens: tokens.clone(),
                changes_without_token: config.forward.is_local(),
            },
            tenants: document.tenants.clone(),
            body_bytes_max: config.forward.body_bytes_max.to_usize(),
            body_timeout: config.forward.body_timeout,
            kept_secrets: document.kept_secrets.clone(),
            accepts_records: role == ProcessRole::Serve,
        };
        let api = ForwardApi::new(Arc::clone(&forwarder), settings);
        let server = Server::start(threads)
            .map_err(|error| system_failure("workers cannot be started", &error))?;
        let certificates = tls(&config.forward.tls)?;
        let listen = match role {
            ProcessRole::Serve => &config.forward.listen,
            ProcessRole::Work => &config.forward.worker_listen,
        };
        let door = endpoint("forward", Protocol::Auto, listen, certificates.clone());
        let opened = server.open(door.limits(limits(&config.forward)), api).map_err(|error| {
            let help =
                "choose another address (`forward.listen`), or stop the program that uses it";
            Complaint::new(error.to_string(), help)
        })?;
        let mut addresses = Vec::new();
        for door in &opened {
            tracing::info!(door = door.name(), address = %door.address(), "listening");
            addresses.push(format!("{} at {}", door.name(), door.address()));
        }
        let types = forwarder.types().join(", ");
        tracing::info!(types, "sending records");
        Ok(ForwardService { forwarder, server, tokens, certificates, addresses })
    }

    /// Works until a signal, then lets requests and attempts finish.
    async fn run(self, config: &Config, args: &ConfigArgs, mut signals: Signals) {
        let manager = ServiceManager::from_environment();
        manager.ready(&self.addresses.join(", "));
        let mut ticks = interval(TICK);
        let mut beat = interval(manager.beat.unwrap_or(TICK));
        let stopped_by = loop {
            tokio::select! {
                _ = signals.terminate.recv() => break "SIGTERM",
                _ = signals.interrupt.recv() => break "SIGINT",
                _ = signals.hang_up.recv() => self.reload_tokens(args),
                _ = ticks.tick() => self.refresh_certificates(),
                _ = beat.tick() => manager.alive(),
            }
        };
        tracing::info!(signal = stopped_by, "stopping");
        manager.stopping();
        let grace = config.shutdown.grace;
        let ForwardService { forwarder, server, .. } = self;
        let stop = async {
            server.announce_stop();
            server.stop(grace).await;
            forwarder.stop(grace).await;
        };
        tokio::select! {
            () = stop => {}
            _ = signals.terminate.recv() => tracing::warn!("stopped at once by a second signal"),
            _ = signals.interrupt.recv() => tracing::warn!("stopped at once by a second signal"),
        }
    }

    /// Reads the access tokens again. A list does not become empty: that would open the port.
    fn reload_tokens(&self, args: &ConfigArgs) {
        let loaded = config::load::input(args)
            .and_then(|input| config::resolve(&input).map_err(Failure::Config));
        let tokens = match loaded {
            Ok(loaded) => access_tokens(&loaded.config.forward.tokens, None),
            Err(_) => {
                tracing::error!("SIGHUP: the configuration has problems; the access tokens stay");
                return;
            }
        };
        if tokens.is_empty() && !self.tokens.is_empty() {
            tracing::warn!("SIGHUP: no access tokens in the configuration: it takes a restart");
        } else if self.tokens.replace(&tokens) {
            tracing::info!("SIGHUP: activated other access tokens");
        }
    }

    fn refresh_certificates(&self) {
        let Some(certificates) = &self.certificates else { return };
        match certificates.refresh() {
            Ok(true) => tracing::info!("new certificates are in use"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "certificates cannot be used; the old stay"),
        }
    }
}

/// Makes the processor of a type, and starts its lane.
async fn add_type(
    forwarder: &Forwarder,
    document: &ForwardDocument,
    plan: &TypePlan,
) -> Result<(), Complaint> {
    let name = &plan.settings.record_type;
    let failed = |error: String, help: &str| {
        Complaint::new(format!("the type `{name}` cannot be started: {error}"), help)
    };
    let target = document
        .target_of(plan)
        .ok_or_else(|| failed("it has no target".to_owned(), "give it a `target`"))?;
    let processor = plan.processor.build();
    let processor = processor
        .map_err(|error| failed(error.to_string(), "check the files that its `http` names"))?;
    forwarder.add(target, plan.settings.clone(), processor).await.map_err(|error| {
        let help =
            "docs/queue.md says what each queue can do; check its `queue` and `forward.queue`";
        failed(error.to_string(), help)
    })
}

/// The stored limits of a target count, so that those of a changed document have no effect.
async fn warn_of_other_limits(leases: &LeaseStore, target: &tidegate_forwarder::Target) {
    let Ok(Some(stored)) = leases.document(&target.name).await else { return };
    if stored.limits() != &target.limits {
        let name = &target.name;
        tracing::warn!(
            target: log::NOTICE,
            stored = ?super::terms::show_limits(stored.limits().limits()),
            document = ?super::terms::show_limits(target.limits.limits()),
            "the lease store has other limits or slots of the target `{name}`, and they count; \
             `tidegate forward limit set {name}` changes them"
        );
    }
}

/// The name of this process among the members of a target. A part is random: two processes of one name would both use
/// the same slots, so that the target gets twice its limit.
fn process_name(config: &Config) -> String {
    let host = || {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "forwarder" } else { host.trim() };
        format!("{host}-{}", std::process::id())
    };
    let name = config.forward.name.clone().unwrap_or_else(host);
    format!("{name}-{:08x}", RandomState::new().hash_one("member") >> 32)
}

fn limits(forward: &config::Forward) -> ConnectionLimits {
    ConnectionLimits {
        connections_max: count(forward.connections_max),
        header_timeout: forward.header_timeout,
        idle_timeout: Some(forward.idle_timeout),
        send_rate_window: forward.idle_timeout,
        ..ConnectionLimits::default()
    }
}
