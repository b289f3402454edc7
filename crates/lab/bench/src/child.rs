//! Parts that run in a fresh process of the same program.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Runs the program with these arguments and returns what it wrote.
pub(crate) fn output_of(arguments: &[String]) -> anyhow::Result<Vec<u8>> {
    let program = env::current_exe().context("cannot find this program to run it again")?;
    let run = Command::new(program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run this program again")?;
    ensure!(run.status.success(), "`{}` ended with {}", arguments.join(" "), run.status);
    Ok(run.stdout)
}
