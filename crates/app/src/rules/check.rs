//! `tidegate rules check`: everything that is wrong with rule files, at once.

use std::io::{self, Write};

use serde::Serialize;
use tidegate_rules::{Options, Problem, Severity, Source, compile};

use super::load;
use crate::cli::{CheckArgs, Format};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Painted, style, write_json, write_problems};
use crate::words::count;

pub(crate) fn run(args: &CheckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let sources = load::sources(&args.paths)?;
    let options = Options { merge_domains: !args.no_merge_domains, ..Options::default() };
    let strictness = if args.deny_warnings { Strictness::Warnings } else { Strictness::Errors };
    let check = Check::of(&sources, &options, strictness);
    match args.format {
        Format::Text => check.write_text(out)?,
        Format::Json => write_json(out, &check)?,
    }
    Ok(if check.ok { Exit::Fine } else { Exit::Problems })
}

/// What is enough for rules to be turned down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strictness {
    Errors,
    Warnings,
}

/// The result. This is the JSON document too: see docs/cli.md.
#[derive(Debug, Serialize)]
struct Check {
    ok: bool,
    problems: Vec<Problem>,
    summary: Summary,
}

#[derive(Debug, Serialize)]
struct Summary {
    files: usize,
    errors: usize,
    warnings: usize,
    /// Problems found but not listed.
    omitted: usize,
    /// What the rules come to; nothing while they have errors.
    rules: Option<Totals>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Totals {
    domains: usize,
    rules: usize,
    limits: usize,
}

impl Check {
    fn of(sources: &[Source], options: &Options, strictness: Strictness) -> Self {
        let (problems, omitted, rules) = match compile(sources, options) {
            Ok(snapshot) => {
                let totals = Totals {
                    domains: snapshot.domains().count(),
                    rules: snapshot.rules().len(),
                    limits: snapshot.limits().len(),
                };
                (snapshot.warnings().to_vec(), 0, Some(totals))
            }
            Err(report) => (report.problems().to_vec(), report.omitted(), None),
        };
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
        let warnings = problems.len() - errors;
        let denied = strictness == Strictness::Warnings && warnings > 0;
        Check {
            ok: rules.is_some() && !denied,
            problems,
            summary: Summary { files: sources.len(), errors, warnings, omitted, rules },
        }
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        write_problems(out, &self.problems, self.summary.omitted)?;
        if !self.problems.is_empty() {
            writeln!(out)?;
        }
        let color = if self.ok { style::GOOD } else { style::ERROR };
        writeln!(out, "{}", Painted(color, self.summary_line()))
    }

    fn summary_line(&self) -> String {
        let Summary { files, errors, warnings, omitted, rules } = &self.summary;
        let files = count(*files, "file");
        let warned = match warnings {
            0 => String::new(),
            some => count(*some, "warning"),
        };
        match rules {
            Some(Totals { domains, rules, limits }) if self.ok => {
                let domains = count(*domains, "domain");
                let (rules, limits) = (count(*rules, "rule"), count(*limits, "limit"));
                let comma = if warned.is_empty() { "" } else { ", " };
                format!("{files} ok: {domains}, {rules}, {limits}{comma}{warned}")
            }
            Some(_) => format!("{warned} in {files}, and warnings are denied"),
            None => {
                let and = if warned.is_empty() { "" } else { " and " };
                format!("{}{and}{warned} in {files}", count(errors + omitted, "problem"))
            }
        }
    }
}
