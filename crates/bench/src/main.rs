//! Tidegate and its peers, measured side by side in one run.
//!
//! Contestants take turns, round by round, and what counts is the ratio within
//! a round: a machine that is slow for a while is slow for all of them. The
//! tables go to standard output as Markdown, progress to standard error. A goal
//! that is missed is printed as such and is no error. Network servers are not
//! measured here.

mod stopwatch;

mod keys;
mod requests;
mod rule_text;

mod contestant;

mod child;
mod goal;
mod race;
mod scale;
mod spread;
mod table;
mod tables;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::contestant::Name;
use crate::scale::Scale;
use crate::tables::Topic;

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
    #[command(subcommand)]
    part: Option<Part>,
}

/// What the program runs itself again for: parts that need a fresh process.
#[derive(Debug, Subcommand)]
enum Part {
    /// Prints by how many bytes the process grows with so many keys.
    #[command(hide = true)]
    Memory { name: Name, keys: u64, key_bytes: usize },
    /// Writes how long each insert took.
    #[command(hide = true)]
    Growth { name: Name, keys: u64 },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.part {
        None => tables::print(&args.only, if args.quick { Scale::QUICK } else { Scale::FULL }),
        Some(Part::Memory { name, keys, key_bytes }) => {
            tables::memory::measure(name, keys, key_bytes)
        }
        Some(Part::Growth { name, keys }) => tables::growth::measure(name, keys),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
