//! `tidegate config check`: everything that is wrong with the configuration and the documents it names, at once.
//!
//! Loads what `serve` would load: the rules, the gateway's document, the files that it names. Problems of one file are
//! errors; mistakes between files are warnings, because the service would run and limit no request.

use std::io::{self, Write};

use serde::Serialize;
use tidegate_gateway::{GatewayDocument, GatewayError, SettingProblem, api_key_plans};
use tidegate_rules::{Problem, Severity, Snapshot};

use super::fields::Config;
use super::gateway;
use super::layers::{Note, Weight, resolve};
use super::load::input;
use crate::cli::{ConfigCheckArgs, Format};
use crate::cross_check::{Coverage, CrossFinding, cross_check};
use crate::exit::{Exit, Failure};
use crate::output::{Clean, Output, Painted, style, write_json, write_problems};
use crate::rules::load::{LoadedRules, configured};
use crate::words::count;

pub(crate) fn run(args: &ConfigCheckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let mut layers = args.layers.clone();
    layers.config = args.path.clone().or(layers.config);
    let mut check = match resolve(&input(&layers)?) {
        Ok(loaded) => {
            let mut check = ConfigCheck {
                problems: loaded.warnings,
                notes: loaded.notes,
                ..ConfigCheck::default()
            };
            check.documents(&loaded.config)?;
            check
        }
        Err(report) => ConfigCheck {
            problems: report.problems().to_vec(),
            summary: CheckSummary { omitted: report.omitted(), ..CheckSummary::default() },
            ..ConfigCheck::default()
        },
    };
    let errors =
        check.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    check.summary.errors = errors;
    check.summary.warnings = check.problems.len() - errors;
    let denied = args.deny_warnings && check.has_warnings();
    check.ok = errors == 0 && !denied;
    match args.format {
        Format::Text => check.write_text(out)?,
        Format::Json => write_json(out, &check)?,
    }
    Ok(if check.ok { Exit::Fine } else { Exit::Problems })
}

/// The result. This is the JSON document too: see docs/cli.md.
#[derive(Debug, Default, Serialize)]
struct ConfigCheck {
    ok: bool,
    problems: Vec<Problem>,
    /// Remarks that the start would log.
    notes: Vec<Note>,
    summary: CheckSummary,
}

#[derive(Debug, Default, Serialize)]
struct CheckSummary {
    errors: usize,
    warnings: usize,
    /// Problems found but not listed.
    omitted: usize,
    /// The rules, unless they have errors.
    rules: Option<RuleTotals>,
    /// The gateway, unless there is none or it has errors.
    gateway: Option<Coverage>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct RuleTotals {
    rules: usize,
    domains: usize,
}

impl ConfigCheck {
    /// Loads the rules and the gateway's document, and compares them.
    fn documents(&mut self, config: &Config) -> Result<(), Failure> {
        let snapshot = self.rules(config)?;
        let Some(path) = config.gateway.file.as_deref() else { return Ok(()) };
        if let Some(report) = gateway::problems(path)? {
            self.problems.extend_from_slice(report.problems());
            self.summary.omitted += report.omitted();
            return Ok(());
        }
        let Some(snapshot) = snapshot else { return Ok(()) };
        let document = gateway::load(path)?;
        let (findings, coverage) = compare(config, &document, &snapshot);
        self.problems.extend(located(&document, &findings));
        self.notes.extend(switches_without_effect(config));
        self.summary.gateway = Some(coverage);
        Ok(())
    }

    fn rules(&mut self, config: &Config) -> Result<Option<Snapshot>, Failure> {
        match configured(&config.rules)? {
            LoadedRules::Absent { path } => {
                let effect = if config.rules.required {
                    "`tidegate serve` would not start"
                } else {
                    "nothing is limited"
                };
                let message = format!("there are no rules at `{path}`: {effect}");
                self.notes.push(Note { weight: Weight::Warning, message });
                Ok(None)
            }
            LoadedRules::Wrong(report) => {
                self.problems.extend_from_slice(report.problems());
                self.summary.omitted += report.omitted();
                Ok(None)
            }
            LoadedRules::Compiled(snapshot) => {
                self.problems.extend_from_slice(snapshot.warnings());
                let (rules, domains) = (snapshot.rules().len(), snapshot.domains().count());
                self.summary.rules = Some(RuleTotals { rules, domains });
                Ok(Some(*snapshot))
            }
        }
    }

    fn has_warnings(&self) -> bool {
        self.summary.warnings > 0 || self.notes.iter().any(|note| note.weight == Weight::Warning)
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        write_problems(out, &self.problems, self.summary.omitted)?;
        write_notes(out, &self.notes)?;
        if !self.problems.is_empty() || !self.notes.is_empty() {
            writeln!(out)?;
        }
        let CheckSummary { errors, warnings, omitted, .. } = &self.summary;
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
        writeln!(out, "{}", Painted(color, format!("{text}{warned}")))?;
        self.summary.write_totals(out)
    }
}

impl CheckSummary {
    /// What the documents come to: a gateway that limits no route shows here at a glance.
    fn write_totals(&self, out: &mut impl Write) -> io::Result<()> {
        let mut parts = Vec::new();
        if let Some(RuleTotals { rules, domains }) = self.rules {
            parts.push(format!("rules: {rules} in {}", count(domains, "domain")));
        }
        if let Some(Coverage { routes, limited, exempt }) = self.gateway {
            let exempt = if exempt == 0 { String::new() } else { format!(", {exempt} exempt") };
            parts.push(format!("gateway: {}, {limited} limited{exempt}", count(routes, "route")));
        }
        if parts.is_empty() { Ok(()) } else { writeln!(out, "{}", parts.join("; ")) }
    }
}

/// The mistakes between the documents, and how much of the gateway is limited.
pub(crate) fn compare(
    config: &Config,
    document: &GatewayDocument,
    rules: &Snapshot,
) -> (Vec<CrossFinding>, Coverage) {
    let keys = document.settings().api_keys.as_ref();
    // A key file that cannot be read is an error of its own, and reported as such.
    let plans = keys.and_then(|keys| api_key_plans(keys).ok()).unwrap_or_default();
    cross_check(config, document.settings(), rules, &plans)
}

/// The findings as warnings, with their location in the document.
pub(crate) fn located(document: &GatewayDocument, findings: &[CrossFinding]) -> Vec<Problem> {
    let problem = |finding: &CrossFinding| {
        let place = finding.key_path.clone();
        let setting = SettingProblem { place, problem: finding.message.clone() };
        let report = document.report(&GatewayError { problems: vec![setting] });
        let (code, hint) = (finding.code, Some(finding.hint.clone()));
        let severity = Severity::Warning;
        report
            .problems()
            .iter()
            .cloned()
            .map(move |found| Problem { severity, code, hint: hint.clone(), ..found })
            .collect::<Vec<_>>()
    };
    findings.iter().flat_map(problem).collect()
}

/// Switches of limiters that do not exist without a capacity.
pub(crate) fn switches_without_effect(config: &Config) -> Option<Note> {
    let (given, default) = (&config.switches, Config::default().switches);
    let shedders = [
        ("worker", given.worker != default.worker),
        ("fleet", given.fleet != default.fleet),
        ("gate", given.gate != default.gate),
    ];
    let set: Vec<String> = shedders
        .iter()
        .filter(|(_, set)| *set)
        .map(|(name, _)| format!("`switches.{name}`"))
        .collect();
    if config.overload.capacity.is_some() || set.is_empty() {
        return None;
    }
    let (verb, names) = (if set.len() == 1 { "has" } else { "have" }, set.join(", "));
    let message = format!("{names} {verb} no effect: `overload.capacity` is not set");
    Some(Note { weight: Weight::Warning, message })
}

/// Writes the remarks of the start, a line each.
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
