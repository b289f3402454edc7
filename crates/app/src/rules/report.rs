//! `tidegate rules report`: what traffic says about the rules.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use tidegate_insight::{
    EVIDENCE_VERSION, EvidenceMinimum, FindingKind, LimitFinding, RulesEvidence, judge_all,
};
use tidegate_simulation::replay::{ClientModel, ReplayOptions, RequestDescriber, replay};

use super::load::DEFAULT_PATH;
use crate::debug_client::{DebugClient, TokenArgs, client_runtime};
use crate::exit::{Complaint, Exit, Failure};
use crate::input::read_source;
use crate::output::{Clean, Output, StyledText, style, write_json};
use crate::simulate::progress::ReadProgress;
use crate::simulate::recordings::{RecordingArgs, compiled, complaint};
use crate::simulate::traffic::PrintFormat;
use crate::words::count;

/// The largest file of evidence.
const EVIDENCE_BYTES_MAX: usize = 256 << 20;

/// The arguments of `tidegate rules report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Evidence as JSON, from `simulate traffic --out` (evidence.json), or `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "log", required_unless_present_any = ["log", "from"])]
    pub(crate) history: Option<PathBuf>,
    /// The debug port of a running server, such as localhost:6070: what it has seen so far.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["history", "log"])]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    #[command(flatten)]
    pub(crate) recordings: RecordingArgs,
    /// The format of the logs, as in `simulate traffic`.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) log_format: String,
    /// The rules that the logs are played through: a file or a directory; can be given several times.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_RULES", default_value = DEFAULT_PATH)]
    pub(crate) rules: Vec<PathBuf>,
    /// How to print the report.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: PrintFormat,
    /// Kinds of findings that fail the command (exit code 1); `all` for every fault.
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_parser = denied_kinds)]
    pub(crate) deny: Vec<DeniedKinds>,
}

/// The kinds that one word denies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeniedKinds(Vec<FindingKind>);

fn denied_kinds(word: &str) -> Result<DeniedKinds, String> {
    if word == "all" {
        let faults = FindingKind::ALL.into_iter().filter(|kind| kind.is_fault());
        return Ok(DeniedKinds(faults.collect()));
    }
    let kind = FindingKind::from_word(word);
    let known = || format!("it can be all, {}", FindingKind::WORDS.join(", "));
    kind.map(|kind| DeniedKinds(vec![kind])).ok_or_else(known)
}

pub(crate) fn run(args: &ReportArgs, out: &mut Output) -> Result<Exit, Failure> {
    let judged = |evidence| judge_all(&evidence, EvidenceMinimum::default());
    let findings = match (&args.history, &args.from) {
        (Some(path), _) => judged(read_evidence(path)?),
        (None, Some(server)) => judged(fetch_evidence(server, &args.token)?),
        (None, None) => findings_of_logs(args)?,
    };
    let denies = |kind: FindingKind| args.deny.iter().any(|kinds| kinds.0.contains(&kind));
    let denied = findings.iter().filter(|found| denies(found.kind)).count();
    let report = FindingsReport { ok: denied == 0, denied, findings: &findings };
    match args.format {
        PrintFormat::Text => report.write_text(out)?,
        PrintFormat::Markdown => report.write_markdown(out)?,
        PrintFormat::Json => write_json(out, &report)?,
    }
    Ok(Exit::of_check(report.ok))
}

fn findings_of_logs(args: &ReportArgs) -> Result<Vec<LimitFinding>, Failure> {
    let rules = compiled(&args.rules)?;
    let progress = ReadProgress::default();
    let recordings = args.recordings.open(&args.log_format, &progress)?;
    let mut describer = args.recordings.describer(&rules)?;
    let options = ReplayOptions {
        rules,
        against: None,
        describer: describer.as_mut().map(|one| &mut **one as &mut dyn RequestDescriber),
        clients: ClientModel::AsLogged,
        anonymise: true,
        progress: &mut |lines| progress.show(lines),
    };
    let report = replay(recordings, options).map_err(|error| complaint(&error))?;
    ReadProgress::end();
    Ok(report.findings)
}

fn read_evidence(path: &std::path::Path) -> Result<RulesEvidence, Complaint> {
    let source = read_source(path, EVIDENCE_BYTES_MAX)?;
    let help = "use the `evidence.json` that `simulate traffic --out` writes";
    if source.text.len() > EVIDENCE_BYTES_MAX {
        return Err(Complaint::new(format!("`{}` is too large", path.display()), help));
    }
    let evidence = serde_json::from_str(&source.text).map_err(|error| {
        Complaint::new(format!("`{}` is no evidence: {error}", path.display()), help)
    })?;
    known_version(evidence, &path.display())
}

/// The evidence of a running server.
fn fetch_evidence(server: &str, token: &TokenArgs) -> Result<RulesEvidence, Failure> {
    let client = DebugClient::new(server, token.read()?)?;
    let runtime = client_runtime()?;
    let page = runtime.block_on(client.get_large("/api/evidence", EVIDENCE_BYTES_MAX));
    let help = "check the address and the token: `tidegate serve` logs where it listens";
    let page = page.map_err(|error| Complaint::new(format!("{server}: {error}"), help))?;
    let evidence = serde_json::from_value(page).map_err(|error| {
        Complaint::new(
            format!("{server} sent no evidence: {error}"),
            "use the same version of tidegate",
        )
    })?;
    Ok(known_version(evidence, &server)?)
}

fn known_version(evidence: RulesEvidence, from: &dyn Display) -> Result<RulesEvidence, Complaint> {
    if evidence.version <= EVIDENCE_VERSION {
        return Ok(evidence);
    }
    let version = evidence.version;
    let message =
        format!("`{from}` has version {version}, and this program knows up to {EVIDENCE_VERSION}");
    Err(Complaint::new(message, "use a newer tidegate"))
}

/// The result. This is the JSON document too: see docs/findings.md.
#[derive(Debug, Serialize)]
struct FindingsReport<'f> {
    ok: bool,
    /// How many findings are of a denied kind.
    denied: usize,
    findings: &'f [LimitFinding],
}

impl FindingsReport<'_> {
    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for found in self.findings {
            let color = if found.kind.is_fault() { style::WARNING } else { style::GOOD };
            writeln!(
                out,
                "{} {}",
                StyledText(color, format_args!("{}:", found.kind.as_str())),
                Clean(&found.limit)
            )?;
            writeln!(out, "  {}", Clean(&found.summary))?;
            writeln!(out, "  {} (confidence {})", figures(found), found.confidence.as_str())?;
            let help = StyledText(style::HELP, "suggestion:");
            writeln!(out, "  {help} {}", Clean(&found.suggestion.text))?;
            for line in found.suggestion.diff.iter().flat_map(|diff| diff.lines()) {
                let color = match line.as_bytes().first() {
                    Some(b'+') => style::GOOD,
                    Some(b'-') => style::BAD,
                    _ => style::FAINT,
                };
                writeln!(out, "  {}", StyledText(color, Clean(line)))?;
            }
            if let Some(command) = &found.replay {
                writeln!(out, "  try it: {command}")?;
            }
            writeln!(out)?;
        }
        let color = if self.ok { style::GOOD } else { style::ERROR };
        writeln!(out, "{}", StyledText(color, self.summary()))
    }

    fn write_markdown(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "# Findings about the rules\n\n{}\n", self.summary())?;
        for found in self.findings {
            let limit = found.limit.to_string().replace('`', "'");
            writeln!(out, "## {} at `{}`\n", found.kind.as_str(), Clean(limit))?;
            writeln!(out, "{}. Confidence: {}.\n", found.summary, found.confidence.as_str())?;
            for figure in &found.figures {
                writeln!(out, "- {figure}")?;
            }
            writeln!(out, "\nSuggestion: {}.\n", found.suggestion.text)?;
            if let Some(diff) = &found.suggestion.diff {
                writeln!(out, "```diff\n{}\n```\n", diff.trim_end())?;
            }
            if let Some(command) = &found.replay {
                writeln!(out, "Try it: `{command}`\n")?;
            }
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let faults = self.findings.iter().filter(|found| found.kind.is_fault()).count();
        let findings = count(self.findings.len(), "finding");
        match self.denied {
            0 => format!("{findings}, {faults} to act on"),
            denied => format!("{findings}, {denied} of a denied kind"),
        }
    }
}

fn figures(found: &LimitFinding) -> String {
    found.figures.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
