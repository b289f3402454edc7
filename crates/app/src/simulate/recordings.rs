//! Recordings on the command line: which logs, and how their requests are described.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tidegate_rules::{Options, Snapshot, compile};
use tidegate_simulation::replay::{
    DescriptorRecipes, FORMATS, FormatError, LogReader, Recording, ReplayError, RequestDescriber,
};

use super::gateway_describer::GatewayDescriber;
use super::progress::ReadProgress;
use crate::exit::{Complaint, Failure};
use crate::input::STDIN;
use crate::rules::load;

/// Which logs are played, and how their requests are described.
#[derive(Clone, Debug, Args)]
pub(crate) struct RecordingArgs {
    /// A log, plain or gzip, or `-` for standard input; can be given several times. Logs are merged by
    /// time.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Vec<PathBuf>,
    /// The domain of the requests of an access log; not needed when the rules have only one.
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// A descriptor of each request of an access log; can be given several times. Variables have the
    /// names that nginx gives them: `$remote_addr`, `$remote_user`, `$request_method`, `$uri`, `$host`,
    /// `$arg_NAME`, and `$http_NAME` where the log has the field.
    #[arg(long, value_name = "KEY=$VARIABLE,…")]
    pub(crate) describe: Vec<String>,
    /// The gateway's document, to describe the requests of an access log as the gateway would.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["describe", "domain"])]
    pub(crate) gateway: Option<PathBuf>,
}

impl RecordingArgs {
    /// Opens the logs, and counts what is read of them.
    pub(crate) fn open(
        &self,
        format: &str,
        progress: &ReadProgress,
    ) -> Result<Vec<Recording>, Failure> {
        let reader = read_format(format)?;
        let open = |path: &PathBuf| -> Result<Recording, Failure> {
            let name = path.display().to_string();
            let unreadable = |error: &io::Error| {
                let message = format!("`{name}` cannot be read: {error}");
                Failure::from(Complaint::new(
                    message,
                    "check the spelling, and the rights of the file",
                ))
            };
            let recording = if path.as_path() == Path::new(STDIN) {
                progress.add_unknown();
                Recording::new("standard input", io::stdin(), reader.clone())
            } else {
                let file = File::open(path).map_err(|error| unreadable(&error))?;
                Recording::new(&name, progress.count(file), reader.clone())
            };
            recording.map_err(|error| unreadable(&error))
        };
        self.log.iter().map(open).collect()
    }

    /// How requests of access logs become descriptors, if that was said.
    pub(crate) fn describer(
        &self,
        rules: &Snapshot,
    ) -> Result<Option<Box<dyn RequestDescriber>>, Failure> {
        if let Some(path) = &self.gateway {
            return Ok(Some(Box::new(GatewayDescriber::read(path)?)));
        }
        if self.describe.is_empty() {
            return Ok(None);
        }
        let domain = self.domain_of(rules)?;
        let recipes = DescriptorRecipes::new(&domain, &self.describe).map_err(|error| {
            Complaint::new(error.to_string(), "write `--describe 'user=$remote_user,path=$uri'`")
        })?;
        Ok(Some(Box::new(recipes)))
    }

    fn domain_of(&self, rules: &Snapshot) -> Result<String, Complaint> {
        let known: Vec<&str> = rules.domains().map(|domain| domain.name()).collect();
        match (&self.domain, &known[..]) {
            (Some(name), known) if known.contains(&name.as_str()) => Ok(name.clone()),
            (Some(name), _) => Err(Complaint::new(
                format!("the rules have no domain `{name}`"),
                format!("they have {}", known.join(", ")),
            )),
            (None, [only]) => Ok((*only).to_owned()),
            (None, []) => Err(Complaint::new("the rules have no domain", "write rules first")),
            (None, _) => Err(Complaint::new(
                format!("the rules have {} domains", known.len()),
                format!("choose one with `--domain`: {}", known.join(", ")),
            )),
        }
    }
}

/// The reader of a format; [`None`] for that of the first line.
fn read_format(format: &str) -> Result<Option<LogReader>, Complaint> {
    if format == "auto" {
        return Ok(None);
    }
    if !format.contains('$') && !FORMATS.contains(&format) {
        let message = format!("there is no log format `{format}`");
        let help = format!("use one of {}, or a `log_format` of nginx", FORMATS.join(", "));
        return Err(Complaint::new(message, help));
    }
    let unusable = |error: FormatError| {
        Complaint::new(error.to_string(), "copy the text of `log_format` from nginx.conf")
    };
    LogReader::of(format).map(Some).map_err(unusable)
}

/// The rules at a path, compiled.
pub(crate) fn compiled(paths: &[PathBuf]) -> Result<Arc<Snapshot>, Failure> {
    let sources = load::sources(paths)?;
    Ok(Arc::new(compile(&sources, &Options::default())?))
}

/// Why a replay failed, and what to do.
pub(crate) fn complaint(error: &ReplayError) -> Complaint {
    let help = match error {
        ReplayError::Read { .. } => "check that the file is whole and may be read",
        ReplayError::UnknownFormat { .. } => {
            "say the format: `--format combined`, or the text of a `log_format` of nginx"
        }
        ReplayError::NoDescriber { .. } => {
            "say what identifies a caller, such as `--describe 'address=$remote_addr'`, or name the \
             gateway's document with `--gateway`"
        }
        ReplayError::Store(_) => "close other programs: each set of rules needs up to 1 GiB",
        ReplayError::TooManyLogs => "join the logs first",
    };
    Complaint::new(error.to_string(), help)
}
