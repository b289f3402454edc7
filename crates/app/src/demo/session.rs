//! A session of the demo: an engine, the current domain, and the switched modes.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use tidegate_document::did_you_mean;
use tidegate_engine::{
    Descriptor, Engine, MemoryConfig, MemoryStore, Mode, Options, Permit, Request, Rule, Snapshot,
    Source, Target, Tenure, Verb, compile,
};
use tidegate_rules::Domain;

use super::answer::{Answers, holds_slots};
use super::clock::DemoClock;
use super::command::{self, COMMANDS, PromptCommand, PromptRequest, RequestAction};
use crate::descriptor::TypedDescriptor;
use crate::exit::{Complaint, Failure};
use crate::output::{Cell, Clean, Table, style};
use crate::rules::explain::{RequestExplanation, choose_domain};
use crate::words;

/// The bytes for counters: enough for all requests that a person can type.
const BUDGET_BYTES: usize = 16 * 1024 * 1024;

/// The maximum of requests in flight.
const IN_FLIGHT_MAX: usize = 10_000;

/// The outcome of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineOutcome {
    Done,
    NotUnderstood,
    Quit,
}

/// A session of the demo.
#[derive(Debug)]
pub(super) struct Session {
    engine: Arc<Engine<MemoryStore, DemoClock>>,
    /// The rules, for lookups; the engine has its own copy.
    snapshot: Snapshot,
    domain: String,
    /// The switched modes, by domain and path.
    modes: HashMap<(String, String), Mode>,
    in_flight: Vec<Permit<MemoryStore, DemoClock>>,
}

impl Session {
    /// A session with these rules.
    pub(super) fn new(
        sources: &[Source],
        domain: Option<&str>,
        clock: DemoClock,
    ) -> Result<Self, Failure> {
        let rules = || compile(sources, &Options::default());
        let snapshot = rules()?;
        let first = snapshot.domains().next().map(Domain::name);
        let domain = choose_domain(&snapshot, domain.or(first))?.name().to_owned();
        let config = MemoryConfig { budget_bytes: BUDGET_BYTES, ..MemoryConfig::default() };
        let store = MemoryStore::new(config)
            .map_err(|error| Complaint::new(error.to_string(), "free some memory"))?;
        let standing = clock.is_standing();
        let mut engine = Engine::new(store, clock).with_rules(rules()?);
        if standing {
            // A script always gets the same answers.
            engine = engine.with_seed(0);
        }
        let engine = Arc::new(engine);
        Ok(Session { engine, snapshot, domain, modes: HashMap::new(), in_flight: Vec::new() })
    }

    pub(super) const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The current domain.
    pub(super) fn domain(&self) -> Option<&Domain> {
        self.snapshot.domain(&self.domain)
    }

    /// The rules of the current domain.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.snapshot.rules().iter().filter(|rule| rule.domain() == self.domain)
    }

    /// Answers one line.
    pub(super) fn answer(
        &mut self,
        line: &str,
        out: &mut impl Write,
    ) -> Result<LineOutcome, Failure> {
        let result = match command::parse(line) {
            Ok(PromptCommand::Nothing) => return Ok(LineOutcome::Done),
            Ok(PromptCommand::Quit) => return Ok(LineOutcome::Quit),
            Ok(command) => self.execute(command, out),
            Err(complaint) => Err(complaint.into()),
        };
        let outcome = match result {
            Ok(()) => LineOutcome::Done,
            Err(Failure::Usage(complaint)) => {
                complaint.write(out)?;
                LineOutcome::NotUnderstood
            }
            Err(failure) => return Err(failure),
        };
        writeln!(out)?;
        Ok(outcome)
    }

    fn execute(&mut self, command: PromptCommand, out: &mut impl Write) -> Result<(), Failure> {
        match command {
            PromptCommand::Nothing | PromptCommand::Quit => {}
            PromptCommand::Request(request) => self.request(&request, out)?,
            PromptCommand::Wait(span) => {
                self.engine.clock().skip(span);
                writeln!(out, "  {} later", words::span(span))?;
            }
            PromptCommand::Release => {
                let ended = words::count(self.in_flight.len(), "request");
                // Dropping a permit releases its slots.
                self.in_flight.clear();
                writeln!(out, "  {ended} ended")?;
            }
            PromptCommand::Off => {
                self.engine.switch_off(true);
                writeln!(out, "  everything is admitted, nothing is counted")?;
            }
            PromptCommand::On => {
                self.engine.switch_off(false);
                writeln!(out, "  limits hold again")?;
            }
            PromptCommand::Rules => self.list(out)?,
            PromptCommand::Help => help(out)?,
            PromptCommand::Explain(descriptors) => {
                if let Some(domain) = self.domain() {
                    RequestExplanation::of(&self.snapshot, domain, descriptors).write_text(out)?;
                }
            }
            PromptCommand::Domain(name) => {
                self.domain = choose_domain(&self.snapshot, Some(&name))?.name().to_owned();
                let rules = words::count(self.rules().count(), "rule");
                writeln!(out, "  domain {}: {rules}", Clean(name))?;
            }
            PromptCommand::Mode { rule, mode } => {
                writeln!(out, "  {}", Clean(self.set_mode(&rule, mode)?))?;
            }
        }
        Ok(())
    }

    fn request(&mut self, typed: &PromptRequest, out: &mut impl Write) -> io::Result<()> {
        let entries: Vec<_> = typed.descriptors.iter().map(TypedDescriptor::entries).collect();
        let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
        let request = Request::new(&self.domain, &descriptors).with_cost(typed.cost);
        let mut answers = Answers::new(typed.repeat);
        let mut held = 0;
        for _ in 0..typed.repeat {
            let verdict = match typed.action {
                RequestAction::Peek => self.engine.apply_now(Verb::Peek, &request),
                RequestAction::Reset => self.engine.apply_now(Verb::Reset, &request),
                RequestAction::Check => self.engine.admit_now(&request, Tenure::Held).0,
                RequestAction::Hold => {
                    let (verdict, permit) = self.engine.admit_now(&request, Tenure::Held);
                    if !permit.is_empty() && self.in_flight.len() < IN_FLIGHT_MAX {
                        self.in_flight.push(permit);
                        held += 1;
                    }
                    verdict
                }
            };
            let pointless = typed.action == RequestAction::Hold && !holds_slots(&verdict);
            answers.add(&verdict);
            if pointless {
                answers.remark("no limit on requests at once is met: there is nothing to hold");
            }
        }
        if typed.action == RequestAction::Reset {
            return self.reset_done(out, &request);
        }
        answers.write(out)?;
        if held > 0 {
            let held = words::count(held, "request");
            let all = self.in_flight.len();
            writeln!(out, "  {held} held, {all} in flight; `release` ends them")?;
        }
        Ok(())
    }

    fn reset_done(&self, out: &mut impl Write, request: &Request<'_>) -> io::Result<()> {
        let mut answers = Answers::new(1);
        answers.add(&self.engine.apply_now(Verb::Peek, request));
        writeln!(out, "  forgotten; the next such request would get:")?;
        answers.write(out)
    }

    fn set_mode(&mut self, path: &str, mode: Option<Mode>) -> Result<String, Complaint> {
        let target = Target { domain: &self.domain, path, limit: None };
        let switched = match mode {
            Some(mode) => self.engine.set_switch(target, mode),
            None => self.engine.unset_switch(target),
        };
        let Ok(limits) = switched else {
            let help = did_you_mean(path, self.rules().map(Rule::path))
                .unwrap_or_else(|| "`rules` lists the rules".to_owned());
            return Err(Complaint::new(format!("no rule with limits is called `{path}`"), help));
        };
        let key = (self.domain.clone(), path.to_owned());
        let limits = words::count(limits, "limit");
        Ok(match mode {
            Some(mode) => {
                self.modes.insert(key, mode);
                format!("{path}: {limits} switched to {}", mode.as_str())
            }
            None => {
                self.modes.remove(&key);
                format!("{path}: {limits} as in the rule file again")
            }
        })
    }

    fn list(&self, out: &mut impl Write) -> io::Result<()> {
        let mut table = Table::titled(&["rule", "plan", "limit", "mode"]);
        for rule in self.rules() {
            let path = Cell::new(rule.path()).styled(style::STRONG);
            let plan = Cell::new(rule.plan().unwrap_or_default());
            if rule.unlimited() {
                table.row([path, plan, Cell::new("unlimited")]);
                continue;
            }
            let key = (self.domain.clone(), rule.path().to_owned());
            let switched = self.modes.get(&key).copied();
            for (at, limit) in self.snapshot.limits_of(rule).iter().enumerate() {
                let (path, plan) = match at {
                    0 => (path.clone(), plan.clone()),
                    _ => (Cell::new(""), Cell::new("")),
                };
                let mode = switched.unwrap_or(limit.mode);
                let color =
                    if matches!(mode, Mode::Enforce(_)) { style::PLAIN } else { style::WARNING };
                let mode = Cell::new(mode.as_str()).styled(color);
                table.row([path, plan, Cell::new(words::terms(limit)), mode]);
            }
        }
        table.write(out, "  ")
    }
}

fn help(out: &mut impl Write) -> io::Result<()> {
    let mut table = Table::titled(&["command", "", "does"]);
    for (name, follows, does) in COMMANDS {
        let name = Cell::new(*name).styled(style::HELP);
        table.row([name, Cell::new(*follows), Cell::new(*does)]);
    }
    table.write(out, "  ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::QUICKSTART;
    use super::*;

    fn session() -> Session {
        let sources = [Source::new("quickstart.yaml", QUICKSTART)];
        Session::new(&sources, None, DemoClock::standing()).unwrap()
    }

    /// Lines that are nearly right.
    fn line() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            "(wait|mode|peek|hold|reset|explain|domain|off|on|release|rules|--|--cost)",
            "(user|path|plan|ip|mail)=(ada|/login|/reports/1|pro|10[.]0[.]0[.]1|::1|)",
            "x[0-9]{1,3}",
            "[0-9]{1,20}(ms|s|m|h|d)?",
            "\\PC{0,8}",
        ];
        prop::collection::vec(word, 0..6).prop_map(|words| words.join(" "))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_line_is_executed_or_refused_with_an_error(
            lines in prop::collection::vec(line(), 1..20),
        ) {
            let mut session = session();
            for line in lines {
                let mut out = Vec::new();
                let outcome = session.answer(&line, &mut out).unwrap();
                let text = String::from_utf8(out).unwrap();
                let plain = anstream::adapter::strip_str(&text).to_string();
                let refused = plain.starts_with("error: ") && plain.contains("\nhelp: ");
                prop_assert_eq!(outcome == LineOutcome::NotUnderstood, refused, "{}: {}", line, plain);
            }
        }
    }
}
