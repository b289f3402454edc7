//! Runs seeds and prints a line for each; or plays overload and prints its tables.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use tidegate_rules::{Options, Source, compile};
use tidegate_simulation::sites::{DayCounts, SimulatedDay, SiteScores};
use tidegate_simulation::{OverloadArguments, Simulation, Size};

/// Simulates the whole in-process system in virtual time.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The seed to run.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Many seeds, such as `0..1000`, instead of one.
    #[arg(long, value_parser = range, conflicts_with = "seed")]
    seeds: Option<Range<u64>>,
    /// How many steps each run has.
    #[arg(long, default_value_t = Size::default().steps)]
    steps: u32,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plays overload against our shedders and those of others, and compares them.
    Overload(OverloadArguments),
    /// Simulates a day of traffic, and writes it as an access log in the combined format.
    ///
    /// Requests have the descriptors `address` and `path`, `address`. Callers react to refusals. Replay
    /// the log with `tidegate simulate traffic --describe 'address=$remote_addr' --describe
    /// 'path=$uri,address=$remote_addr'`.
    Day {
        /// The seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// How many callers there are.
        #[arg(long, default_value_t = 5_000)]
        callers: u64,
        /// The rules that decide, a file with the domain `web`.
        #[arg(long)]
        rules: PathBuf,
        /// The log.
        #[arg(long)]
        out: PathBuf,
    },
    /// Simulates sites with planted faults, and prints how well findings fit.
    Sites {
        /// The seeds, one site each, such as `0..1000`; after 49 of them the kinds repeat.
        #[arg(long, value_parser = range, default_value = "0..49")]
        seeds: Range<u64>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Overload(overload)) => match overload.run(&mut std::io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Some(Command::Sites { seeds }) => {
            println!("{}", SiteScores::of_seeds(&seeds).render());
            ExitCode::SUCCESS
        }
        Some(Command::Day { seed, callers, rules, out }) => {
            match write_day(SimulatedDay { seed, callers }, &rules, &out) {
                Ok(DayCounts { requests, refused }) => {
                    println!("{requests} requests, {refused} refused");
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            }
        }
        None => simulate(&arguments),
    }
}

fn write_day(day: SimulatedDay, rules: &Path, out: &Path) -> Result<DayCounts, Box<dyn Error>> {
    let text = fs::read_to_string(rules)?;
    let sources = [Source::new(rules.to_string_lossy(), text)];
    let snapshot = compile(&sources, &Options::default()).map_err(|report| report.to_string())?;
    let mut log = BufWriter::new(File::create(out)?);
    let counts = day.write_log(&Arc::new(snapshot), &mut log)?;
    log.flush()?;
    Ok(counts)
}

fn simulate(arguments: &Arguments) -> ExitCode {
    let one = arguments.seed..arguments.seed.saturating_add(1);
    let size = Size { steps: arguments.steps, ..Size::default() };
    let mut code = ExitCode::SUCCESS;
    for seed in arguments.seeds.clone().unwrap_or(one) {
        match Simulation::new(seed, size).run() {
            Ok(report) => println!("{report}"),
            Err(violation) => {
                println!("{violation}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let bounds = text.split_once("..").ok_or("write it as `0..1000`")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("`{text}`: {error}"));
    Ok(number(bounds.0)?..number(bounds.1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_range_of_seeds() {
        assert_eq!(range("3..10"), Ok(3..10));
        assert!(range("3").is_err() && range("3..x").is_err() && range("").is_err());
    }

    #[test]
    fn overload_is_a_command_beside_the_seeds() {
        let parsed = Arguments::try_parse_from(["x", "overload", "--seeds", "2"]).unwrap();
        assert!(matches!(parsed.command, Some(Command::Overload(_))));
        assert!(Arguments::try_parse_from(["x", "--seeds", "0..3"]).unwrap().command.is_none());
        assert!(Arguments::try_parse_from(["x", "overload", "--scenario", "nothing"]).is_err());
    }
}
