//! Compares Tidegate with the real envoyproxy/ratelimit; `make upstream` builds both and runs it.

#![allow(clippy::print_stdout, reason = "the report")]

use std::process::ExitCode;

use clap::Parser;
use tidegate_upstream_diff::{Programs, compare_broken_files, compare_seeds, page, show_all};

/// Runs both programs on the same rules, environment and requests.
#[derive(Debug, Parser)]
#[command(version)]
struct DiffArguments {
    /// How many seeds of random rules and requests.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many damaged rule files, beside the fixed ones.
    #[arg(long, default_value_t = 50)]
    damaged: u64,
    /// Print the page of differences and stop.
    #[arg(long)]
    page: bool,
}

fn main() -> ExitCode {
    let arguments = DiffArguments::parse();
    if arguments.page {
        print!("{}", page());
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &DiffArguments) -> anyhow::Result<bool> {
    let programs = Programs::find()?;
    let wrong = show_all(&programs)?;
    println!("accepted differences that do not show as listed: {}", wrong.len());
    wrong.iter().for_each(|wrong| println!("{wrong}"));
    let (files, differing) = compare_broken_files(&programs, arguments.damaged)?;
    println!("broken rule files: {files}, with another text or outcome: {}", differing.len());
    differing.iter().for_each(|differing| println!("{differing}"));
    let seeds = arguments.first..arguments.first + arguments.seeds;
    let figures = compare_seeds(&programs, seeds, |figures| {
        println!(
            "seeds: {}, answers: {}, differing: {}",
            figures.seeds, figures.answers, figures.differing
        );
    })?;
    figures.shown.iter().for_each(|shown| println!("{shown}"));
    let ([lines, other_lines], [counts, other_counts]) = (figures.lines, figures.statistics);
    println!(
        "seeds: {}, answers: {}, differing: {}\nlines of /rlconfig: {lines}, differing: {other_lines}\n\
         statistics: {counts}, differing: {other_counts}",
        figures.seeds, figures.answers, figures.differing
    );
    Ok(wrong.is_empty() && differing.is_empty() && figures.all_equal())
}
