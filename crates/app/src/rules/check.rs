//! `tidegate rules check`: everything that is wrong with rule files, at once.

use std::io::{self, Write};

use serde::Serialize;
use tidegate_rules::{Options, Problem, Severity, Source, compile};

use super::load;
use crate::cli::{CheckArgs, Format};
use crate::exit::{Exit, Failure};
use crate::output::{Output, StyledText, style, write_json, write_problems};
use crate::words::count;

pub(crate) fn run(args: &CheckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let sources = load::sources(&args.paths)?;
    let options = Options { merge_domains: !args.no_merge_domains, ..Options::default() };
    let check = RulesCheck::of(&sources, &options, args.deny_warnings);
    match args.format {
        Format::Text => check.write_text(out)?,
        Format::Json => write_json(out, &check)?,
    }
    Ok(Exit::of_check(check.ok))
}

/// The numbers of errors and warnings.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct ProblemCounts {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
    /// Problems found but not listed.
    pub(crate) omitted: usize,
}

impl ProblemCounts {
    /// Counts the listed problems.
    pub(crate) fn update(&mut self, problems: &[Problem]) {
        let is_error = |problem: &&Problem| problem.severity == Severity::Error;
        self.errors = problems.iter().filter(is_error).count();
        self.warnings = problems.len() - self.errors;
    }
}

/// The result. This is the JSON document too: see docs/cli.md.
#[derive(Debug, Serialize)]
struct RulesCheck {
    ok: bool,
    problems: Vec<Problem>,
    summary: RulesSummary,
}

#[derive(Debug, Serialize)]
struct RulesSummary {
    files: usize,
    #[serde(flatten)]
    counts: ProblemCounts,
    /// Totals of the rules, unless they have errors.
    rules: Option<Totals>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Totals {
    domains: usize,
    rules: usize,
    limits: usize,
}

impl RulesCheck {
    fn of(sources: &[Source], options: &Options, deny_warnings: bool) -> Self {
        let mut counts = ProblemCounts::default();
        let (problems, rules) = match compile(sources, options) {
            Ok(snapshot) => {
                let totals = Totals {
                    domains: snapshot.domains().count(),
                    rules: snapshot.rules().len(),
                    limits: snapshot.limits().len(),
                };
                (snapshot.warnings().to_vec(), Some(totals))
            }
            Err(report) => {
                counts.omitted = report.omitted();
                (report.into_problems(), None)
            }
        };
        counts.update(&problems);
        let ok = rules.is_some() && !(deny_warnings && counts.warnings > 0);
        RulesCheck { ok, problems, summary: RulesSummary { files: sources.len(), counts, rules } }
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        write_problems(out, &self.problems, self.summary.counts.omitted)?;
        if !self.problems.is_empty() {
            writeln!(out)?;
        }
        let color = if self.ok { style::GOOD } else { style::ERROR };
        writeln!(out, "{}", StyledText(color, self.summary_line()))
    }

    fn summary_line(&self) -> String {
        let RulesSummary { files, counts, rules } = &self.summary;
        let files = count(*files, "file");
        let warnings = (counts.warnings > 0).then(|| count(counts.warnings, "warning"));
        let after = |separator: &str| {
            warnings.as_ref().map_or_else(String::new, |warnings| format!("{separator}{warnings}"))
        };
        match rules {
            Some(Totals { domains, rules, limits }) if self.ok => {
                let domains = count(*domains, "domain");
                let (rules, limits) = (count(*rules, "rule"), count(*limits, "limit"));
                format!("{files} ok: {domains}, {rules}, {limits}{}", after(", "))
            }
            Some(_) => format!("{} in {files}, and warnings are denied", after("")),
            None => {
                let problems = count(counts.errors + counts.omitted, "problem");
                format!("{problems}{} in {files}", after(" and "))
            }
        }
    }
}
