//! Fuzzes targets for a time, from fresh seeds, and keeps what it finds.

#![expect(clippy::disallowed_methods, reason = "runs for a real time, from a seed that is new")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use tidegate_fuzz::{Corpus, Finding, Fuzzer, TargetName};

/// An input that takes longer is a finding: a door has no such time.
const TAKES_MAX: Duration = Duration::from_secs(2);

/// Gives damaged input to everything that reads what others wrote.
#[derive(Debug, Parser)]
#[command(version)]
struct FuzzArguments {
    /// What to fuzz; everything, one after the other, unless given.
    #[arg(long)]
    target: Option<TargetName>,
    /// How long, for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides everything; drawn from the clock unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Tries one input only.
    #[arg(long, requires = "target", value_name = "FILE")]
    replay: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum FuzzFailure {
    #[error("{}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("{0}")]
    Found(Box<Finding>),
}

fn main() -> ExitCode {
    let arguments = FuzzArguments::parse();
    let targets = arguments.target.map_or(TargetName::ALL.to_vec(), |target| vec![target]);
    for target in targets {
        let ran = match &arguments.replay {
            Some(path) => replay(target, path),
            None => run(target, &arguments),
        };
        if let Err(failure) = ran {
            println!("{failure}");
            if let Some(cause) = std::error::Error::source(&failure) {
                println!("{cause}");
            }
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn replay(target: TargetName, path: &Path) -> Result<(), FuzzFailure> {
    let input = fs::read(path).map_err(|error| FuzzFailure::File(path.to_owned(), error))?;
    Fuzzer::new(target, Vec::new(), 0).give(&input).map_err(FuzzFailure::Found)?;
    println!("{target}: all holds for {}", path.display());
    Ok(())
}

fn run(target: TargetName, arguments: &FuzzArguments) -> Result<(), FuzzFailure> {
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    let corpus = Corpus::of(target);
    let kept = corpus.read().map_err(|error| FuzzFailure::File(PathBuf::from("corpus"), error))?;
    // A stack that overflows ends the process: what was tried is found here.
    let current = std::env::temp_dir().join(format!("tidegate-fuzz-{target}"));
    println!("{target}: seed {seed}, {} kept inputs", kept.len());
    println!("{target}: if this process dies, its last input is {}", current.display());
    let mut fuzzer = Fuzzer::new(target, kept, seed);
    let began = Instant::now();
    let mut inputs: u64 = 0;
    let mut found = fuzzer.replay();
    while found.is_ok() && began.elapsed() < Duration::from_secs(arguments.seconds) {
        let input = fuzzer.draw();
        fs::write(&current, &input).map_err(|error| FuzzFailure::File(current.clone(), error))?;
        let given = Instant::now();
        found = fuzzer.give(&input);
        let took = given.elapsed();
        if found.is_ok() && took > TAKES_MAX {
            let what = format!("it takes {took:?}");
            found = Err(Box::new(Finding { target, input, what, alone: true }));
        }
        inputs += 1;
    }
    if let Err(finding) = found {
        let name = format!("found-{seed}-{inputs}");
        let path = corpus.keep(&name, &finding.input);
        let path = path.map_err(|error| FuzzFailure::File(PathBuf::from(name), error))?;
        println!(
            "{target}: found after {inputs} inputs of seed {seed}; kept in {}",
            path.display()
        );
        println!(
            "again: cargo run -p tidegate-fuzz -- --target {target} --replay {}",
            path.display()
        );
        return Err(FuzzFailure::Found(finding));
    }
    println!("{target}: {inputs} inputs, {} trails, nothing found", fuzzer.trails());
    Ok(())
}

fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ since.as_secs()
}
