//! `tidegate serve`: what starts, in which order, and how it stops.
//!
//! The order: configuration, logs, traces, the engine, the gateway, switches, the rules, the
//! doors; then the service manager is told. Stopping goes the other way: not ready any
//! more, a delay in which load balancers notice, requests finish, everything ends.
//! Everything that is decided is decided in the crates below.

mod log;
mod notify;
mod traces;

mod counters;
mod demo_api;
mod document;
mod gateway;
mod limiting;
mod opening;
mod protection;
mod reading;
mod rules;

mod memory;
mod refusals;
mod restart;
mod running;
mod switches;
mod warnings;
mod welcome;

use std::sync::Arc;

use clap::Args;
use tidegate_admin::Switchboard;
use tidegate_engine::Engine;
use tokio::runtime::Builder;

use crate::config::{
    self, Compat, Config, ConfigArgs, Input, KeyLayout, LogFormat, TraceProtocol, Weight,
};
use crate::exit::{Complaint, Exit, Failure};
use crate::output::Output;
use counters::Counters;
use demo_api::DemoApi;
use gateway::Front;
use limiting::Limiting;
use log::LogLevel;
use opening::{Doors, Served};
use restart::Restart;
use rules::Rules;
use running::Watched;
use switches::Switches;
use traces::{TraceSettings, Traces};

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
    demo_api: Option<std::net::SocketAddr>,
}

/// Serves until it is told to stop.
pub(crate) fn run(args: &ServeArgs, out: &mut Output) -> Result<Exit, Failure> {
    let input = config::load::input(&args.config)?;
    let loaded = config::resolve(&input).map_err(Failure::Config)?;
    let config = &loaded.config;
    let level = begin_log(config)?;
    for problem in &loaded.warnings {
        tracing::warn!(place = %rules::place(problem), "{}", problem.message);
    }
    for note in &loaded.notes {
        match note.weight {
            Weight::Warning => tracing::warn!("{}", note.message),
            Weight::Note => tracing::info!("{}", note.message),
        }
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| system("the runtime cannot be started", &error))?;
    runtime.block_on(async {
        let demo = match args.demo_api {
            Some(listen) => Some(DemoApi::start(listen).await?),
            None => None,
        };
        let served = serve(config, input, level, args, out).await;
        if let Some(demo) = demo {
            demo.stop();
        }
        served
    })
}

async fn serve(
    config: &Config,
    input: Input,
    level: LogLevel,
    args: &ServeArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    // First of all, so that a signal during the start is not lost.
    let signals = running::Signals::listen()
        .map_err(|error| system("signals cannot be listened to", &error))?;
    let traces = begin_traces(config)?;
    let welcome = args.welcome.then_some(args.demo_api);
    let start = Start { config, input, level, welcome, signals, traced: traces.as_ref() };
    match &config.store.redis.url {
        None => serve_on(counters::in_memory(config)?, start, out).await?,
        Some(url) => match config.store.redis.layout {
            KeyLayout::Tidegate => serve_on(counters::in_redis(config, url)?, start, out).await?,
            KeyLayout::EnvoyRatelimit => {
                serve_on(counters::as_upstream(config, url)?, start, out).await?;
            }
        },
    }
    if let Some(traces) = traces {
        traces.end();
    }
    tracing::info!("stopped");
    Ok(Exit::Fine)
}

/// What a start has by the time that it needs a store.
struct Start<'c> {
    config: &'c Config,
    /// What the configuration was made of.
    input: Input,
    level: LogLevel,
    /// Whether to say what to try, and whether the demo API is there for it.
    welcome: Option<Option<std::net::SocketAddr>>,
    signals: running::Signals,
    traced: Option<&'c Traces>,
}

/// Serves on this store until it is told to stop.
async fn serve_on<S: Counters>(
    store: S,
    start: Start<'_>,
    out: &mut Output,
) -> Result<(), Failure> {
    let Start { config, input, level, welcome, signals, traced } = start;
    let limiting = Limiting::new(config, store, traced.is_some());
    let between_requests = S::begin(&limiting.engine);
    let mut front = Front::start(config, &limiting)?;
    let protection = front.as_ref().and_then(|front| front.protection.clone());
    let board = Switchboard::new(Arc::clone(&limiting.engine), protection);
    let mut switches = Switches::start(&config.switches, Arc::new(board));
    let rules = Rules::start(config, &limiting)?;
    let restart = Restart::start(config, input)?;
    let served = Served { limiting: &limiting, rules: &rules, front: front.as_ref(), level };
    let doors = Doors::open(config, &served, switches.board(), traced.map(Traces::tracer))?;
    if let Some(demo_api) = welcome {
        let demo_api = demo_api.is_some();
        welcome::write(out, &limiting.engine.snapshot(), &doors.listening, demo_api)?;
    }
    let watched =
        Watched { limiting: &limiting, rules: &rules, front: front.as_mut(), restart: &restart };
    running::until_stopped(config, signals, doors, watched, &mut switches).await;
    restart.stop();
    rules.stop();
    if let Some(front) = front {
        front.stop();
    }
    if let Some(between_requests) = between_requests {
        between_requests.abort();
        limiting.engine.store().close(limiting.engine.clock()).await;
    }
    Ok(())
}

fn begin_log(config: &Config) -> Result<LogLevel, Failure> {
    let format = match config.log.format {
        LogFormat::Auto => log::LogFormat::for_stderr(),
        LogFormat::Text => log::LogFormat::Text,
        LogFormat::Json => log::LogFormat::Json,
    };
    log::begin(config.log.level.as_str(), format)
        .map_err(|message| Complaint::new(message, "set `log.level`").into())
}

fn begin_traces(config: &Config) -> Result<Option<Traces>, Failure> {
    let traces = &config.traces;
    if !traces.enabled {
        return Ok(None);
    }
    let settings = TraceSettings {
        endpoint: traces.endpoint.as_str().to_owned(),
        grpc: traces.protocol == TraceProtocol::Grpc,
        service_name: traces.service_name.clone(),
        service_namespace: traces.service_namespace.clone(),
        service_instance_id: traces.service_instance_id.clone(),
        sampled_millionths: traces.sampling_percent.millionths(),
    };
    let begun = Traces::begin(&settings);
    let begun = begun.map_err(|message| Complaint::new(message, "check `traces.endpoint`"))?;
    Ok(Some(begun))
}

/// Whether the service behaves as envoyproxy/ratelimit.
fn is_compat(config: &Config) -> bool {
    config.compat == Compat::EnvoyRatelimit
}

/// Something that the system did not give.
fn system(what: &str, error: &dyn std::error::Error) -> Failure {
    let message = format!("{what}: {error}");
    Complaint::new(message, "see what the process may use: memory, threads, open files").into()
}

/// The engine that is served, shared between the doors.
type SharedEngine<S> = Arc<Engine<S>>;
