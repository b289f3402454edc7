//! Completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// The script for a shell.
pub(crate) fn script(shell: Shell) -> String {
    // In memory first: the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
