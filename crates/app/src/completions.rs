//! Completion scripts for shells.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Exit, Failure};
use crate::output::Output;

pub(crate) fn run(shell: Shell, out: &mut Output) -> Result<Exit, Failure> {
    // The generator panics when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Fine)
}
