//! Tidegate and its peers, measured side by side in one run.
//!
//! Contestants take turns, round by round, and ratios are taken within a round: a
//! machine that is slow for a while is slow for all of them. The tables go to
//! standard output as Markdown, progress to standard error. A missed goal is
//! printed as such and is no error.
//!
//! A library with two programs, because a program has one allocator: `tidegate-bench`
//! counts allocations, `tidegate-bench-peer` serves peers on the allocator they
//! would be run with.

mod stopwatch;

mod keys;
mod requests;
mod rule_text;

mod contestant;

mod child;
mod goal;
mod race;
mod rounds;
mod scale;
mod spread;
mod table;
mod tables;

mod load;
mod peer;
mod processor;
mod questions;
mod server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::contestant::ContestantName;
use crate::scale::Scale;
use crate::tables::forward::ForwardGroup;
use crate::tables::{Tools, Topic};

/// Measures Tidegate and its peers side by side.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench")]
struct Args {
    /// Smaller counts: about a minute instead of several.
    #[arg(long)]
    quick: bool,
    /// Only this table; can be given several times.
    #[arg(long, value_enum, value_name = "TABLE")]
    only: Vec<Topic>,
    /// Only this group of rows of the table `forward`; can be given several times.
    #[arg(long, value_enum, value_name = "GROUP")]
    group: Vec<ForwardGroup>,
    #[command(flatten)]
    tools: Tools,
    #[command(subcommand)]
    part: Option<Part>,
}

/// Serves one peer until it is ended.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench-peer")]
struct PeerArgs {
    name: peer::PeerName,
    #[command(flatten)]
    options: peer::PeerOptions,
}

/// Commands that the program runs in a fresh process of itself.
#[derive(Debug, Subcommand)]
enum Part {
    /// Prints by how many bytes the process grows with so many keys.
    #[command(hide = true)]
    Memory { name: ContestantName, keys: u64, key_bytes: usize },
    /// Writes how long each insert took.
    #[command(hide = true)]
    Growth { name: ContestantName, keys: u64 },
    /// Attacks a server beside honest clients, and prints what they saw.
    #[command(hide = true)]
    FloodClients {
        #[command(flatten)]
        plan: tables::floods::FloodPlan,
    },
    /// Prints by how many bytes the process grows with so many records in a queue.
    #[command(hide = true)]
    ForwardMemory { records: u64 },
    /// Draws the charts of docs/pacing.md from real runs.
    ForwardCharts { directory: std::path::PathBuf },
    /// Prints the part of a core that sending to a service takes.
    #[command(hide = true)]
    ForwardProcessor { service: std::net::SocketAddr, seconds: u64 },
}

/// The program `tidegate-bench`: prints the tables that its arguments ask for.
pub fn run() -> ExitCode {
    let args = Args::parse();
    outcome(match args.part {
        None => {
            let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
            tables::print(&args.only, &args.group, scale, &args.tools)
        }
        Some(Part::Memory { name, keys, key_bytes }) => {
            tables::memory::measure(name, keys, key_bytes)
        }
        Some(Part::Growth { name, keys }) => tables::growth::measure(name, keys),
        Some(Part::FloodClients { plan }) => tables::floods::run_clients(&plan),
        Some(Part::ForwardCharts { directory }) => tables::forward::draw_charts(&directory),
        Some(Part::ForwardProcessor { service, seconds }) => {
            tables::forward::measure_processor(service, seconds)
        }
        Some(Part::ForwardMemory { records }) => tables::forward::measure_memory(records),
    })
}

/// The program `tidegate-bench-peer`: serves the peer that its argument names.
pub fn serve_peer() -> ExitCode {
    let PeerArgs { name, options } = PeerArgs::parse();
    outcome(peer::serve(name, options))
}

fn outcome(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
