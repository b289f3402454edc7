//! The tables, one topic each.

mod allocations;
mod decision;
mod engine;
pub(crate) mod growth;
pub(crate) mod memory;
mod rules;

use std::thread;

use clap::ValueEnum;

use crate::scale::Scale;
use crate::stopwatch::Stopwatch;
use crate::table::Table;

/// What a table is about.
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
}

/// Prints the tables that were asked for, or all of them.
///
/// # Errors
/// When something could not be measured; a missed goal is none.
pub(crate) fn print(only: &[Topic], scale: Scale) -> anyhow::Result<()> {
    let whole = Stopwatch::start();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    println!("A {} run on {cores} cores.\n", scale.size);
    for topic in Topic::value_variants() {
        if !only.is_empty() && !only.contains(topic) {
            continue;
        }
        let stopwatch = Stopwatch::start();
        println!("{}", topic.measure(scale)?);
        eprintln!("{topic:?}: {:.0} s", stopwatch.elapsed().as_secs_f64());
    }
    eprintln!("all: {:.0} s", whole.elapsed().as_secs_f64());
    Ok(())
}

impl Topic {
    fn measure(self, scale: Scale) -> anyhow::Result<Table> {
        match self {
            Topic::Decision => decision::table(scale),
            Topic::Memory => memory::table(scale),
            Topic::Engine => engine::table(scale),
            Topic::Allocations => allocations::table(),
            Topic::Growth => growth::table(scale),
            Topic::Rules => rules::table(scale),
        }
    }
}
