//! A soak test of the real service: load, new keys, reloads and bad input for minutes, while its
//! memory is watched.
//!
//! The run fails on a server error, a valid request without an answer, rules that are not loaded,
//! memory that grows after the warm-up, a process that dies, and one that does not stop. One thread
//! sends the load and watches: `make bench` measures speed.

mod bad_input;
mod grpc;
mod http1;
mod load;
mod process;
mod reload;
mod tally;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use tokio::task::LocalSet;

use process::ServerProcess;
use tally::Tally;

/// Loads the service for a time, and watches its memory.
#[derive(Debug, Parser)]
#[command(version)]
struct SoakArguments {
    /// How long, in seconds.
    #[arg(default_value_t = 180)]
    seconds: u64,
    /// The binary to run; `release/tidegate` beside this one unless given.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Why the soak failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct SoakFailure(String);

impl SoakFailure {
    fn of(what: &str, why: impl std::fmt::Display) -> Self {
        SoakFailure(format!("{what}: {why}"))
    }
}

fn main() -> ExitCode {
    let arguments = SoakArguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ran = runtime
        .map_err(|error| SoakFailure::of("no runtime", error))
        .and_then(|runtime| LocalSet::new().block_on(&runtime, soak(&arguments)));
    match ran {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("failed: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn soak(arguments: &SoakArguments) -> Result<String, SoakFailure> {
    let binary = arguments.binary.clone().map_or_else(process::beside_this_one, Ok)?;
    let mut served = ServerProcess::start(&binary)?;
    let tally = Rc::new(Tally::default());
    let doors = served.doors().clone();
    println!("process {}, HTTP {}, gRPC {}", served.id(), doors.http, doors.grpc);

    let mut tasks = load::start(&doors, &tally);
    tasks.extend(bad_input::start(&doors, &tally));
    tasks.push(reload::start(&doors, served.rules_path(), &tally));
    let watched = watch::watch(&mut served, &tally, Duration::from_secs(arguments.seconds)).await;
    for task in &tasks {
        task.abort();
    }
    let watched = watched?;
    // Connections with half a request stay open: they must not keep the process from ending.
    let lingering = bad_input::half_requests(&doors).await;
    let ended = served.stop();
    drop(lingering);
    ended?;
    Ok(format!("{watched}\n{tally}\nstopped when told, exit code 0"))
}
