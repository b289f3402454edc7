//! `tidegate rules explain`: which rule a request meets, and why.
//!
//! `tidegate_rules` explains the matching. This adds the limits of the rule in words, the values that its counters are
//! kept by, and a hint where nothing matched.

mod hint;

use std::io::{self, Write};

use serde::Serialize;
use tidegate_document::did_you_mean;
use tidegate_engine::{Clock, SystemClock};
use tidegate_rules::{
    Charge, Domain, Explanation, LevelExplanation, MatchOutcome, Mode, NameId, Options, Rule,
    RuleLimit, Snapshot, WhenOver, compile,
};

use super::load;
use crate::cli::{ExplainArgs, Format};
use crate::descriptor::{self, SEPARATOR, TypedDescriptor};
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Clean, Output, StyledText, style, write_json};
use crate::words;

pub(crate) fn run(args: &ExplainArgs, out: &mut Output) -> Result<Exit, Failure> {
    let descriptors = typed(args)?;
    let snapshot = compile(&load::sources(&args.rules)?, &Options::default())?;
    let domain = choose_domain(&snapshot, args.domain.as_deref())?;
    let explanation = RequestExplanation::of(&snapshot, domain, descriptors);
    match args.format {
        Format::Text => explanation.write_text(out)?,
        Format::Json => write_json(out, &explanation)?,
    }
    Ok(Exit::Fine)
}

fn typed(args: &ExplainArgs) -> Result<Vec<TypedDescriptor>, Complaint> {
    let descriptors = args.descriptor.iter().map(|descriptor| descriptor.split(',').collect());
    let mut words = descriptors.collect::<Vec<Vec<&str>>>().join(&SEPARATOR);
    words.extend(args.entries.iter().map(String::as_str));
    if !args.more.is_empty() {
        words.push(SEPARATOR);
        words.extend(args.more.iter().map(String::as_str));
    }
    descriptor::parse(words)
}

/// The domain of this name; without a name, the only domain.
pub(crate) fn choose_domain<'s>(
    snapshot: &'s Snapshot,
    name: Option<&str>,
) -> Result<&'s Domain, Complaint> {
    let domains: Vec<&Domain> = snapshot.domains().collect();
    let names: Vec<&str> = snapshot.domains().map(Domain::name).collect();
    let all = format!("the rules have: {}", names.join(", "));
    match (name, domains.as_slice()) {
        (Some(name), _) => snapshot.domain(name).ok_or_else(|| {
            let help = did_you_mean(name, names).unwrap_or(all);
            Complaint::new(format!("no domain is called `{name}`"), help)
        }),
        (None, [only]) => Ok(only),
        (None, []) => Err(Complaint::new("the rules have no domain", "give other rules")),
        (None, [_, ..]) => {
            let help = format!("choose one with `--domain`; {all}");
            Err(Complaint::new("the rules have several domains", help))
        }
    }
}

/// The explanation of a whole request. This is the JSON document too: see docs/cli.md.
#[derive(Debug, Serialize)]
pub(crate) struct RequestExplanation {
    domain: String,
    charge: Charge,
    descriptors: Vec<DescriptorExplanation>,
}

#[derive(Debug, Serialize)]
struct DescriptorExplanation {
    entries: TypedDescriptor,
    levels: Vec<LevelExplanation>,
    ending: MatchOutcome,
    /// The rule, if one applies.
    rule: Option<RuleExplanation>,
    /// What would have matched, if nothing did.
    hint: Option<String>,
}

#[derive(Debug, Serialize)]
struct RuleExplanation {
    path: String,
    plan: Option<String>,
    unlimited: bool,
    /// The values that the rule's counters are kept by; if empty, all requests share one counter.
    counted_by: Vec<String>,
    limits: Vec<LimitExplanation>,
    metadata: Option<serde_json::Value>,
}

#[derive(Debug, Serialize)]
struct LimitExplanation {
    name: Option<String>,
    algorithm: &'static str,
    /// What it allows, in words.
    terms: String,
    /// Its other properties, in words.
    details: Vec<String>,
    amount: u64,
    period_ms: u64,
    cost: u64,
    #[serde(serialize_with = "write_word")]
    mode: Mode,
    enforce_percent: u8,
    when_over: WhenOver,
    consistency: tidegate_rules::Consistency,
    on_store_error: tidegate_rules::OnStoreError,
    /// The names of the limits that it replaces.
    replaces: Vec<String>,
    /// Whether a limit of another rule of the request replaces it.
    replaced: bool,
}

/// Only the word: the percentage has its own field.
fn write_word<S: serde::Serializer>(mode: &Mode, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(mode.as_str())
}

impl RequestExplanation {
    pub(crate) fn of(
        snapshot: &Snapshot,
        domain: &Domain,
        descriptors: Vec<TypedDescriptor>,
    ) -> Self {
        let now = SystemClock::new().now();
        let met = descriptors.iter().filter_map(|typed| domain.find(&typed.entries(), now));
        let replaced: Vec<NameId> =
            met.flat_map(|found| replaced_by(snapshot, found.rule)).collect();
        let descriptors = descriptors.into_iter().map(|entries| {
            let Explanation { levels, ending, .. } = domain.explain(&entries.entries(), now);
            let rule = domain.find(&entries.entries(), now).map(|found| found.rule);
            let hint = hint::hint(snapshot, domain, &levels, &ending);
            let rule = rule.map(|rule| RuleExplanation::of(snapshot, rule, &levels, &replaced));
            DescriptorExplanation { entries, levels, ending, rule, hint }
        });
        let descriptors = descriptors.collect();
        RequestExplanation {
            domain: domain.name().to_owned(),
            charge: domain.charge(),
            descriptors,
        }
    }

    pub(crate) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for (at, descriptor) in self.descriptors.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            let entries = StyledText(style::STRONG, Clean(&descriptor.entries));
            writeln!(out, "{entries} in domain {}", Clean(&self.domain))?;
            descriptor.write_text(out)?;
        }
        if self.descriptors.len() > 1 {
            let charged = match self.charge {
                Charge::AllOrNothing => "a refusal charges none of them",
                Charge::Always => "each is charged, whatever the others say",
            };
            writeln!(out, "\nAll limits above apply to the request together; {charged}.")?;
        }
        Ok(())
    }
}

/// The names of the limits that this rule replaces.
fn replaced_by(snapshot: &Snapshot, rule: &Rule) -> Vec<NameId> {
    let limits = snapshot.limits_of(rule).iter().filter(|limit| limit.mode != Mode::Off);
    let by_limits = limits.flat_map(|limit| limit.replaces.iter());
    let by_exemption = rule.exemption().into_iter().flat_map(|exemption| exemption.replaces.iter());
    by_limits.chain(by_exemption).copied().collect()
}

impl RuleExplanation {
    fn of(
        snapshot: &Snapshot,
        rule: &Rule,
        levels: &[LevelExplanation],
        replaced: &[NameId],
    ) -> Self {
        let counted = |level: &LevelExplanation| {
            level.counted_by.as_ref().map(|value| format!("{}={value}", level.key))
        };
        let limit = |limit| LimitExplanation::of(snapshot, limit, replaced);
        RuleExplanation {
            path: rule.path().to_owned(),
            plan: rule.plan().map(ToOwned::to_owned),
            unlimited: rule.unlimited(),
            counted_by: levels.iter().filter_map(counted).collect(),
            limits: snapshot.limits_of(rule).iter().map(limit).collect(),
            metadata: rule.metadata().cloned(),
        }
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        if self.unlimited {
            return field(out, "limits", "none: unlimited, and not counted");
        }
        match self.counted_by.as_slice() {
            [] => field(out, "counter", "one for all requests that meet this rule")?,
            values => field(out, "counter", &format!("one for {}", values.join(" ")))?,
        }
        for limit in &self.limits {
            limit.write_text(out)?;
        }
        if let Some(metadata) = &self.metadata {
            field(out, "metadata", &metadata.to_string())?;
        }
        Ok(())
    }
}

impl LimitExplanation {
    fn of(snapshot: &Snapshot, limit: &RuleLimit, replaced: &[NameId]) -> Self {
        let algorithm = limit.limit.algorithm();
        let name = |name| snapshot.name(name).to_owned();
        LimitExplanation {
            name: limit.name.map(name),
            algorithm: algorithm.name(),
            terms: words::terms(limit),
            details: words::details(limit),
            amount: algorithm.quota(),
            period_ms: algorithm.period().get() / 1_000_000,
            cost: limit.cost,
            mode: limit.mode,
            enforce_percent: limit.mode.enforce_percent(),
            when_over: limit.when_over,
            consistency: limit.consistency,
            on_store_error: limit.on_store_error,
            replaces: limit.replaces.iter().map(|replaced| name(*replaced)).collect(),
            replaced: limit.name.is_some_and(|name| replaced.contains(&name)),
        }
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(", named {name}"));
        field(out, "limit", &format!("{} ({}{name})", self.terms, self.algorithm))?;
        for detail in &self.details {
            field(out, "", detail)?;
        }
        if self.replaced {
            field(out, "", "does not apply: another rule of this request replaces it")?;
        }
        if !self.replaces.is_empty() {
            field(out, "", &format!("replaces {}", self.replaces.join(", ")))?;
        }
        let mode = match self.mode {
            Mode::Enforce(_) => match self.when_over {
                WhenOver::Refuse => "enforce: requests over the limit are refused",
                WhenOver::Delay => "enforce: requests over the limit wait for their turn",
                WhenOver::Queue => "enforce: requests over the limit are stored for later",
            },
            Mode::Shadow => "shadow: counted and reported, never refused",
            Mode::Off => "off: neither counted nor refused",
        };
        field(out, "  mode", mode)?;
        let (consistency, on_error) = (self.consistency.as_str(), self.on_store_error.as_str());
        let store = format!("{consistency}; while it is not available: {on_error}");
        field(out, "  store", &store)
    }
}

impl DescriptorExplanation {
    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for (at, level) in self.levels.iter().enumerate() {
            writeln!(out, "  {}. {}={}", at + 1, Clean(&level.key), Clean(&level.value))?;
            write_level(out, level)?;
        }
        let color = if self.rule.is_some() { style::GOOD } else { style::WARNING };
        writeln!(out, "  {}", StyledText(color, Clean(&self.ending)))?;
        if let Some(rule) = &self.rule {
            rule.write_text(out)?;
        }
        if let Some(hint) = &self.hint {
            writeln!(out, "  {} {}", StyledText(style::HELP, "hint:"), Clean(hint))?;
        }
        Ok(())
    }
}

fn write_level(out: &mut impl Write, level: &LevelExplanation) -> io::Result<()> {
    if level.tried.is_empty() {
        return match level.known_keys.as_slice() {
            [] => writeln!(out, "     nothing is below the entry before"),
            keys => {
                writeln!(out, "     no such key here; there are: {}", Clean(keys.join(", ")))
            }
        };
    }
    for attempt in &level.tried {
        // As text first: its `Display` ignores the width.
        let way = attempt.way.to_string();
        match (&level.matched, attempt.matched) {
            (Some(label), true) => {
                let label = StyledText(style::GOOD, format!("matches {}", Clean(label)));
                writeln!(out, "     {way:<15} {label}")?;
            }
            _ => writeln!(out, "     {way:<15} {}", StyledText(style::FAINT, "no match"))?,
        }
    }
    Ok(())
}

fn field(out: &mut impl Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "    {} {}", StyledText(style::FAINT, format!("{name:<9}")), Clean(text))
}
