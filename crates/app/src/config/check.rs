//! `tidegate config check`: everything that is wrong with the configuration and the documents it names, at once.
//!
//! Loads what `serve` would load: the rules, the documents of the gateway and of the forwarder, the files that they name. Problems of one file are
//! errors; mistakes between files are warnings, because the service would run and limit no request.

use std::io::{self, Write};

use serde::Serialize;
use tidegate_admin::LimiterName;
use tidegate_rules::{Problem, Report, Snapshot, compile};

use super::fields::Config;
use super::host::HostLimits;
use super::layers::{Note, Weight, resolve};
use super::load::input;
use super::{forward, gateway};
use crate::cli::{ConfigCheckArgs, Format};
use crate::cross_check::{Coverage, cross_check};
use crate::exit::{Exit, Failure};
use crate::output::{Clean, Output, StyledText, style, write_json, write_problems};
use crate::rules::check::ProblemCounts;
use crate::rules::load::{absent_path, configured};
use crate::words::count;

pub(crate) fn run(args: &ConfigCheckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let mut layers = args.layers.clone();
    layers.config = args.path.clone().or(layers.config);
    let mut check = ConfigCheck::default();
    match resolve(&input(&layers)?) {
        Ok(loaded) => {
            (check.problems, check.notes) = (loaded.warnings, loaded.notes);
            check.documents(&loaded.config)?;
            if args.host {
                check.notes.extend(HostLimits::read().judge(&loaded.config));
            }
        }
        Err(report) => check.add(&report),
    }
    check.summary.counts.update(&check.problems);
    check.ok = check.summary.counts.errors == 0 && !(args.deny_warnings && check.has_warnings());
    match args.format {
        Format::Text => check.write_text(out)?,
        Format::Json => write_json(out, &check)?,
    }
    Ok(Exit::of_check(check.ok))
}

/// The result. This is the JSON document too: see docs/cli.md.
#[derive(Debug, Default, Serialize)]
struct ConfigCheck {
    ok: bool,
    problems: Vec<Problem>,
    /// Remarks that the start would log.
    notes: Vec<Note>,
    summary: ConfigSummary,
}

#[derive(Debug, Default, Serialize)]
struct ConfigSummary {
    #[serde(flatten)]
    counts: ProblemCounts,
    /// The rules, unless they have errors.
    rules: Option<RuleTotals>,
    /// The gateway, unless there is none or it has errors.
    gateway: Option<Coverage>,
    /// The forwarder, unless there is none or its document has errors.
    forward: Option<ForwardTotals>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ForwardTotals {
    targets: usize,
    types: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct RuleTotals {
    rules: usize,
    domains: usize,
}

impl ConfigCheck {
    fn add(&mut self, report: &Report) {
        self.problems.extend_from_slice(report.problems());
        self.summary.counts.omitted += report.omitted();
    }

    /// Loads the rules and the documents, and compares them.
    fn documents(&mut self, config: &Config) -> Result<(), Failure> {
        self.forward(config)?;
        let snapshot = self.rules(config)?;
        let Some(path) = config.gateway.file.as_deref() else { return Ok(()) };
        let document = match gateway::check(path) {
            Ok(document) => document,
            Err(Failure::Gateway(report)) => {
                self.add(&report);
                return Ok(());
            }
            Err(other) => return Err(other),
        };
        let Some(snapshot) = snapshot else { return Ok(()) };
        let (problems, coverage) = cross_check(config, &document, &snapshot);
        self.problems.extend(problems);
        self.notes.extend(switches_without_effect(config));
        self.summary.gateway = Some(coverage);
        Ok(())
    }

    fn forward(&mut self, config: &Config) -> Result<(), Failure> {
        let Some(path) = config.forward.file.as_deref() else { return Ok(()) };
        match forward::check(path) {
            Ok(document) => {
                self.problems.extend(document.warnings);
                let (targets, types) = (document.targets.len(), document.types.len());
                self.summary.forward = Some(ForwardTotals { targets, types });
            }
            Err(Failure::Forward(report)) => self.add(&report),
            Err(other) => return Err(other),
        }
        if config.forward.queue.is_none() && config.data_dir.is_none() {
            let message = "`tidegate forward serve` would not start: there is neither `data_dir` nor `forward.queue`";
            self.notes.push(Note { weight: Weight::Warning, message: message.to_owned() });
        }
        Ok(())
    }

    fn rules(&mut self, config: &Config) -> Result<Option<Snapshot>, Failure> {
        let sources = match configured(&config.rules) {
            Ok(sources) => sources,
            Err(error) => {
                let Some(path) = absent_path(&config.rules, &error) else {
                    return Err(Failure::Load(error));
                };
                let effect = if config.rules.required {
                    "`tidegate serve` would not start"
                } else {
                    "nothing is limited"
                };
                let message = format!("there are no rules at `{path}`: {effect}");
                // A configuration of a forwarder only needs no rules.
                let forwards = config.forward.file.is_some() && config.gateway.file.is_none();
                let weight = if forwards { Weight::Note } else { Weight::Warning };
                self.notes.push(Note { weight, message });
                return Ok(None);
            }
        };
        match compile(&sources, &config.rule_options()) {
            Ok(snapshot) => {
                self.problems.extend_from_slice(snapshot.warnings());
                let (rules, domains) = (snapshot.rules().len(), snapshot.domains().count());
                self.summary.rules = Some(RuleTotals { rules, domains });
                Ok(Some(snapshot))
            }
            Err(report) => {
                self.add(&report);
                Ok(None)
            }
        }
    }

    fn has_warnings(&self) -> bool {
        self.summary.counts.warnings > 0
            || self.notes.iter().any(|note| note.weight == Weight::Warning)
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        write_problems(out, &self.problems, self.summary.counts.omitted)?;
        write_notes(out, &self.notes)?;
        if !self.problems.is_empty() || !self.notes.is_empty() {
            writeln!(out)?;
        }
        let ProblemCounts { errors, warnings, omitted } = self.summary.counts;
        let warned = match warnings {
            0 => String::new(),
            some if self.ok => format!(", {}", count(some, "warning")),
            some => format!(" and {}", count(some, "warning")),
        };
        let (color, text) = if self.ok {
            (style::GOOD, "the configuration is right".to_owned())
        } else {
            (style::ERROR, count(errors + omitted, "problem"))
        };
        writeln!(out, "{}", StyledText(color, format!("{text}{warned}")))?;
        self.summary.write_totals(out)
    }
}

impl ConfigSummary {
    /// Totals of the documents, so that a gateway that limits no route stands out.
    fn write_totals(&self, out: &mut impl Write) -> io::Result<()> {
        let mut parts = Vec::new();
        if let Some(RuleTotals { rules, domains }) = self.rules {
            parts.push(format!("rules: {rules} in {}", count(domains, "domain")));
        }
        if let Some(Coverage { routes, limited, exempt }) = self.gateway {
            let exempt = if exempt == 0 { String::new() } else { format!(", {exempt} exempt") };
            parts.push(format!("gateway: {}, {limited} limited{exempt}", count(routes, "route")));
        }
        if let Some(ForwardTotals { targets, types }) = self.forward {
            let (targets, types) = (count(targets, "target"), count(types, "record type"));
            parts.push(format!("forwarder: {types} to {targets}"));
        }
        if parts.is_empty() { Ok(()) } else { writeln!(out, "{}", parts.join("; ")) }
    }
}

/// The note for switches of the gateway's shedders, which do not exist without a capacity.
pub(crate) fn switches_without_effect(config: &Config) -> Option<Note> {
    let (given, default) = (&config.switches, Config::default().switches);
    let mut shedders = vec![LimiterName::Worker, LimiterName::Fleet, LimiterName::Gate];
    shedders.retain(|limiter| given.mode(*limiter) != default.mode(*limiter));
    let set: Vec<String> =
        shedders.iter().map(|limiter| format!("`switches.{}`", limiter.as_str())).collect();
    if config.gateway.file.is_none() || config.overload.capacity.is_some() || set.is_empty() {
        return None;
    }
    let (verb, names) = (if set.len() == 1 { "has" } else { "have" }, set.join(", "));
    let message = format!("{names} {verb} no effect: `overload.capacity` is not set");
    Some(Note { weight: Weight::Warning, message })
}

/// Writes notes, a line each.
pub(crate) fn write_notes(out: &mut impl Write, notes: &[Note]) -> io::Result<()> {
    for Note { weight, message } in notes {
        let title = match weight {
            Weight::Note => StyledText(style::HELP, "note:"),
            Weight::Warning => StyledText(style::WARNING, "warning:"),
        };
        writeln!(out, "{title} {}", Clean(message))?;
    }
    Ok(())
}
