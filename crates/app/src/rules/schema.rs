//! `tidegate rules schema`: the language as a JSON Schema.

use std::io::Write;

use crate::exit::{Exit, Failure};
use crate::output::Output;

pub(crate) fn run(out: &mut Output) -> Result<Exit, Failure> {
    writeln!(out, "{:#}", tidegate_rules::schema())?;
    Ok(Exit::Fine)
}
