//! The tables, one topic each.

mod allocations;
mod column;
mod decision;
mod engine;
pub(crate) mod floods;
pub(crate) mod forward;
mod gateway;
pub(crate) mod growth;
mod leased;
pub(crate) mod memory;
mod overload_check;
mod parts;
mod redis;
mod replay;
mod rules;
mod server_figures;
mod service;
mod sight;

use std::path::PathBuf;
use std::{fs, thread};

use clap::ValueEnum;

use self::forward::ForwardGroup;
use crate::scale::Scale;
use crate::stopwatch::Stopwatch;
use crate::table::Table;

/// The topic of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topic {
    /// One decision, many keys.
    Decision,
    /// Memory per key.
    Memory,
    /// Rules, matching and several limits: a whole verdict.
    Engine,
    /// Allocations of an admitted request.
    Allocations,
    /// The worst insert while a table grows.
    Growth,
    /// Compiling and matching rules.
    Rules,
    /// The cost of each part of a decision.
    Parts,
    /// The decision service over the network.
    Service,
    /// Limits that are shared over a Redis.
    Redis,
    /// The gateway beside other reverse proxies.
    Gateway,
    /// An API of fixed capacity under overload, with the gateway in front of it and without.
    OverloadCheck,
    /// Leased limits beside exact ones and a store in memory, over the network.
    Leased,
    /// History, samples of callers, the tail and the dashboard.
    Sight,
    /// Recorded traffic through rules, beside programs that only count it.
    Replay,
    /// Floods of connections beside honest clients, with and without limits on connections.
    Floods,
    /// The forwarder against a throttled service, beside other clients.
    Forward,
}

/// Paths of other programs to compare with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Tools {
    /// The nginx to compare with.
    #[arg(long, env = "TIDEGATE_NGINX", default_value = "nginx")]
    pub(crate) nginx: PathBuf,
    /// The envoyproxy/ratelimit to compare with.
    #[arg(long, env = "TIDEGATE_UPSTREAM", default_value = "target/tools/ratelimit")]
    pub(crate) upstream: PathBuf,
    /// The HAProxy to compare with.
    #[arg(long, env = "TIDEGATE_HAPROXY", default_value = "haproxy")]
    pub(crate) haproxy: PathBuf,
    /// The Envoy to compare with.
    #[arg(long, env = "TIDEGATE_ENVOY", default_value = "target/tools/envoy")]
    pub(crate) envoy: PathBuf,
    /// The GoAccess to compare with.
    #[arg(long, env = "TIDEGATE_GOACCESS", default_value = "goaccess")]
    pub(crate) goaccess: PathBuf,
}

/// Prints the selected tables, or all of them.
///
/// # Errors
/// When something could not be measured; a missed goal is none.
pub(crate) fn print(
    only: &[Topic],
    groups: &[ForwardGroup],
    scale: Scale,
    tools: &Tools,
) -> anyhow::Result<()> {
    let whole = Stopwatch::start();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    println!("A {} run on {cores} cores. {}\n", scale.size, load());
    for topic in Topic::value_variants() {
        if !only.is_empty() && !only.contains(topic) {
            continue;
        }
        let stopwatch = Stopwatch::start();
        println!("{}", topic.measure(groups, scale, tools)?);
        eprintln!("{topic:?}: {:.0} s", stopwatch.elapsed().as_secs_f64());
    }
    eprintln!("all: {:.0} s", whole.elapsed().as_secs_f64());
    Ok(())
}

/// The load of the machine before the run.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    match load.split_whitespace().next() {
        Some(load) => format!("Load average of the minute before: {load}."),
        None => String::new(),
    }
}

impl Topic {
    fn measure(
        self,
        groups: &[ForwardGroup],
        scale: Scale,
        tools: &Tools,
    ) -> anyhow::Result<Table> {
        match self {
            Topic::Decision => decision::table(scale),
            Topic::Memory => memory::table(scale),
            Topic::Engine => engine::table(scale),
            Topic::Allocations => allocations::table(),
            Topic::Growth => growth::table(scale),
            Topic::Rules => rules::table(scale),
            Topic::Parts => parts::table(),
            Topic::Service => service::table(scale, tools),
            Topic::Redis => redis::table(scale),
            Topic::Gateway => gateway::table(scale, tools),
            Topic::OverloadCheck => overload_check::table(scale),
            Topic::Leased => leased::table(scale, tools),
            Topic::Sight => sight::table(scale),
            Topic::Replay => replay::table(scale, tools),
            Topic::Floods => floods::table(scale),
            Topic::Forward => forward::table(scale, groups),
        }
    }
}
