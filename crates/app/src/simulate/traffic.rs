//! `tidegate simulate traffic`: recorded traffic through changed rules.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use tidegate_simulation::replay::{
    ClientModel, Format, ReplayOptions, ReplayReport, RequestDescriber, Threshold, replay,
};

use super::progress::ReadProgress;
use super::recordings::{RecordingArgs, compiled, complaint};
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Output, StyledText, style};

/// The arguments of `tidegate simulate traffic`.
#[derive(Debug, Args)]
pub(crate) struct TrafficArgs {
    #[command(flatten)]
    pub(crate) recordings: RecordingArgs,
    /// The format of the logs: auto, common, combined, envoy-json, tidegate-json, decisions, or a
    /// `log_format` of nginx such as '$remote_addr [$time_local] "$request" $status'.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) format: String,
    /// The rules to try: a file or a directory; can be given several times.
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) rules: Vec<PathBuf>,
    /// The rules to compare with.
    #[arg(long, value_name = "PATH")]
    pub(crate) against: Vec<PathBuf>,
    /// How refused clients behave.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) clients: ClientsArg,
    /// How to print the report.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) print: PrintFormat,
    /// A folder for the report as HTML, Markdown and JSON, and its charts as SVG.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Show callers as hashes.
    #[arg(long)]
    pub(crate) anonymise: bool,
    /// Fail (exit code 1) if this holds, such as `refused > 1%` or `newly_refused > 0`; can be given
    /// several times.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<String>,
}

/// How refused clients behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientsArg {
    /// Both bounds: as logged, and clients that wait as they are asked to.
    #[default]
    Both,
    /// Every line as it was logged: the bound from above, and twice as fast.
    #[value(alias = "stubborn")]
    AsLogged,
}

/// How to print a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrintFormat {
    /// For a terminal.
    #[default]
    Text,
    /// For a document or a pull request.
    Markdown,
    /// For programs.
    Json,
}

impl From<PrintFormat> for Format {
    fn from(format: PrintFormat) -> Self {
        match format {
            PrintFormat::Text => Format::Text,
            PrintFormat::Markdown => Format::Markdown,
            PrintFormat::Json => Format::Json,
        }
    }
}

pub(crate) fn run(args: &TrafficArgs, out: &mut Output) -> Result<Exit, Failure> {
    let thresholds = args.fail_if.iter().map(|text| text.parse::<Threshold>());
    let thresholds: Result<Vec<_>, _> = thresholds.collect();
    let thresholds = thresholds.map_err(|error| {
        Complaint::new(error.to_string(), "see docs/replay.md for all conditions")
    })?;
    if args.recordings.log.is_empty() {
        let help = "name one with `--log access.log`; `-` is standard input";
        return Err(Complaint::new("there is no log to play", help).into());
    }
    let rules = compiled(&args.rules)?;
    let against = match &args.against[..] {
        [] => None,
        paths => Some(compiled(paths)?),
    };
    let progress = ReadProgress::default();
    let recordings = args.recordings.open(&args.format, &progress)?;
    let mut describer = args.recordings.describer(&rules)?;
    let options = ReplayOptions {
        rules: Arc::clone(&rules),
        against,
        describer: describer.as_mut().map(|one| &mut **one as &mut dyn RequestDescriber),
        clients: match args.clients {
            ClientsArg::Both => ClientModel::Both,
            ClientsArg::AsLogged => ClientModel::AsLogged,
        },
        anonymise: args.anonymise,
        progress: &mut |lines| progress.show(lines),
    };
    let report = replay(recordings, options).map_err(|error| complaint(&error))?;
    ReadProgress::end();
    write!(out, "{}", report.render(args.print.into()))?;
    if let Some(folder) = &args.out {
        write_files(&report, folder)?;
    }
    let failures: Vec<String> =
        thresholds.iter().filter_map(|threshold| threshold.failure(&report)).collect();
    // With JSON, standard output is one document.
    let mut err = io::stderr();
    for failure in &failures {
        writeln!(err, "{} {failure}", StyledText(style::PLAIN, "failed:"))?;
    }
    Ok(Exit::of_check(failures.is_empty()))
}

fn write_files(report: &ReplayReport, folder: &std::path::Path) -> Result<(), Failure> {
    let files = report.write_to(folder).map_err(|error| {
        let message = format!("`{}` cannot be written: {error}", folder.display());
        Complaint::new(message, "choose another folder with `--out`")
    })?;
    for file in files {
        eprintln!("wrote {}", file.display());
    }
    Ok(())
}
