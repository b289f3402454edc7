//! API keys for the gateway.

use std::io::Write;

use tidegate_gateway::NewApiKey;

use crate::exit::{Complaint, Exit, Failure};
use crate::output::Output;

/// Prints a new key, its hash and its line for the file.
pub(crate) fn run(name: &str, plan: &str, out: &mut Output) -> Result<Exit, Failure> {
    let help = "such as `tidegate keys new acme pro`";
    let key = NewApiKey::generate().map_err(|message| Complaint::new(message, "try again"))?;
    let line = key.line(name, plan).map_err(|message| Complaint::new(message, help))?;
    writeln!(out, "key:  {}", key.key)?;
    writeln!(out, "hash: {}", key.hash)?;
    writeln!(out, "line: {line}")?;
    Ok(Exit::Fine)
}
