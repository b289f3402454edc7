//! Runs seeds and prints a line for each; or plays overload and prints its tables.

use std::ops::Range;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_simulation::sites::SiteScores;
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
    /// Simulates sites with planted faults, and prints how well findings fit.
    Sites {
        /// The seeds, such as `0..20`.
        #[arg(long, value_parser = range, default_value = "0..3")]
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
            let mut scores = SiteScores::default();
            seeds.for_each(|seed| scores.add_seed(seed));
            println!("{}", scores.render());
            ExitCode::SUCCESS
        }
        None => simulate(&arguments),
    }
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
