//! `tidegate serve`: the order in which the parts start and stop.
//!
//! Start: configuration, logs, traces, the engine, the gateway, switches, rules, doors; then the service manager is
//! notified. Stop: the service reports "not ready", waits until load balancers notice, and lets requests finish. The
//! crates below make all decisions.

pub(crate) mod log;
pub(crate) mod notify;
mod traces;

mod changes_file;
mod control;
mod decision_log;
mod decision_samples;
mod engine;
mod store;
mod watch;

mod fleet_nodes;
mod forwarder;
mod gateway;
mod gateway_document;
mod history;
mod protection;
mod restart;
mod rules;
mod switches;
mod tokens;

mod connections;
mod descriptors;
mod doors;
mod floods;
mod lifecycle;
mod memory;
mod refusals;
mod request_queue;
mod spans;
mod statistics;
mod warnings;
mod welcome;

pub(crate) use doors::{endpoint, tls, workers};
#[cfg(feature = "top")]
pub(crate) use forwarder::queues_of;
pub(crate) use gateway_document::trial as try_in;
pub(crate) use lifecycle::Signals;
use tokens::DoorTokens;
pub(crate) use tokens::access_tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tidegate_admin::Switchboard;
use tidegate_server::ConnectionGuard;
use tidegate_sources::Watch;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

use crate::config::check::switches_without_effect;
use crate::config::{self, Config, ConfigArgs, Input, KeyLayout, LoadedConfig, Note, Weight};
use crate::demo_api;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::Output;
use connections::GuardSwitch;
use control::ControlPlane;
pub use decision_log::DECISION_METRICS;
use doors::Doors;
use engine::EngineParts;
use fleet_nodes::FleetNodes;
pub use floods::FLOOD_METRICS;
use floods::Floods;
use gateway::GatewayService;
use log::LogLevelHandle;
use store::ServiceStore;
use switches::Switches;
use traces::Traces;

/// The arguments of `tidegate serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Once it runs, print what to try: commands for the rules that it has.
    #[arg(long)]
    welcome: bool,
    /// Serve the demo API too, for the gateway to stand in front of.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9000")]
    demo_api: Option<SocketAddr>,
    /// Take the rules from the control plane that this join file names, instead of rule files. Needs `data_dir`.
    #[arg(long, value_name = "FILE")]
    control: Option<PathBuf>,
    /// The id of this node at the control plane. Default: the name of the host and a hash of `data_dir`.
    #[arg(long, value_name = "NAME", requires = "control")]
    node: Option<String>,
}

/// Serves until a signal stops it.
pub(crate) fn run(args: &ServeArgs, out: &mut Output) -> Result<Exit, Failure> {
    let input = config::load::input(&args.config)?;
    let loaded = config::resolve(&input).map_err(Failure::Config)?;
    let log_level = start_log(&loaded, switches_without_effect(&loaded.config).as_ref())?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| system_failure("the runtime cannot be started", &error))?;
    let start = Start { config: &loaded.config, input, log_level, args };
    runtime.block_on(start.serve(out))
}

/// Starts to log, and logs what was noticed in the configuration.
pub(crate) fn start_log(
    loaded: &LoadedConfig,
    further: Option<&Note>,
) -> Result<LogLevelHandle, Complaint> {
    let log_level = log::start(&loaded.config.log)
        .map_err(|message| Complaint::new(message, "set `log.level`"))?;
    descriptors::raise_limit();
    for problem in &loaded.warnings {
        tracing::warn!(place = watch::location(problem), "{}", problem.message);
    }
    for note in loaded.notes.iter().chain(further) {
        match note.weight {
            Weight::Warning => tracing::warn!(target: log::NOTICE, "{}", note.message),
            Weight::Note => tracing::info!("{}", note.message),
        }
    }
    Ok(log_level)
}

/// What a start needs before it has a store.
struct Start<'c> {
    config: &'c Config,
    /// The texts that the configuration was made of.
    input: Input,
    log_level: LogLevelHandle,
    args: &'c ServeArgs,
}

impl Start<'_> {
    async fn serve(self, out: &mut Output) -> Result<Exit, Failure> {
        if let Some(listen) = self.args.demo_api {
            demo_api::spawn(listen).await?;
        }
        // Before everything else, so that no signal during the start is lost.
        let signals = Signals::listen()
            .map_err(|error| system_failure("signals cannot be received", &error))?;
        let config = self.config;
        let traces = Traces::start(&config.traces)?;
        let traces = traces.as_ref();
        let redis = &config.store.redis;
        match (&redis.url, redis.layout) {
            (None, _) => self.serve_on(store::in_memory(config)?, signals, traces, out).await?,
            (Some(url), KeyLayout::Tidegate) => {
                self.serve_on(store::in_redis(config, url)?, signals, traces, out).await?;
            }
            (Some(url), KeyLayout::EnvoyRatelimit) => {
                let store = store::in_upstream_layout(config, url)?;
                self.serve_on(store, signals, traces, out).await?;
            }
        }
        if let Some(traces) = traces {
            traces.stop();
        }
        tracing::info!("stopped");
        Ok(Exit::Fine)
    }

    /// Serves on this store until a signal stops it.
    async fn serve_on<S: ServiceStore>(
        self,
        store: S,
        signals: Signals,
        traces: Option<&Traces>,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let Start { config, args, .. } = self;
        let mut service = Service::start(self, store, traces.is_some())?;
        let doors = Doors::open(config, &service, traces.map(Traces::tracer))?;
        if args.welcome {
            let snapshot = service.engine.engine.snapshot();
            welcome::write(out, &snapshot, &doors.listening, args.demo_api.is_some())?;
        }
        lifecycle::serve_until_stopped(config, signals, doors, &mut service).await;
        service.stop().await;
        Ok(())
    }
}

/// The parts of the service behind its doors.
#[derive(Debug)]
struct Service<S> {
    engine: EngineParts<S>,
    /// The work of the store between requests.
    store_task: Option<JoinHandle<()>>,
    gateway: Option<GatewayService<S>>,
    /// The roster of the fleet, if nodes share a Redis.
    nodes: Option<FleetNodes>,
    switches: Switches,
    /// The limiter of connections.
    connections: Arc<ConnectionGuard>,
    /// The list of networks that flood, unless it is off.
    floods: Option<Arc<Floods>>,
    rules: Watch,
    /// Where the rules come from, if not from files. Dropped before the watch that it hands snapshots to.
    control: Option<ControlPlane>,
    /// The access tokens of the doors, which the watch of the configuration replaces.
    tokens: DoorTokens,
    /// The watch of the configuration, if that is a file.
    restart: Option<Watch>,
    log_level: LogLevelHandle,
    /// Seconds since the last report of refusals of the decision service.
    refusal_ticks: u64,
}

impl<S: ServiceStore> Service<S> {
    fn start(start: Start<'_>, store: S, has_traces: bool) -> Result<Self, Failure> {
        let Start { config, input, log_level, args } = start;
        let engine = EngineParts::new(config, store, has_traces)?;
        let store_task = S::start_background(&engine.engine);
        // First: the gateway may name the file of API keys that it writes.
        let control = ControlPlane::start(config, args)?;
        let floods = Floods::start(config)?;
        let gateway = GatewayService::start(config, &engine, floods.clone())?;
        let nodes = FleetNodes::open(config)?;
        let refusal_ticks = 0;
        let protection = gateway.as_ref().and_then(|gateway| gateway.protection.clone());
        let connections = connections::guard(config);
        if let Some(floods) = floods.clone() {
            connections.set_hook(Box::new(move |address| floods.refuse(address)));
        }
        let guard_switch = GuardSwitch(Arc::clone(&connections));
        let board = Switchboard::new(Arc::clone(&engine.engine), protection)
            .with_connections(Arc::new(guard_switch));
        let switches = Switches::start(&config.switches, Arc::new(board));
        let rules = rules::start(config, &engine, control.as_ref(), switches.board())?;
        let tokens = DoorTokens::of(config)?;
        let restart = restart::start(config, input, tokens.clone())?;
        Ok(Service {
            engine,
            store_task,
            gateway,
            nodes,
            switches,
            connections,
            floods,
            rules,
            control,
            tokens,
            restart,
            log_level,
            refusal_ticks,
        })
    }

    /// Logs refusals of the decision service, when it is time; called each second.
    fn report_refusals(&mut self) {
        self.refusal_ticks += 1;
        if self.refusal_ticks >= refusals::REPORT_EVERY.as_secs() {
            self.refusal_ticks = 0;
            self.engine.samples.log();
        }
    }

    /// Reads every watched file again.
    fn reload(&self) {
        self.rules.handle().reload();
        if let Some(document) = self.gateway.as_ref().and_then(|gateway| gateway.document.as_ref())
        {
            document.handle().reload();
        }
        if let Some(configuration) = &self.restart {
            configuration.handle().reload();
        }
    }

    /// Ends the watches and the background tasks, and closes the store.
    async fn stop(self) {
        let Service { engine, store_task, gateway, nodes, rules, control, restart, .. } = self;
        drop((restart, control, rules, gateway));
        if let Some(decisions) = &engine.decisions {
            decisions.flush();
        }
        if let Some(nodes) = nodes {
            nodes.leave().await;
        }
        if let Some(task) = store_task {
            task.abort();
            engine.engine.store().close(engine.engine.clock()).await;
        }
    }
}

/// The failure of a system call.
pub(crate) fn system_failure(what: &str, error: &dyn std::error::Error) -> Failure {
    let message = format!("{what}: {error}");
    let help = "check what the process may use: memory, threads, open files";
    Complaint::new(message, help).into()
}
