//! `tidegate config check`: everything that is wrong with the configuration, at once.

use std::io::{self, Write};

use serde::Serialize;
use tidegate_rules::{Problem, Severity};

use super::gateway;
use super::layers::{Note, Weight, resolve};
use super::load::input;
use crate::cli::{ConfigCheckArgs, Format};
use crate::exit::{Exit, Failure};
use crate::output::{Clean, Output, Painted, style, write_json, write_problems};
use crate::words::count;

pub(crate) fn run(args: &ConfigCheckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let mut layers = args.layers.clone();
    layers.config = args.path.clone().or(layers.config);
    let (problems, omitted, notes) = match resolve(&input(&layers)?) {
        Ok(loaded) => {
            let (mut problems, mut omitted) = (loaded.warnings, 0);
            let document = loaded.config.gateway.file.as_deref();
            if let Some(report) = document.map(gateway::problems).transpose()?.flatten() {
                problems.extend_from_slice(report.problems());
                omitted = report.omitted();
            }
            (problems, omitted, loaded.notes)
        }
        Err(report) => (report.problems().to_vec(), report.omitted(), Vec::new()),
    };
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let check = Check {
        ok: errors == 0,
        summary: Summary { errors, warnings: problems.len() - errors, omitted },
        problems,
        notes,
    };
    match args.format {
        Format::Text => check.write_text(out)?,
        Format::Json => write_json(out, &check)?,
    }
    Ok(if check.ok { Exit::Fine } else { Exit::Problems })
}

/// The result. This is the JSON document too: see docs/cli.md.
#[derive(Debug, Serialize)]
struct Check {
    ok: bool,
    problems: Vec<Problem>,
    /// What would be said at the start.
    notes: Vec<Note>,
    summary: Summary,
}

#[derive(Debug, Serialize)]
struct Summary {
    errors: usize,
    warnings: usize,
    /// Problems found but not listed.
    omitted: usize,
}

impl Check {
    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        write_problems(out, &self.problems, self.summary.omitted)?;
        write_notes(out, &self.notes)?;
        if !self.problems.is_empty() || !self.notes.is_empty() {
            writeln!(out)?;
        }
        let Summary { errors, warnings, omitted } = &self.summary;
        let warned = match warnings {
            0 => String::new(),
            some if self.ok => format!(", {}", count(*some, "warning")),
            some => format!(" and {}", count(*some, "warning")),
        };
        let (color, text) = if self.ok {
            (style::GOOD, "the configuration is right".to_owned())
        } else {
            (style::ERROR, count(errors + omitted, "problem"))
        };
        writeln!(out, "{}", Painted(color, format!("{text}{warned}")))
    }
}

/// Writes what should be said at the start, a line each.
pub(crate) fn write_notes(out: &mut impl Write, notes: &[Note]) -> io::Result<()> {
    for Note { weight, message } in notes {
        let title = match weight {
            Weight::Note => Painted(style::HELP, "note:"),
            Weight::Warning => Painted(style::WARNING, "warning:"),
        };
        writeln!(out, "{title} {}", Clean(message))?;
    }
    Ok(())
}
